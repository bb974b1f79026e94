"""Figures of answers, and launch files of plans."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.api.arguments import texts_of
from oracle.ask.compare import Comparison
from oracle.ask.ranking import Ranking
from oracle.predict.estimate import Estimate
from oracle.spec.document import refusal, suggest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.models.model import Model
    from oracle.plan.plan import Plan
    from oracle.spec.system import System


def plot(
    answer: Any, kind: str = "", *, title: str = "", to: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw a figure of an answer: a notebook shows it, and `to` names a file for it.

    An estimate or a ranking has `parts` (the default), `memory` and `pareto`; one plan also has
    `timeline`, `roofline` and `alive`; a sweep has `scaling` and `breakdown`; a comparison or a
    calibration has one figure.

    >>> import oracle
    >>> shown = oracle.estimate("resnet50", "abci", ["data:16", "data:4 filter:4"], batch=512)
    >>> oracle.plot(shown, "memory").get_axes()[0].get_xlabel()[:5]
    'bytes'
    """
    from oracle.show import plot as drawn

    figures = _figures(answer)
    kind = kind or next(iter(figures))
    if kind not in figures:
        complaint = f"no figure of {type(answer).__name__} is called `{kind}`"
        raise refusal("plot", complaint, suggest(kind, figures, "write one of"), "E110")
    figure = figures[kind](title)
    if to is not None:
        drawn.save(figure, os.fspath(to))
    return figure  # type: ignore[no-any-return]


def _figures(answer: Any) -> dict[str, Any]:
    """Return the figures of an answer by name, the usual one first."""
    from oracle.ask.sweep import Sweep
    from oracle.calibration.calibrate import Calibration
    from oracle.show import plot as drawn
    from oracle.show.plot.fits import fits

    if isinstance(answer, Ranking):
        answer = answer.estimate if len(answer) else answer.misses
    if isinstance(answer, Estimate):
        rows = [answer.figures(row) for row in range(len(answer))]
        several = {
            "parts": lambda title: drawn.parts(answer, title),
            "memory": lambda title: drawn.memory(answer, title),
            "pareto": lambda title: drawn.pareto(rows, title),
        }
        alone = {
            name: (lambda title, draw=draw: draw(answer, 0, title))
            for name, draw in (("timeline", drawn.timeline), ("roofline", drawn.roofline),
                               ("alive", drawn.alive))
        }  # fmt: skip
        return {**several, **(alone if len(answer) == 1 else {})}
    if isinstance(answer, Sweep):
        bars = [drawn.bar(row) for row in answer.rows]
        return {"scaling": lambda title: drawn.scaling(answer.rows, title),
                "breakdown": lambda title: drawn.breakdown(bars, [], title)}  # fmt: skip
    if isinstance(answer, Comparison):
        name = answer.predicted.model.name
        pairs = [{"group": name, "label": row["plan"], **row} for row in answer.to_dict()["plans"]]
        return {"measured": lambda title: drawn.measured(pairs, title or name)}
    if isinstance(answer, Calibration):
        return {"fits": lambda title: fits(answer)}
    complaint = f"a `{type(answer).__name__}` cannot be drawn"
    raise refusal("plot", complaint, "an estimate, ranking, sweep, comparison or calibration")


def export(
    format: str,
    model: Model | str | dict[str, Any],
    system: System | str | dict[str, Any],
    plan: str | Plan | Estimate,
    batch: int,
    *,
    to: str | os.PathLike[str] | None = None,
    force: bool = False,
    **options: Any,
) -> dict[str, str]:
    """Return the files of a plan's format, by name: torchrun, slurm, deepspeed, megatron, trace, ….

    They are written into the folder `to`, over existing files only with `force`. Other options are
    those of `estimate`; a format refuses a plan that it cannot express.

    >>> import oracle
    >>> list(oracle.export("deepspeed", "gpt2", "dgx-a100", "data:8,zero=2", batch=64))
    ['ds_config.json']
    """
    from oracle.api.predict import estimate
    from oracle.plan.plan import parse
    from oracle.predict.defaults import room_for
    from oracle.spec.catalogue import system as load_system
    from oracle.writers.export import put, writer
    from oracle.writers.exported import Job, block_of

    texts, module = texts_of(plan), writer(format)
    if len(texts) != 1:
        raise refusal("plan", f"{len(texts)} plans to export", "one at a time")
    room_for(load_system(system), texts, bool(options.get("grow")))
    estimated = estimate(model, system, texts, batch, **options)
    job = Job(estimated, parse(texts[0], float(batch)), block_of(estimated.model))
    files: dict[str, str] = module.files(job)
    job.check_read(str(module.TITLE))
    if to is not None:
        put({str(Path(to) / name): text for name, text in files.items()}, force=force)
    return files

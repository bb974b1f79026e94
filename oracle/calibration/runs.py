"""Fits factors of a machine and its software to logs of runs, in logarithms.

    min  Σ ((ln predicted(θ) − ln logged) / noise)²  +  θᵀ P⁻¹ θ

θ are logarithms of `kernels.profile.factors`, P is what a prediction doubts of them before any log:
what kernels and messages state, and what all err by together where the software was never held
against a step. So one step's time moves everything it is made of by its share of the doubt; three
totals, kernels by group and messages move their own. What the logs did not tell stays out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.calibration.run_parts import LEAST, STRANGE, Part, Run, checked, logged, matching
from oracle.calibration.run_parts import predicted as predicted_parts
from oracle.kernels.profile import Profile, signature
from oracle.kernels.profile.factors import GROUPS, NAMES, Factor, Factors, groups_of
from oracle.kernels.profile.run_file import RunFile, RunPart, RunRow
from oracle.kernels.rows import priced
from oracle.models.model import Model
from oracle.predict.estimate import Estimate
from oracle.predict.evaluate import split
from oracle.readers.logs import InputError
from oracle.spec.doubt import LIBRARY, SCALED, SHORT, WIDTHS
from oracle.spec.options import Options
from oracle.spec.system import System

Floats: TypeAlias = NDArray[np.float64]
# share of the prior doubt below which a factor counts as told: most err together with others, and
# are kept for that; of messages' own doubt nothing may be lost
SOME, TOLD = 0.999, dict.fromkeys(("inside", "between", "shown"), 0.9)
WAITS = 2.0  # factor on a host's dispatch from which the cause is likely something else
WIDEST = 3.0  # largest logarithm of a factor: twenty times


@dataclass(frozen=True)
class RunFit:
    """What logs told: the file of a profile, and notes on what was not used."""

    file: RunFile
    notes: tuple[str, ...] = ()

    @property
    def profile(self) -> Profile:
        return self.file.opened

    def rows(self) -> list[dict[str, object]]:
        """The logged parts beside the predicted ones, as a table."""
        return [
            {"plan": part.plan, "batch": part.batch, "part": part.part, "seconds": part.seconds,
             "spread": part.spread, "before": part.before, "after": part.after}
            for part in self.file.runs
        ]  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        factors = {name: {"times": factor.times, "doubt": factor.doubt}
                   for name, factor in self.file.factors.items()}  # fmt: skip
        return {"runs": self.rows(), "factors": factors, "layers": len(self.file.rows),
                "notes": list(self.notes)}  # fmt: skip


def fit(runs: Sequence[Run], model: Model, system: System, options: Options) -> RunFit:
    """Solve for what the logs can tell of this machine and software."""
    model = model.under(options.software.kernels)
    runs = [checked(run, model) for run in runs]
    options = replace(options, profile=None)
    rows = [row for run in runs for row in _layers(run, model, system, options)]
    plain = Profile(rows={}).on(system.device)
    estimated, before = predicted_parts(runs, model, system, replace(options, profile=plain))
    usable = [(i, part) for i, run in enumerate(runs) for part in _usable(run, model, before[i])]
    notes = [
        f"{run.log.path}: {part.name} is not predicted of this plan, so it tells nothing"
        for number, run in enumerate(runs) for part in logged(run, model)
        if (number, part) not in usable
    ] + [f"{run.log.path}: {note}" for run in runs for note in run.log.notes]  # fmt: skip
    root, names = prior(estimated, runs, before, [part.name for _, part in usable], options)

    def seconds(theta: Floats) -> list[dict[str, float]]:
        factors = {name: Factor(float(np.exp(np.clip(t, -WIDEST, WIDEST))))
                   for name, t in zip(names, theta, strict=True)}  # fmt: skip
        tried = replace(plain, factors=Factors(factors))
        host = replace(options.software.host, times=tried.factors.times("host"))
        software = options.software.but(host=host)
        options_tried = replace(options, profile=tried, software=software)
        return predicted_parts(runs, model, system, options_tried)[1]

    at_first = np.sqrt((root**2).sum(axis=1))
    theta, spread, after = np.zeros(len(root)), root @ root.T, before
    if usable:
        theta, spread, after = _solved(seconds, root, usable)
    doubt = np.sqrt(np.diag(spread))
    factors = {
        names[i]: Factor(float(np.exp(theta[i])), float(doubt[i])) for i in range(len(names))
        if doubt[i] < TOLD.get(names[i], SOME) * at_first[i] or abs(theta[i]) > doubt[i]
    }  # fmt: skip
    order = [names.index(name) for name in factors]
    together = tuple(
        tuple(float(spread[i, j] / (doubt[i] * doubt[j])) for j in order[:k])
        for k, i in enumerate(order) if k
    )  # fmt: skip
    if factors.get("host", Factor()).times > WAITS:
        notes.append("devices wait for their hosts much longer than kernels take to be launched: "
                     "for samples to be read, it may be")  # fmt: skip
    file = RunFile(
        "runs", ", ".join(dict.fromkeys(run.log.path for run in runs)), model.name, system.name,
        system.device.name, options.software.label, options.precision,
        tuple(RunPart(runs[i].plan, runs[i].batch, part.name, part.seconds, part.spread,
                      before[i][part.name], after[i][part.name]) for i, part in usable),
        factors, together, tuple(rows),
    )  # fmt: skip
    return RunFit(file, tuple(notes))


def _usable(run: Run, model: Model, before: Mapping[str, float]) -> list[Part]:
    """The parts that can be held against a prediction; strange ones are refused."""
    parts = []
    smallest = LEAST * before["step"]
    for part in logged(run, model):
        due = before.get(part.name, 0.0)
        if part.seconds <= smallest or due <= smallest:
            continue
        times = part.seconds / due
        if part.name in ("step", "forward", "backward") and not 1 / STRANGE < times < STRANGE:
            seconds = f"its {part.name} of {part.seconds:.3g} s"
            raise InputError(run.log.path, 0, f"{seconds} is {times:.2g} times what is predicted",
                             "is it of this model, plan, batch and unit?")  # fmt: skip
        parts.append(part)
    return parts


def _solved(
    take: Callable[[Floats], list[dict[str, float]]], root: Floats,
    usable: Sequence[tuple[int, Part]],
) -> tuple[Floats, Floats, list[dict[str, float]]]:  # fmt: skip
    """(θ, its covariance, parts as predicted then), from a root of the covariance before."""
    from scipy.optimize import least_squares

    took = np.log([part.seconds for _, part in usable])
    noise = np.array([part.noise for _, part in usable])

    def misfit(u: Floats) -> Floats:
        parts = take(root @ u)
        now = np.log([max(parts[number][part.name], 1e-30) for number, part in usable])
        return np.concatenate([u, (now - took) / noise])

    size = root.shape[1]
    best = least_squares(misfit, np.zeros(size), diff_step=1e-3, max_nfev=20, xtol=1e-3, ftol=1e-3)
    spread = np.linalg.inv(best.jac.T @ best.jac)
    left = best.fun[size:]
    wider = max(1.0, float(np.sqrt(np.mean(left**2))))  # logs that do not agree say less
    theta = root @ best.x
    return theta, wider**2 * root @ spread @ root.T, take(theta)


def prior(
    estimated: Estimate, runs: Sequence[Run], before: Sequence[Mapping[str, float]],
    parts: Sequence[str], options: Options,
) -> tuple[Floats, list[str]]:  # fmt: skip
    """A root of P, (names, causes), and the names of the factors that these runs involve."""
    software, system = options.software, estimated.system
    work = estimated.work[0]
    doubts = work.block.step.uncertainty
    update = doubts.known[2]
    kernels = float(doubts.kernels[work.row])
    updated = float(np.ravel(update.doubts["update"] / update.total)[work.at])
    strange = float(np.hypot(WIDTHS["STEP"], 0.0 if software.held else WIDTHS["SOFTWARE"]))
    hides = 0.0 if software.held else float(np.log1p(WIDTHS["HIDES"]))
    groups_here = {GROUPS[group] for group in groups_of(estimated.model)}
    sigma: dict[str, float] = dict.fromkeys(groups_here, kernels)
    sigma |= {"update": updated, "host": WIDTHS["HOST"]}
    if {"forward", "backward"} & set(parts):
        sigma |= dict.fromkeys(("forward", "backward"), SCALED)
    for name in ("inside", "between"):
        lines = [message for row in estimated.exchange for message in row
                 if (message["group"] > 1) and _between(message, name, system)]  # fmt: skip
        if not lines:
            continue
        rough = max(message["deviation"] / message["exposed"] if message["exposed"] > 0 else 0.0
                    for message in lines)  # fmt: skip
        datasheet = any(message["origin"] not in ("measured", "fitted") for message in lines)
        short = float(np.log1p(SHORT[name])) if datasheet else 0.0
        sigma[name] = float(np.linalg.norm([rough, LIBRARY, hides, short]))
    messages = (message for row in estimated.exchange for message in row)
    if any(message["exposed"] < 0.98 * message["seconds"] for message in messages):
        sigma["shown"] = float(np.hypot(hides, LIBRARY))
    names = [name for name in NAMES if name in sigma]
    shared = [strange if name in (*GROUPS, "update") else 0.0 for name in names]
    return np.column_stack([np.diag([sigma[name] for name in names]), shared]), names


def _between(message: Mapping[str, object], name: str, system: System) -> bool:
    """Whether a message may be sent between nodes, or inside one."""
    outer = bool(float(str(message["group"])) > system.node)
    return outer if name == "between" else not outer


def _layers(run: Run, model: Model, system: System, options: Options) -> list[RunRow]:
    """Rows of layers that were timed; several rows share a layer's time as modelled."""
    if not run.log.layers:
        return []
    shard = split(model, run.parsed, options)
    row_times = priced(shard, system.device, options.precision)
    size = (1, len(model))
    forward = np.broadcast_to(row_times.forward, size)[0]
    backward = np.broadcast_to(row_times.data + row_times.weight, size)[0]
    often = float(np.ravel(shard.segments)[0])
    rows: dict[str, RunRow] = {}
    for name, (ahead, back, _) in run.log.layers.items():
        layer_rows = matching(model, name)
        repeat = model.repeat[layer_rows]
        scale = [
            timing.seconds / often / max(float((modelled[layer_rows] * repeat).sum()), 1e-30)
            for timing, modelled in ((ahead, forward), (back, backward))
        ]
        for row in layer_rows:
            text = signature(shard, row)
            rows[text] = RunRow(
                text, float(forward[row] * scale[0]), float(backward[row] * scale[1]),
                max(ahead.spread, back.spread),
            )  # fmt: skip
    return list(rows.values())

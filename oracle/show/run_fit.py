"""What logs of runs told, as text: predicted and logged, then the factors, then what next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oracle.plan.names import short_names
from oracle.show.layout import fact
from oracle.show.plan_words import UNNAMED
from oracle.show.terminal import fit, laid_out
from oracle.spec.units import show

if TYPE_CHECKING:
    from oracle.calibration.runs import RunFit
    from oracle.kernels.profile.run_file import RunFile, RunPart

WORDS = {
    "gemm": "matrix products", "conv": "convolutions", "attention": "attention",
    "memory": "kernels that wait for memory", "forward": "forward passes",
    "backward": "backward passes", "update": "the update", "host": "the host's dispatch",
    "inside": "messages inside a node", "between": "messages between nodes",
    "shown": "what overlap leaves of messages",
}  # fmt: skip
STEP = "step"  # the part that is the whole of an iteration


def run_fit_text(fitted: RunFit, following: str = "") -> str:
    """Return what a step takes by the logs, as was predicted and as is now, and the factors."""
    file = fitted.file
    software = UNNAMED if file.software == "plain" else file.software
    lines = [
        fit(_answer(file)),
        fit(f"{file.model} on {file.system}, {software}, {file.precision}"),
        *_parts(file.runs),
    ]
    if file.rows:
        lines.append(fact("layers", f"{len(file.rows)} shapes, taken as they were timed"))
    if file.factors:
        rows = [("times as long as modelled", "factor", "1 sigma")]
        rows += [(WORDS[name], f"{factor.times:.3f}", f"± {100 * factor.doubt:.0f} %")
                 for name, factor in file.factors.items()]  # fmt: skip
        lines += laid_out(rows, "<>>", " ")
    untold = [words for name, words in WORDS.items() if name not in file.factors]
    lines.append(fact("as before", f"{', '.join(untold)}: no log told"))
    lines += [fact("note", note) for note in fitted.notes]
    return "\n".join([*lines, *([following] if following else [])])


def _answer(file: RunFile) -> str:
    """Return how long a step was logged to take and predicted to, before and with the logs."""
    if not file.runs:
        return f"{len(file.rows)} shapes of layers were timed, and no whole step"
    part = next((part for part in file.runs if part.part == STEP), file.runs[0])
    name = "a step" if part.part == STEP else part.part
    return (f"Logged {show(part.seconds, 's')} {name}; predicted {show(part.before, 's')} before, "
            f"{show(part.after, 's')} with what the logs say")  # fmt: skip


def _parts(parts: Sequence[RunPart]) -> list[str]:
    """Return a line for each part of each plan that a log timed."""
    rows = [("plan", "batch", "part", "logged", "spread", "predicted", "now")]
    names = short_names([part.plan for part in parts])
    rows += [(name, f"{part.batch:,}", part.part, show(part.seconds, "s"),
              f"{100 * part.spread:.1f} %", show(part.before, "s"), show(part.after, "s"))
             for name, part in zip(names, parts, strict=True)]  # fmt: skip
    return laid_out(rows, "<><>>>>", " ") if parts else []

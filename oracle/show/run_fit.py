"""What logs of runs told, as text: each part before and after, and the factors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oracle.spec.units import show

if TYPE_CHECKING:
    from oracle.calibration.runs import RunFit

WORDS = {
    "gemm": "matrix products", "conv": "convolutions", "attention": "attention",
    "memory": "kernels that wait for memory", "forward": "forward passes",
    "backward": "backward passes", "update": "the update", "host": "the host's dispatch",
    "inside": "messages inside a node", "between": "messages between nodes",
    "shown": "what overlap leaves of messages",
}  # fmt: skip


def text(found: RunFit) -> str:
    """What the logs say beside what was predicted, and what follows from it."""
    file = found.file
    lines = [f"{file.model} on {file.system}, {file.software}, {file.precision}"]
    lines += [f"  {'part':<28}{'logged':>12}{'spread':>8}{'predicted':>12}{'then':>12}  plan"]
    lines += [
        f"  {each.part:<28}{show(each.seconds, 's'):>12}{each.spread:>8.1%}"
        f"{show(each.before, 's'):>12}{show(each.after, 's'):>12}  {each.plan}, batch {each.batch}"
        for each in file.runs
    ]  # fmt: skip
    if file.rows:
        lines.append(f"  {len(file.rows)} shapes of layers, taken as they were timed")
    if file.factors:
        lines += ["times as long as modelled, with what is still not known of it (1σ)"]
        lines += [f"  {WORDS[name]:<34}{each.times:>7.3f} ± {each.doubt:.1%}"
                  for name, each in file.factors.items()]  # fmt: skip
    untold = [words for name, words in WORDS.items() if name not in file.factors]
    lines.append(f"as before, since no log told: {', '.join(untold)}")
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])

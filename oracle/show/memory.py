"""The worst moment of a plan's memory as text: where, when, what is alive, what would lower it."""

from __future__ import annotations

from oracle.ask.explain.memory import Peak
from oracle.predict.estimate import Estimate
from oracle.show.layout import within
from oracle.show.terminal import fit
from oracle.spec.units import show

LINES = 14  # of layers


def memory_text(shown: Estimate, found: Peak) -> str:
    """What is alive at the peak: by kind, by layer; then what would make it less."""
    room = found.capacity - found.total
    left = f"{show(room, 'B')} free" if room >= 0 else f"{show(-room, 'B')} short"
    where = (
        f"stage {found.found.stage} of {found.found.stages}"
        if found.found.stages > 1
        else "each device"
    )
    lines = [
        f"{show(found.total, 'B')} of {show(found.capacity, 'B')} on {where}, {left}",
        f"{shown.model.name} on {shown.system.name}, {found.plan}, batch {shown.batch[0]:.0f}",
        f"when        during {found.when}, {show(found.seconds, 's')} into an iteration of "
        f"{show(found.found.end, 's')}",
        "",
        "alive then",
        *(f"{show(nbytes, 'B'):>11} {nbytes / found.total:4.0%}  {kind}"
          for kind, nbytes in found.by("kind").items()),
        f"{show(found.reserve, 'B'):>11} {found.reserve / found.total:4.0%}  reserve: libraries, "
        "and holes between tensors",
        "",
        "of which layers",
    ]  # fmt: skip
    for one in found.holdings[:LINES]:
        many = f"{one.count} x " if one.count > 1 else ""
        kind = "" if one.what == one.kind else f" ({one.kind})"
        lines.append(f"{show(one.nbytes, 'B'):>11} {one.nbytes / found.total:4.0%}  "
                     f"{one.layer}: {many}{one.what}{kind}")  # fmt: skip
    if more := found.holdings[LINES:]:
        rest = sum(one.nbytes for one in more)
        lines.append(f"{show(rest, 'B'):>11} {rest / found.total:4.0%}  {len(more)} more")
    fixed, grown = found.blocks["fixed"], found.blocks["expandable"]
    lines += [
        "",
        f"holes between tensors, by the rules of PyTorch's allocator: {_holes(fixed.share)} "
        f"({_holes(grown.share)} with expandable_segments)",
    ]
    if found.hints:
        lines += ["", "less memory, and what it costs"]
        own = float(shown.seconds[0])
        for hint in found.hints:
            slower = hint.seconds / own - 1
            cost = f"{abs(slower):.0%} {'slower' if slower >= 0 else 'faster'}"
            lines.append(fit(f"{show(hint.nbytes, 'B'):>11}{'' if hint.fits else ' (too much)'}, "
                             f"{cost}: {hint.plan}", 13))  # fmt: skip
    return within("\n".join(lines))


def _holes(share: float) -> str:
    return f"{max(share, 0.0):.1%}"

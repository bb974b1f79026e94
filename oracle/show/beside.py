"""Lines on a plan beside other jobs."""

from __future__ import annotations

from oracle.ask.beside import Beside
from oracle.spec.units import show


def beside_text(found: Beside) -> str:
    """What it takes beside them, and which exchanges wait for whom."""
    alone = float(found.alone.seconds[0])
    mean, worst = (float(one.seconds[0]) for one in (found.mean, found.worst))
    many = f"{len(found.jobs)} other job" + "s" * (len(found.jobs) != 1)
    each = [f"{show(one, 's')} {how} (+{one / alone - 1:.1%})"
            for one, how in ((mean, "on average"), (worst, "at worst"))]  # fmt: skip
    lines = [f"beside {many}: {', '.join(each)}; alone {show(alone, 's')}"]
    lines += [f"  {name}" for name in found.jobs]
    for what, one in found.messages:
        said = (f"{one.mean:.3g} times as long on average, {one.worst:.3g} at worst: {one.link}"
                if one.link else "shares no link")  # fmt: skip
        lines.append(f"  {what}: {said}")
    return "\n".join(lines)

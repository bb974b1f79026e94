"""Partitions of unlike devices as text: who is busy how long, who waits, what each holds."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.predict.sides import Side
from oracle.spec.units import show


def rooms(sides: Sequence[Side]) -> str:
    """`7.73 of 15.8 GiB on v100, 5.1 of 79.2 GiB on a100`: the fullest device of each."""
    return ", ".join(
        f"{show(one.memory, 'B')} of {show(one.capacity, 'B')} on {one.name}" for one in sides
    )


def table(sides: Sequence[Side]) -> list[str]:
    """A blank line, and one for each partition of a plan; nothing where it is on one alone."""
    if len(sides) < 2:
        return []
    name = max(34, *(len(one.name) + 3 for one in sides))
    lines = ["", f"  {'partition':<{name - 12}} {'devices':>7} {'samples':>8} {'busy':>10} "
             f"{'waits':>10}    memory"]  # fmt: skip
    for one in sides:
        label = f"{one.number} {one.name}"
        lines.append(f"    {label:<{name - 14}} {one.devices:>7} {one.samples:>8g} "
                     f"{show(one.busy, 's'):>10} {show(one.waits, 's'):>10}    "
                     f"{show(one.memory, 'B')} of {show(one.capacity, 'B')}")  # fmt: skip
    return lines

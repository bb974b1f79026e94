"""Seconds of a collective operation by one algorithm, linear in its bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oracle.network.arrays import Floats
from oracle.spec.doubt import DATASHEET, SHORT


@dataclass(frozen=True, slots=True)
class CostLine:
    """Cost of one operation by one algorithm: start + per_byte · m seconds."""

    algorithm: str
    start: float
    per_byte: float  # seconds per byte of the message
    phi: float = 1.0  # how many times slower than if each flow had its links to itself
    full: tuple[str, ...] = ()  # names of the links that set the pace
    origin: str = "datasheet"  # or "fitted", "assumed"
    uncertainty: float = DATASHEET  # relative, one standard deviation
    short: float = SHORT["inside"]  # likewise, of what it can only take longer
    sizes: tuple[float, ...] = ()  # bytes of the smallest and largest message measured
    outside: bool = True  # no measurement covers groups like these

    def joined(self, second: CostLine) -> CostLine:
        """Return the line of an operation over two networks: the slower one's start and bytes."""
        slow = max(self, second, key=lambda line: (line.per_byte, line.start))
        return replace(
            slow, start=max(self.start, second.start), per_byte=max(self.per_byte, second.per_byte),
            uncertainty=max(self.uncertainty, second.uncertainty),
            short=max(self.short, second.short), outside=self.outside or second.outside,
        )  # fmt: skip


class Offer(tuple[CostLine, ...]):
    """Every line on offer for one operation of one pattern of groups."""

    @cached_property
    def cheapest(self) -> tuple[CostLine, ...]:
        """The lines that are cheapest at some size, by what they cost to start."""
        frontier: list[CostLine] = []
        for line in sorted(self, key=lambda line: (line.start, line.per_byte)):
            if not frontier or line.per_byte < frontier[-1].per_byte:
                frontier.append(line)
        return tuple(frontier)

    @cached_property
    def numbers(self) -> Floats:
        """(8, cheapest): start, per byte, φ, uncertainty, sizes measured (2), outside, short."""
        sizes = [(line.sizes[0], line.sizes[-1]) if line.sizes else (0.0, np.inf)
                 for line in self.cheapest]  # fmt: skip
        return np.array(
            [(line.start, line.per_byte, line.phi, line.uncertainty, *size, line.outside,
              line.short)
             for line, size in zip(self.cheapest, sizes, strict=True)], float,
        ).reshape(-1, 8).T  # fmt: skip


def slowest(first: Offer, second: Offer) -> Offer:
    """Return the offer to groups on two networks: lines of the same algorithm, if they have one."""
    if first == second:
        return first
    pairs = [(a, b) for a in first for b in second]
    alike = [(a, b) for a, b in pairs if a.algorithm == b.algorithm]
    return Offer(a.joined(b) for a, b in alike or pairs)

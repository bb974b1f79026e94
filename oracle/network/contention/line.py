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

    def beside(self, other: CostLine) -> CostLine:
        """That of an operation which takes both networks: the slower of either in each part."""
        slow = max(self, other, key=lambda line: (line.per_byte, line.start))
        return replace(
            slow, start=max(self.start, other.start), per_byte=max(self.per_byte, other.per_byte),
            uncertainty=max(self.uncertainty, other.uncertainty),
            short=max(self.short, other.short), outside=self.outside or other.outside,
        )  # fmt: skip


class Offer(tuple[CostLine, ...]):
    """Every line on offer for one operation of one pattern of groups."""

    @cached_property
    def cheapest(self) -> tuple[CostLine, ...]:
        """The lines that are cheapest at some size, by what they cost to start."""
        kept: list[CostLine] = []
        for line in sorted(self, key=lambda line: (line.start, line.per_byte)):
            if not kept or line.per_byte < kept[-1].per_byte:
                kept.append(line)
        return tuple(kept)

    @cached_property
    def numbers(self) -> Floats:
        """(8, lines) of those: start, per byte, φ, uncertainty, sizes measured, outside, short."""
        sizes = [(line.sizes[0], line.sizes[-1]) if line.sizes else (0.0, np.inf)
                 for line in self.cheapest]  # fmt: skip
        return np.array(
            [(line.start, line.per_byte, line.phi, line.uncertainty, *size, line.outside,
              line.short)
             for line, size in zip(self.cheapest, sizes, strict=True)], float,
        ).reshape(-1, 8).T  # fmt: skip


def slowest(one: Offer, other: Offer) -> Offer:
    """What is on offer to groups on two networks: by the same algorithm, if they have one."""
    if one == other:
        return one
    pairs = [(a, b) for a in one for b in other]
    alike = [(a, b) for a, b in pairs if a.algorithm == b.algorithm]
    return Offer(a.beside(b) for a, b in alike or pairs)

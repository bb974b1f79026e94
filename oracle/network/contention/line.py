"""Seconds of a collective operation by one algorithm, linear in its bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CostLine:
    """Cost of one operation by one algorithm: start + per_byte · m seconds."""

    algorithm: str
    start: float
    per_byte: float  # seconds per byte of the message
    phi: float = 1.0  # how many times slower than if each flow had its links to itself
    full: tuple[str, ...] = ()  # names of the links that set the pace
    origin: str = "datasheet"  # or "fitted", "assumed"
    uncertainty: float = 0.3  # relative, one standard deviation
    sizes: tuple[float, ...] = ()  # bytes of the smallest and largest message measured
    outside: bool = True  # no measurement covers groups like these

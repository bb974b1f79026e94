"""Slowdown of messages by other jobs on the same network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oracle.network.contention.groups import Pattern, seated, spanning_level
from oracle.network.contention.line import Offer
from oracle.spec.system import System


def interference(system: System, pattern: Pattern, devices: int) -> tuple[float, float]:
    """(p50, p99) factors by which other jobs slow these groups down; they widen, never shift.

    Those of the outermost level that the groups cross, (1, 1) where the system gives none
    [chunduri2019].
    """
    system, groups = seated(system, pattern, devices)
    factors: tuple[float, ...] = (1.0, 1.0)
    if groups.p > 1:
        for level in system.levels[: spanning_level(system, groups) + 1]:
            factors = level.interference or factors
    return float(factors[0]), float(factors[-1])


RANKS = 1.6449 / 2.3263  # standard deviations of the 95th percentile over those of the 99th


def among_others(lines: Callable[..., Offer]) -> Callable[..., Offer]:
    """Lines as slow as other jobs make them, 95 % of the time.

        factor = p50 (p99 / p50)^(1.64 / 2.33)        of a lognormal with these percentiles

    Messages that stay below the levels that others use keep their seconds.
    """

    def slowed(system: System, op: str, pattern: Pattern, devices: int, *more: object) -> Offer:
        half, most = interference(system, pattern, devices)
        factor = max(1.0, half * (most / half) ** RANKS)
        return Offer(
            replace(line, start=line.start * factor, per_byte=line.per_byte * factor)
            for line in lines(system, op, pattern, devices, *more)
        )

    return slowed

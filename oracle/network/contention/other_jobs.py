"""Slowdown of messages by other jobs on the same network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oracle.network.contention.groups import Pattern, seated, spanning_level
from oracle.network.contention.line import Offer
from oracle.spec.level import INTERFERENCE
from oracle.spec.system import System

PAIRS = ("sendrecv", "halo")


def interference(
    system: System, pattern: Pattern, devices: int, short: str = ""
) -> tuple[float, float]:
    """Return the (p50, p99) factors by which other jobs slow these groups down.

    They are those of the outermost level that the groups cross, (1, 1) where the system gives none
    [chunduri2019]. With an operation as `short`, they are of its start, else of its bytes. They
    widen a prediction and never shift it.
    """
    system, groups = seated(system, pattern, devices)
    factors: tuple[float, ...] = (1.0, 1.0)
    key = "interference_pairs" if short in PAIRS else "interference_collectives"
    if groups.p > 1:
        for level in system.levels[: spanning_level(system, groups) + 1]:
            factors = (getattr(level, key) if short else ()) or level.interference or factors
    return float(factors[0]), float(factors[-1])


def slows(system: System) -> bool:
    """Whether other jobs are said to make any message longer."""
    return any(factor > 1 for level in system.levels for name in INTERFERENCE
               for factor in getattr(level, name))  # fmt: skip


RANKS = 1.6449 / 2.3263  # standard deviations of the 95th percentile over those of the 99th


def among_others(lines: Callable[..., Offer]) -> Callable[..., Offer]:
    """Return lines that are as slow as other jobs make them, 95 % of the time.

        factor = p50 (p99 / p50)^(1.64 / 2.33)        of a lognormal with these percentiles

    Messages that stay below the levels that others use keep their seconds.
    """

    def slowed(system: System, op: str, pattern: Pattern, devices: int, *more: object) -> Offer:
        start_factor, byte_factor = (
            max(1.0, p50 * (p99 / p50) ** RANKS)
            for p50, p99 in (interference(system, pattern, devices, short) for short in (op, ""))
        )
        return Offer(
            replace(line, start=line.start * start_factor, per_byte=line.per_byte * byte_factor)
            for line in lines(system, op, pattern, devices, *more)
        )

    return slowed

"""Slowdown of messages by other jobs on the same network."""

from __future__ import annotations

from oracle.network.contention.groups import Pattern, RankGroups, spanning_level
from oracle.spec.system import System


def interference(system: System, pattern: Pattern, devices: int) -> tuple[float, float]:
    """(p50, p99) factors by which other jobs slow these groups down; they widen, never shift.

    Those of the outermost level that the groups cross, (1, 1) where the system gives none
    [chunduri2019].
    """
    groups = RankGroups.of(pattern, devices)
    factors: tuple[float, ...] = (1.0, 1.0)
    if groups.p > 1:
        for level in system.levels[: spanning_level(system, groups) + 1]:
            factors = level.interference or factors
    return float(factors[0]), float(factors[-1])

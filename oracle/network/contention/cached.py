"""Cost of each algorithm on a system, counted once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from oracle.network.collectives import ALGORITHMS, Algorithm
from oracle.network.contention.cost import Cost, schedule_costs
from oracle.network.contention.groups import RankGroups
from oracle.network.contention.ring_sets import laid_out
from oracle.network.topology import Topology
from oracle.spec.system import System

LARGEST = 30_000  # results kept of one system: a sweep asks for ever new ones
_CACHES: WeakKeyDictionary[System, dict[object, Any]] = WeakKeyDictionary()
Key: TypeAlias = tuple[object, ...]


def cache_of(system: System) -> dict[object, Any]:
    """What was found for a system; dropped with the system, or when it gets too long."""
    known = _CACHES.setdefault(system, {})
    if len(known) > LARGEST:
        known.clear()
    return known


def algorithm_costs(
    system: System, topology: Topology, groups: RankGroups, inner: int, offer: Sequence[Algorithm],
    which: Key,
) -> list[Cost]:  # fmt: skip
    """Cost of each algorithm; schedules that several operations share are counted once."""
    known = cache_of(system)
    keys = [("cost", by.like[0] or by.op, by.name, groups.pattern, groups.devices,
             groups.seating, which)
            for by in offer]  # fmt: skip
    if new := [k for k, key in enumerate(keys) if key not in known]:
        bases = [ALGORITHMS[by.like[0]][by.name] if by.like[0] else by for by in offer]
        schedules = [laid_out(bases[k], topology, groups, inner) for k in new]
        for k, cost in zip(new, schedule_costs(topology, groups, schedules), strict=True):
            known[keys[k]] = cost
    return [known[key].repeated(by.like[1]) for by, key in zip(offer, keys, strict=True)]

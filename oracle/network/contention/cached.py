"""Cost of each algorithm on a system, counted once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from oracle.network.collectives import ALGORITHMS, Algorithm
from oracle.network.contention.counting.ring_sets import laid_out
from oracle.network.contention.counting.schedules import Cost, schedule_costs
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology
from oracle.spec.system import System

LARGEST = 30_000  # results kept of one system: a sweep asks for ever new ones
_CACHES: WeakKeyDictionary[System, dict[object, Any]] = WeakKeyDictionary()
Key: TypeAlias = tuple[object, ...]


def cache_of(system: System) -> dict[object, Any]:
    """Return the results of a system; they are dropped with it, or when they are too many."""
    cache = _CACHES.setdefault(system, {})
    if len(cache) > LARGEST:
        cache.clear()
    return cache


def algorithm_costs(
    system: System, topology: Topology, groups: RankGroups, inner: int, offer: Sequence[Algorithm],
    network_key: Key,
) -> list[Cost]:  # fmt: skip
    """Return the cost of each algorithm; schedules that operations share are counted once.

    `network_key` tells the network from others of the same system.
    """
    cache = cache_of(system)
    keys = [("cost", by.like[0] or by.op, by.name, groups.pattern, groups.devices,
             groups.seating, network_key)
            for by in offer]  # fmt: skip
    if new := [k for k, key in enumerate(keys) if key not in cache]:
        bases = [ALGORITHMS[by.like[0]][by.name] if by.like[0] else by for by in offer]
        schedules = [laid_out(bases[k], topology, groups, inner) for k in new]
        for k, cost in zip(new, schedule_costs(topology, groups, schedules), strict=True):
            cache[keys[k]] = cost
    return [cache[key].repeated(by.like[1]) for by, key in zip(offer, keys, strict=True)]

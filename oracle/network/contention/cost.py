"""What a schedule costs on a network, all groups running it at once, before any price list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from oracle.network.collectives import ALGORITHMS, Algorithm, Steps
from oracle.network.contention.groups import Groups
from oracle.network.contention.loads import toll
from oracle.network.contention.path import longest, uneven
from oracle.network.contention.toll import Toll
from oracle.network.topology import Topology
from oracle.spec.system import System


@dataclass(frozen=True, slots=True)
class Line:
    """The price of one operation by one algorithm: start + per_byte · m seconds."""

    algorithm: str
    start: float
    per_byte: float  # seconds per byte of the message
    phi: float = 1.0  # how many times slower than if each flow had its links to itself
    full: tuple[str, ...] = ()  # names of the links that set the pace
    origin: str = "datasheet"  # or "fitted", "assumed"
    uncertainty: float = 0.3  # relative, one standard deviation
    sizes: tuple[float, ...] = ()  # bytes of the smallest and largest message measured
    outside: bool = True  # no measurement covers groups like these


@dataclass(frozen=True, eq=False)
class Cost:
    """What a schedule costs on a network, before any latency is put in."""

    tolls: Sequence[Toll]
    start: float
    per_byte: float
    phi: float
    full: tuple[str, ...]
    again: float = 1.0  # how often the schedule is run

    def waits(self, latency: Any, pipelined: bool) -> float:
        """Seconds to start at the given α of each level."""
        once = (t.chased(latency) if pipelined else t.stepped(latency) for t in self.tolls)
        return self.again * sum(once)

    def times(self, count: float) -> Cost:
        """The same schedule run so many times."""
        if count == 1.0:
            return self
        return replace(self, start=self.start * count, per_byte=self.per_byte * count,
                       again=self.again * count)  # fmt: skip


def trace(
    topology: Topology, groups: Groups, schedule: Sequence[Steps], reduce: bool = True
) -> Cost:
    """What a schedule costs, every group running it at once.

        T = Σ_steps times · (max α + m · max over links of load / capacity)

    Where some ranks sit out a step, the sum runs along the longest chain of steps instead
    (`path`). `full` names the links that set the pace of a tenth of the time or more.
    """
    return traces(topology, groups, [schedule], reduce)[0]


def traces(
    topology: Topology, groups: Groups, schedules: Sequence[Sequence[Steps]], reduce: bool = True
) -> list[Cost]:
    """Several schedules of the same groups, counted in one go."""
    tolls = iter(toll(topology, groups, [s for each in schedules for s in each], reduce))
    found = [_cost(topology, [next(tolls) for _ in each]) for each in schedules]
    return [
        _relieved(cost, longest(topology, groups, schedule, reduce))
        if uneven(schedule, groups.p)
        else cost
        for cost, schedule in zip(found, schedules, strict=True)
    ]


def _relieved(cost: Cost, per_byte: float) -> Cost:
    """The cost where ranks that sit a step out are ahead of the others."""
    solo = cost.per_byte / cost.phi
    return replace(cost, per_byte=per_byte, phi=per_byte / solo if solo else 1.0)


def _cost(topology: Topology, tolls: list[Toll]) -> Cost:
    start = sum(float(t.times @ t.alpha) for t in tolls)
    solo = sum(float(t.times @ t.solo) for t in tolls)
    shared = np.concatenate([t.times * t.shared for t in tolls])
    worst = np.concatenate([t.worst for t in tolls])
    per_byte = float(shared.sum())
    full: dict[str, float] = {}
    for link, seconds in zip(worst.tolist(), shared.tolist(), strict=True):
        if link < topology.links:
            name = topology.labels[link]
            full[name] = full.get(name, 0.0) + seconds
    pace = sorted(full, key=lambda name: -full[name])
    return Cost(tolls, start, per_byte, per_byte / solo if solo else 1.0,
                tuple(name for name in pace if full[name] >= 0.1 * per_byte))  # fmt: skip


MOST = 30_000  # prices remembered of one system: a sweep asks for ever new ones
_KNOWN: WeakKeyDictionary[System, dict[object, Any]] = WeakKeyDictionary()
Key: TypeAlias = tuple[object, ...]


def memory(system: System) -> dict[object, Any]:
    """What is known of a system already; it goes when the system goes, or gets too long."""
    known = _KNOWN.setdefault(system, {})
    if len(known) > MOST:
        known.clear()
    return known


def spanning(system: System, groups: Groups) -> int:
    """The lowest level that holds every group whole."""
    reach, last = int(groups.offsets[-1]), len(system.levels) - 1
    for depth, level in enumerate(system.levels):
        even = level.devices % groups.block == 0 or groups.devices <= level.devices
        if reach < level.devices and even:
            return depth
    return last


def nest(system: System) -> int:
    """Devices that are joined most closely, in a node or a socket of it; 1 where none are.

    Rings and hierarchies go round these before they leave them.
    """
    return system.levels[0].devices if system.inside else 1


def costs(
    system: System, topology: Topology, groups: Groups, inner: int, offer: Sequence[Algorithm],
    which: Key,
) -> list[Cost]:  # fmt: skip
    """What each algorithm costs; schedules that several operations share are counted once."""
    known = memory(system)
    keys = [("cost", by.like[0] or by.op, by.name, groups.pattern, groups.devices, which)
            for by in offer]  # fmt: skip
    new = [k for k, key in enumerate(keys) if key not in known]
    bases = [ALGORITHMS[by.like[0]][by.name] if by.like[0] else by for by in offer]
    fresh = (
        traces(topology, groups, [bases[k].schedule(groups.p, inner) for k in new]) if new else []
    )
    for k, cost in zip(new, fresh, strict=True):
        known[keys[k]] = cost
    return [known[key].times(by.like[1]) for by, key in zip(offer, keys, strict=True)]

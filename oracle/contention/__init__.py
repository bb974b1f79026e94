"""What α and β a group of devices sees when every such group talks at once.

`lines` prices one operation of one pattern of groups on a system: seconds = start + per_byte · m
for each algorithm on offer. Contention is counted, not assumed: the flows of all groups are laid
on the links of the network, and the fullest link sets each step's pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from oracle.collectives import Algorithm, Steps, menu, named
from oracle.contention.groups import Groups, Pattern
from oracle.contention.loads import Toll, toll
from oracle.specs import System
from oracle.topology import Topology, of


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


Cost: TypeAlias = tuple[float, float, float, tuple[str, ...]]


def trace(topology: Topology, groups: Groups, schedule: list[Steps], reduce: bool = True) -> Cost:
    """(seconds to start, seconds per byte, φ, links that set the pace) of a schedule.

        T = Σ_steps times · (max α + m · max over links of load / capacity)

    The links reported are those of the costliest step, and any that set as much as a tenth.
    """
    return traces(topology, groups, [schedule], reduce)[0]


def traces(
    topology: Topology, groups: Groups, schedules: Sequence[list[Steps]], reduce: bool = True
) -> list[Cost]:
    """Several schedules of the same groups, counted in one go."""
    tolls = iter(toll(topology, groups, [s for each in schedules for s in each], reduce))
    return [_cost(topology, [next(tolls) for _ in each]) for each in schedules]


def _cost(topology: Topology, tolls: list[Toll]) -> Cost:
    start = sum(float(t.times @ t.alpha) for t in tolls)
    solo = sum(float(t.times @ t.solo) for t in tolls)
    shared = np.concatenate([t.times * t.shared for t in tolls])
    worst = np.concatenate([t.worst for t in tolls])
    per_byte = float(shared.sum())
    full: dict[str, float] = {}
    labels = topology.labels
    for link in np.unique(worst).tolist():
        if link < topology.links:
            name = labels[link]
            full[name] = full.get(name, 0.0) + float(shared[worst == link].sum())
    pace = sorted(full, key=lambda name: -full[name])
    return (
        start,
        per_byte,
        per_byte / solo if solo else 1.0,
        tuple(name for name in pace if full[name] >= 0.1 * per_byte),
    )


_PRICED: WeakKeyDictionary[System, dict[object, tuple[Line, ...]]] = WeakKeyDictionary()


def lines(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None
) -> tuple[Line, ...]:
    """Every algorithm on offer (or the named one) for groups of `pattern` among `devices`."""
    key = ("lines", op, pattern, devices, algorithm)
    known = _PRICED.setdefault(system, {})
    if key not in known:
        known[key] = tuple(_lines(system, op, pattern, devices, algorithm))
    return known[key]


def _lines(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None
) -> list[Line]:
    groups = Groups(tuple(pair for pair in pattern if pair[0] > 1), devices)
    if groups.p == 1:
        return [Line(algorithm or "none", 0.0, 0.0, origin="datasheet", uncertainty=0.0)]
    topology, inner = of(system, devices), groups.inner(system.node)
    offer = [_fitting(op, algorithm, groups.p, inner)] if algorithm else menu(op, groups.p, inner)
    costs = traces(topology, groups, [each.schedule(groups.p, inner) for each in offer])
    return [Line(each.name, *cost) for each, cost in zip(offer, costs, strict=True)]


def _fitting(op: str, name: str, p: int, inner: int) -> Algorithm:
    algorithm = named(op, name)
    if not algorithm.fits(p, inner):
        raise ValueError(f"{op} by {name} does not serve {p} ranks, {inner} to a node")
    return algorithm


def alone(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None
) -> tuple[Line, ...]:
    """The ideal: the ring's closed form with α and β of the lowest level that spans the group.

    No other group talks (φ = 1), one link of that level carries each flow [kahira2021].
    """
    key = ("alone", op, pattern, devices, algorithm)
    known = _PRICED.setdefault(system, {})
    if key not in known:
        groups = Groups(tuple(pair for pair in pattern if pair[0] > 1), devices)
        if groups.p == 1:
            known[key] = (Line("none", 0.0, 0.0, uncertainty=0.0),)
        else:
            extent = int(groups.offsets[-1]) + 1
            at = next(level for level in system.levels if level.devices >= extent)
            known[key] = (_ideal(named(op, algorithm) if algorithm else _plain(op), groups.p,
                                 at.latency, 1 / at.bandwidth, at.name),)  # fmt: skip
    return known[key]


def _plain(op: str) -> Algorithm:
    """The algorithm of the ideal table: a ring, or whatever the operation's plainest is."""
    plain = {"alltoall": "pairwise", "sendrecv": "direct", "halo": "pairwise"}
    return named(op, plain.get(op, "ring"))


def _ideal(algorithm: Algorithm, p: int, alpha: float, beta: float, where: str) -> Line:
    return Line(algorithm.name, float(algorithm.steps(p)) * alpha,
                float(algorithm.volume(p)) * beta, 1.0, (where,))  # fmt: skip


__all__ = ["Groups", "Line", "Pattern", "alone", "lines", "trace", "traces"]

"""Lines as slow as a level was measured to make them, by the nodes that a message spans.

    φ(n) = measured / modelled seconds of a byte of the same operation on n nodes    [kahira2021]

Networks of many nodes give less than their sheets say, the less the more nodes talk, and not
always as much. Between the numbers of nodes that were measured log φ runs straight on log n;
beyond them it stays. A message of short parts is as much slower as a long one: nobody measured
those by nodes, so one of an operation that the library was never fitted to may take as much longer
as libraries' constants fall short of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import exp, hypot, log

import numpy as np

from oracle.network.contention.cached import Key, cache_of
from oracle.network.contention.groups import RankGroups, spanning_level
from oracle.network.contention.line import CostLine
from oracle.spec.by_nodes import ByNodes
from oracle.spec.doubt import AGAIN, NINETY, OPERATION, SHORT
from oracle.spec.level import Level
from oracle.spec.system import System

Model = Callable[[System, str, RankGroups], Iterable[CostLine]]
COUSINS = {"allgather": "reduce_scatter", "reduce_scatter": "allgather", "reduce": "allreduce"}
PASSES = {"allreduce": 2.0}  # of all but a rank's own part; others are sent once


@dataclass(frozen=True)
class Slowdown:
    """How many times as long messages take, and the same at their best and worst moments."""

    median: float
    best: float  # 95th percentile of bandwidth
    worst: float  # 5th percentile
    beyond: float  # 1σ on top, of another operation
    sizes: tuple[float, float]  # of the smallest and the largest message measured
    measured: bool  # among numbers of nodes of this operation that were measured

    @property
    def faster(self) -> float:
        """1σ towards shorter times, relative."""
        return max(AGAIN, log(self.median / self.best) / NINETY)

    @property
    def slower(self) -> float:
        """1σ of what is longer still at bad moments."""
        return max(AGAIN, (self.worst / self.median - 1) / NINETY - self.faster)


def slowed(system: System, op: str, groups: RankGroups, model: Model) -> Iterator[CostLine]:
    """Yield the lines that a model has for groups, as slow as their level was measured to be."""
    level = system.levels[spanning_level(system, groups)]
    if not level.by_nodes or groups.p == 1:
        yield from model(system, op, groups)
        return
    slowdown = slowdown_of(system, level, op, *nodes_of(system, groups), model)
    times, short = slowdown.median, slowdown.slower
    if not any(op in library.operations for library in system.library
               if library.level == level.name):  # fmt: skip
        short = hypot(short, SHORT["inside"])  # what a library's constants fall short by
    for line in model(system, op, groups):
        yield replace(
            line, per_byte=line.per_byte * times, phi=line.phi * times,
            origin="fitted", uncertainty=slowdown.faster + slowdown.beyond,
            short=short, sizes=slowdown.sizes, outside=not slowdown.measured,
        )  # fmt: skip


def nodes_of(system: System, groups: RankGroups) -> tuple[int, int]:
    """Return how many nodes a group spans, and the most ranks that it has in one of them."""
    bases = groups.bases() if groups.device is not None else np.zeros(1, np.int64)
    homes = groups.devices_of(bases[:, None] + groups.offsets) // system.node
    counts = [np.unique(home, return_counts=True)[1] for home in homes]
    return max(map(len, counts)), max(int(count.max()) for count in counts)


def slowdown_of(
    system: System, level: Level, op: str, nodes: int, ranks: int, model: Model
) -> Slowdown:
    """Return how much slower messages of an operation across so many nodes are than modelled."""
    points, beyond = _points(level, op)
    nearest = min(points, key=lambda point: abs(log(_ranks(system, point) / ranks)))
    alike = sorted((point for point in points if _ranks(system, point) == _ranks(system, nearest)),
                   key=lambda point: point.nodes)  # fmt: skip
    median = [_times(system, level, point, model) for point in alike]
    best = [at * point.bandwidth / (point.high or point.bandwidth)
            for at, point in zip(median, alike, strict=True)]  # fmt: skip
    worst = [at * point.bandwidth / (point.low or point.bandwidth)
             for at, point in zip(median, alike, strict=True)]  # fmt: skip
    counts = [log(point.nodes) for point in alike]
    like_nodes = nodes * ranks / _ranks(system, nearest)  # of a group with as many ranks in each
    at_nodes = [exp(np.interp(log(like_nodes), counts, np.log(times)))
                for times in (median, best, worst)]  # fmt: skip
    inside = alike[0].nodes <= like_nodes <= alike[-1].nodes
    sizes = [point.size for point in alike]
    at, fast, slow = at_nodes
    return Slowdown(at, fast, slow, beyond, (min(sizes), max(sizes)), inside and not beyond)


def _points(level: Level, op: str) -> tuple[list[ByNodes], float]:
    """Measurements that speak for an operation, and the doubt for want of its own."""
    for name, beyond in ((op, 0.0), (COUSINS.get(op, "allgather"), OPERATION)):
        if points := [point for point in level.by_nodes if point.op == name]:
            return points, beyond
    first = level.by_nodes[0].op
    return [point for point in level.by_nodes if point.op == first], OPERATION


def _ranks(system: System, point: ByNodes) -> int:
    return point.ranks or system.node


def _seconds(system: System, point: ByNodes) -> float:
    """Return what a measured message took: bus bandwidths are of what each rank's link carries."""
    p = point.nodes * _ranks(system, point)
    parts = 1.0 if point.op in ("sendrecv", "broadcast", "reduce") else (p - 1) / p
    return PASSES.get(point.op, 1.0) * parts * point.size / point.bandwidth - point.beside


def _times(system: System, level: Level, point: ByNodes, model: Model) -> float:
    """Return how many times as long a byte takes as modelled where nobody else talks, remembered.

    So that the fastest line of the model takes what was measured: start + φ per_byte m.
    """
    known = cache_of(system)
    key: Key = ("by nodes", level.name, point)
    if key not in known:
        ranks = _ranks(system, point)
        numbers = np.arange(point.nodes * ranks)
        device = None if ranks == system.node else numbers // ranks * system.node + numbers % ranks
        groups = RankGroups(((len(numbers), 1),), len(numbers), device)
        measured = _seconds(system, point)
        known[key] = max(
            max(measured - line.start, 0.5 * measured) / (line.per_byte * point.size)
            for line in model(system, point.op, groups)
        )
    times: float = known[key]
    return times

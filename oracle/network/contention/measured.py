"""Cost lines from calibrated entries: α and β as measured, contention counted on top."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from inspect import signature
from math import log

import numpy as np

from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS, Algorithm, named
from oracle.network.collectives.dispatch import ByExperts
from oracle.network.contention.cached import Key, algorithm_costs, cache_of
from oracle.network.contention.counting.ring_sets import laid_out
from oracle.network.contention.counting.schedules import Cost, schedule_cost
from oracle.network.contention.groups import RankGroups, closest_devices, spanning_level
from oracle.network.contention.line import CostLine
from oracle.network.topology import network_of
from oracle.spec.doubt import AGAIN, FOLD, OPERATION
from oracle.spec.system import Calibrated, System


def fitted(
    system: System, op: str, groups: RankGroups, inner: int, algorithm: str | None
) -> Iterator[CostLine]:
    """Yield lines from calibrated entries: measured α and β, and the φ of these groups on top.

    A supposed machine has other links than the measured one: α goes with its level's latency, β
    with what the links of either let the algorithm have.
    """
    p, to_a_node = groups.p, groups.inner(system.node)
    for entry, doubt in _entries(system, op, groups, algorithm):
        form = named(op, entry.algorithm)
        cost = _bare_cost(system, op, _as_run(system, op, entry.algorithm, p, inner), groups, inner)
        low, high = (*entry.ranks, p, p)[:2]
        measured_p = min(max(p, low), high)  # its bandwidth was measured at no other rank count
        measured_cost, measured_inner = _measured(system, op, entry, measured_p)
        start = entry.base + _counted(form, "steps", p, to_a_node) * entry.latency
        if (measured_latency := _latency(system.as_calibrated, entry.level)) > 0:
            start *= _latency(system, entry.level) / measured_latency
        volume = _counted(form, "volume", measured_p, measured_inner)
        slope = volume / entry.bandwidth * cost.per_byte / measured_cost.per_byte
        measured_doubts = [entry.uncertainty.get(name, 0.0) for name in ("bandwidth", "residual")]
        yield CostLine(entry.algorithm, start, slope, cost.phi, cost.full, "fitted",
                   min(1.0, doubt + max(AGAIN, *measured_doubts)), 0.0, entry.sizes,
                   doubt > 0)  # fmt: skip


def _latency(system: System, name: str) -> float:
    """α of the named level."""
    return next(level.latency for level in system.levels if level.name == name)


def _measured(system: System, op: str, entry: Calibrated, p: int) -> tuple[Cost, int]:
    """Return what an entry's algorithm cost when it was measured, and its ranks of a node.

    Groups were packed on whole nodes, alone on the network. With `concurrency` groups at once they
    were dealt round the ranks. Ranks that would fit below the entry's level were on two units of
    it: two ranks between nodes were not on one node.
    """
    then, concurrency = system.as_calibrated, max(1, round(entry.concurrency))
    cache = cache_of(then)
    key: Key = ("measured", op, entry.level, entry.algorithm, p, concurrency)
    if key not in cache:
        groups = _placed(then, entry.level, p, concurrency)
        inner = groups.inner(closest_devices(then))
        by = _as_run(then, op, entry.algorithm, p, inner)
        graph = network_of(then, 1 + int(groups.devices_of(np.arange(groups.devices)).max()))
        cost = schedule_cost(graph, groups, laid_out(by, graph, groups, inner))
        cache[key] = cost, groups.inner(then.node)
    measured: tuple[Cost, int] = cache[key]
    return measured


def _placed(system: System, name: str, p: int, concurrency: int) -> RankGroups:
    """Groups of p ranks, dealt round the ranks, on devices that meet at the named level."""
    ranks = np.arange(p * concurrency)
    depth = next(k for k, level in enumerate(system.levels) if level.name == name)
    unit = system.levels[depth - 1].devices if depth else 1
    half = -(-len(ranks) // 2)
    device = ranks // half * unit + ranks % half if len(ranks) <= unit else None
    return RankGroups(((p, concurrency),), len(ranks), device)


def _bare_cost(system: System, op: str, by: Algorithm, groups: RankGroups, inner: int) -> Cost:
    """What an algorithm costs on the bare network, remembered."""
    return algorithm_costs(system, network_of(system, groups.reach), groups, inner, [by], ())[0]


def _as_run(system: System, op: str, name: str, p: int, inner: int) -> Algorithm:
    """The algorithm behind the name of a measured line.

    Rings take every way out of a node that they can; where the library is known to have rings
    and trees only, a line that some other form fits best was a tree.
    """
    by, offer = named(op, name), ALGORITHMS[op]
    if name not in ("ring", "rings") and "double_tree" in offer and nccl.serves(system):
        by = offer["double_tree"]
    elif name in ("ring", "rings"):
        by = offer.get("rings", by)
    return by if by.fits(p, inner) else offer.get("ring", by)


@cache
def _by_node(kind: type[Algorithm]) -> bool:
    """Whether the closed form depends on how many ranks share a node."""
    return "q" in signature(kind.steps).parameters


def _counted(by: Algorithm, quantity: str, p: int, inner: int) -> float:
    """Steps or volume among p ranks, `inner` of them to a node."""
    count = getattr(by, quantity)
    return float(count(p, inner) if _by_node(type(by)) else count(p))


def _entries(
    system: System, op: str, groups: RankGroups, algorithm: str | None
) -> Iterator[tuple[Calibrated, float]]:
    """Yield the entry of each protocol that speaks for these groups, and the doubt on top.

    It is the one that was measured at the nearest number of ranks.
    """
    depth, cache = spanning_level(system, groups), cache_of(system)
    key: Key = ("entries", op, depth, algorithm)
    if key not in cache:
        cache[key] = _entries_for_level(system, op, depth, algorithm)
    by_protocol, doubt = cache[key]
    for entries in by_protocol:
        distances = [rank_distance(entry.ranks, groups.p) for entry in entries]
        nearest = min(distances)
        yield entries[distances.index(nearest)], doubt + FOLD * nearest


def measured_at(system: System, op: str, groups: RankGroups) -> bool:
    """Whether entries of this very operation were measured at so many ranks."""
    return any(entry.op == op and not rank_distance(entry.ranks, groups.p)
               for entry, _ in _entries(system, op, groups, None))  # fmt: skip


def rank_distance(ranks: tuple[int, ...], p: int) -> float:
    """How far p ranks are from the rank counts that were measured, in powers of e."""
    low, high = (*ranks, p, p)[:2]
    return 0.0 if low <= p <= high else max(log(low / p), log(p / high))


def _entries_for_level(
    system: System, op: str, depth: int, algorithm: str | None
) -> tuple[list[list[Calibrated]], float]:
    """Return the entries for groups that a level spans, by protocol, and the doubt on top.

    An entry of a level serves that level and those above without their own; what was measured
    inside a node says nothing of the way out of it. A ring of another operation that runs the
    same way round serves an operation that has no entry.
    """
    names = [level.name for level in system.levels]
    borrowed = {"allgather": "allreduce", "reduce_scatter": "allreduce"}
    for source, doubt in ((op, 0.0), (borrowed.get(op, ""), OPERATION)):
        entries = [
            entry for entry in system.collectives
            if entry.op == source and names.index(entry.level) <= depth
            # libraries that serve experts send nothing else
            and (entry.algorithm == algorithm if algorithm
                 else not isinstance(named(entry.op, entry.algorithm), ByExperts))
            and (not doubt or entry.algorithm in ("ring", "rings"))
        ]  # fmt: skip
        highest = max((names.index(e.level) for e in entries), default=-1)
        if highest < 0 or highest < system.inside <= depth:
            continue
        by_protocol: dict[tuple[str, str], list[Calibrated]] = {}
        for entry in entries:
            if names.index(entry.level) == highest:
                by_protocol.setdefault((entry.algorithm, entry.protocol), []).append(entry)
        return [*by_protocol.values()], doubt + FOLD * (depth - highest)
    return [], 0.0

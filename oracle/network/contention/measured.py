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
from oracle.network.contention.cost import Cost, schedule_cost
from oracle.network.contention.groups import RankGroups, closest_devices, spanning_level
from oracle.network.contention.line import CostLine
from oracle.network.contention.ring_sets import laid_out
from oracle.network.topology import network_of
from oracle.spec.doubt import AGAIN, FOLD, OPERATION
from oracle.spec.system import Calibrated, System


def fitted(
    system: System, op: str, groups: RankGroups, inner: int, algorithm: str | None
) -> Iterator[CostLine]:
    """Lines from calibrated entries: measured α and β, and the φ of these groups on top.

    A machine supposed has other links than the one measured: α goes with its level's latency,
    β with what the links of either let the algorithm have.
    """
    p, to_a_node = groups.p, groups.inner(system.node)
    for entry, extra in _entries(system, op, groups, algorithm):
        form = named(op, entry.algorithm)
        now = _bare_cost(system, op, _as_run(system, op, entry.algorithm, p, inner), groups, inner)
        low, high = (*entry.ranks, p, p)[:2]
        seen = min(max(p, low), high)  # its bandwidth was measured at no other rank count
        was, packed = _measured(system, op, entry, seen)
        start = entry.base + _counted(form, "steps", p, to_a_node) * entry.latency
        if (measured := _latency(system.as_calibrated, entry.level)) > 0:
            start *= _latency(system, entry.level) / measured
        volume = _counted(form, "volume", seen, packed)
        slope = volume / entry.bandwidth * now.per_byte / was.per_byte
        known = [entry.uncertainty.get(name, 0.0) for name in ("bandwidth", "residual")]
        yield CostLine(entry.algorithm, start, slope, now.phi, now.full, "fitted",
                   min(1.0, extra + max(AGAIN, *known)), 0.0, entry.sizes,
                   extra > 0)  # fmt: skip


def _latency(system: System, name: str) -> float:
    """α of the level of a name."""
    return next(level.latency for level in system.levels if level.name == name)


def _measured(system: System, op: str, entry: Calibrated, p: int) -> tuple[Cost, int]:
    """What an entry's algorithm cost as it was measured: packed on whole nodes, nobody else.

    With `concurrency` groups at once they were dealt round the ranks. Ranks that would fit below
    the entry's level were on two units of it: two ranks between nodes were not on one node.
    """
    was, apart = system.as_calibrated, max(1, round(entry.concurrency))
    known = cache_of(was)
    key: Key = ("measured", op, entry.level, entry.algorithm, p, apart)
    if key not in known:
        then = _placed(was, entry.level, p, apart)
        packed = then.inner(closest_devices(was))
        by = _as_run(was, op, entry.algorithm, p, packed)
        graph = network_of(was, 1 + int(then.devices_of(np.arange(then.devices)).max()))
        cost = schedule_cost(graph, then, laid_out(by, graph, then, packed))
        known[key] = cost, then.inner(was.node)
    found: tuple[Cost, int] = known[key]
    return found


def _placed(system: System, name: str, p: int, apart: int) -> RankGroups:
    """So many groups of p ranks, dealt round the ranks, on devices that meet at a level."""
    ranks = np.arange(p * apart)
    depth = next(k for k, level in enumerate(system.levels) if level.name == name)
    unit = system.levels[depth - 1].devices if depth else 1
    half = -(-len(ranks) // 2)
    device = ranks // half * unit + ranks % half if len(ranks) <= unit else None
    return RankGroups(((p, apart),), len(ranks), device)


def _bare_cost(system: System, op: str, by: Algorithm, groups: RankGroups, inner: int) -> Cost:
    """What an algorithm costs on the bare network, remembered."""
    return algorithm_costs(system, network_of(system, groups.reach), groups, inner, [by], ())[0]


def _as_run(system: System, op: str, name: str, p: int, inner: int) -> Algorithm:
    """The schedule behind a measured name.

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
    """Whether its closed form depends on how many ranks share a node."""
    return "q" in signature(kind.steps).parameters


def _counted(by: Algorithm, what: str, p: int, inner: int) -> float:
    """Steps or volume among p ranks, `inner` of them to a node."""
    count = getattr(by, what)
    return float(count(p, inner) if _by_node(type(by)) else count(p))


def _entries(
    system: System, op: str, groups: RankGroups, algorithm: str | None
) -> Iterator[tuple[Calibrated, float]]:
    """Entries that speak for these groups, one a protocol, and the uncertainty that comes on top.

    Of those of a protocol the one that was measured at the nearest number of ranks.
    """
    at, known = spanning_level(system, groups), cache_of(system)
    key: Key = ("entries", op, at, algorithm)
    if key not in known:
        known[key] = _speaking(system, op, at, algorithm)
    by_protocol, doubt = known[key]
    for entries in by_protocol:
        away = [folds(entry.ranks, groups.p) for entry in entries]
        least = min(away)
        yield entries[away.index(least)], doubt + FOLD * least


def holds(system: System, op: str, groups: RankGroups) -> bool:
    """Whether entries of this very operation were measured at so many ranks."""
    return any(entry.op == op and not folds(entry.ranks, groups.p)
               for entry, _ in _entries(system, op, groups, None))  # fmt: skip


def folds(ranks: tuple[int, ...], p: int) -> float:
    """How far so many ranks are from those that were measured, in powers of e."""
    low, high = (*ranks, p, p)[:2]
    return 0.0 if low <= p <= high else max(log(low / p), log(p / high))


def _speaking(
    system: System, op: str, at: int, algorithm: str | None
) -> tuple[list[list[Calibrated]], float]:
    """(entries for groups that a level spans, by protocol; the uncertainty that comes on top).

    An entry of a level serves that level and those above without their own; what was measured
    inside a node says nothing of the way out of it. A ring of another operation that runs the
    same way round serves an operation that has no entry.
    """
    names = [level.name for level in system.levels]
    borrowed = {"allgather": "allreduce", "reduce_scatter": "allreduce"}
    for source, extra in ((op, 0.0), (borrowed.get(op, ""), OPERATION)):
        mine = [e for e in system.collectives if e.op == source and names.index(e.level) <= at]
        if algorithm:
            mine = [e for e in mine if e.algorithm == algorithm]
        else:  # libraries that serve experts send nothing else
            mine = [e for e in mine if not isinstance(named(e.op, e.algorithm), ByExperts)]
        if extra:
            mine = [e for e in mine if e.algorithm in ("ring", "rings")]
        highest = max((names.index(e.level) for e in mine), default=-1)
        if highest < 0 or highest < system.inside <= at:
            continue
        found: dict[tuple[str, str], list[Calibrated]] = {}
        for entry in mine:
            if names.index(entry.level) == highest:
                found.setdefault((entry.algorithm, entry.protocol), []).append(entry)
        return [*found.values()], extra + FOLD * (at - highest)
    return [], 0.0

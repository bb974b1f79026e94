"""How full each link gets when every group of a pattern takes a step at once.

A step lasts its start-up plus the time of the fullest link: max over links of bytes / capacity,
which is what max-min fair shares give flows that start together (casanova2014, §3). Steps are
counted in one piece; where the network looks the same to all, one period of it is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np

from oracle.collectives.alltoall import Everyone
from oracle.collectives.schedule import Exchange, Pairs, Shift, Steps
from oracle.contention.groups import Groups
from oracle.topology import Topology
from oracle.topology.fabric import Ids, Numbers

BLOCK = 4_000_000  # link numbers held at once


@dataclass(frozen=True, eq=False)
class Toll:
    """What each step of some costs: seconds to start, seconds per byte, alone and as it is."""

    alpha: Numbers
    shared: Numbers
    solo: Numbers
    worst: Ids  # the link that sets the pace
    times: Numbers


def toll(topology: Topology, groups: Groups, steps: Steps, reduce: bool = True) -> Toll:
    """Count the flows of all groups on every link, step by step."""
    if isinstance(steps, Pairs):
        return _listed(topology, groups, steps, reduce)
    if isinstance(steps, Everyone) and topology.tree and not topology.hop and reduce:
        return everyone(topology, groups, steps)
    spans, folds = _periods(topology, groups, steps) if reduce else (None, None)
    parts = []
    for first in range(0, steps.count):
        if first and first < parts[-1][0].stop:
            continue
        part = slice(first, steps.count)
        if spans is not None:  # steps that repeat after the same number of ranks go together
            same = np.flatnonzero(spans[part] != spans[first])
            part = slice(first, first + int(same[0]) if len(same) else steps.count)
        span = int(spans[first]) if spans is not None else groups.devices
        fold = int(folds[first]) if folds is not None else 0
        part = _bounded(topology, part, span * (groups.p if isinstance(steps, Everyone) else 1))
        parts.append((part, _sent(topology, groups, steps, part, span, fold)))
    joined = [np.concatenate(column) for column in zip(*(p for _, p in parts), strict=True)]
    return Toll(*joined, times=steps.times)  # type: ignore[arg-type]


def _bounded(topology: Topology, part: slice, flows: int) -> slice:
    """As many steps as fit in memory."""
    each = max(flows * 2 * max(3, len(topology.levels)), topology.links // 4, 1)
    return slice(part.start, min(part.stop, part.start + max(1, BLOCK // each)))


def _periods(topology: Topology, groups: Groups, steps: Steps) -> tuple[Ids | None, Ids | None]:
    """Ranks after which each step repeats, and where the way down may be folded.

    In a tree, whole blocks of ranks that fill whole units load those units' own links and no
    others, and a block inside a unit never leaves it: so one block stands for all. A shift of
    a whole ring moreover looks the same from every unit in it.
    """
    if not topology.tree or groups.device is not None:
        return None, None
    n = groups.devices
    if isinstance(steps, Exchange):
        reach = np.array([groups.reach(int(mask)) for mask in steps.mask])
    else:
        reach = np.full(steps.count, groups.block)
    spans, folds = np.empty_like(reach), np.zeros_like(reach)
    seen: dict[int, tuple[int, int]] = {}
    for k, block in enumerate(reach.tolist()):
        if block not in seen:
            span, period = block, 1
            for fabric in topology.fabrics:
                if fabric.unit % block:
                    span = lcm(span, fabric.unit)
                    period = lcm(period, fabric.unit)
            turning = isinstance(steps, (Shift, Everyone)) and len(groups.pattern) == 1
            if turning and span == block and block % period == 0 and n % block == 0:
                seen[block] = period, period
            else:
                seen[block] = min(span, n), 0
        spans[k], folds[k] = seen[block]
    return spans, folds


def _sent(
    topology: Topology, groups: Groups, steps: Steps, part: slice, span: int, fold: int
) -> tuple[Numbers, Numbers, Numbers, Ids]:
    """Steps of which every rank takes part in all."""
    ranks = np.arange(span)
    first, number = groups.place(ranks)
    to = steps.pairs(number, groups.p, part)
    many = to.shape[1] // span
    ranks, first = np.repeat(ranks, many), np.repeat(first, many)
    target = first + groups.offsets[to]
    source, target = groups.at(ranks), groups.at(target)
    source = np.broadcast_to(source, target.shape)
    into = target % fold if fold else target
    route = topology.route(source, target, into)
    count, width = len(target), topology.links + 1
    key = route + (np.arange(count) * width)[:, None]
    load = np.bincount(key.ravel(), minlength=count * width).reshape(count, width)
    busy = load / topology.capacity
    worst = busy.argmax(axis=1)
    share = steps.share[part]
    slowest = topology.capacity[route].min(axis=0).min(axis=1)
    alpha = topology.alpha(source, target).max(axis=1)
    return alpha, share * busy[np.arange(count), worst], many * share / slowest, worst


def _listed(topology: Topology, groups: Groups, steps: Pairs, reduce: bool) -> Toll:
    """One step whose flows are listed, in every group."""
    span = groups.devices
    if reduce and topology.tree and groups.device is None:
        span = groups.block
        for fabric in topology.fabrics:
            if fabric.unit % groups.block:
                span = lcm(span, fabric.unit)
        span = min(span, groups.devices)
    ranks = np.arange(span)
    bases = np.unique(groups.place(ranks)[0])
    source = groups.at((bases[:, None] + groups.offsets[steps.source]).ravel())
    target = groups.at((bases[:, None] + groups.offsets[steps.target]).ravel())
    share = np.tile(steps.share, len(bases))
    route = topology.route(source, target)
    weight = np.broadcast_to(share, route.shape)
    load = np.bincount(route.ravel(), weight.ravel(), minlength=topology.links + 1)
    busy = load / topology.capacity
    worst = busy.argmax()
    solo = (share / topology.capacity[route].min(axis=0)).max()
    alpha = topology.alpha(source, target).max()
    return Toll(*map(np.atleast_1d, (alpha, busy[worst], solo, worst)), times=steps.times)


def everyone(topology: Topology, groups: Groups, steps: Steps) -> Toll:
    """All ranks to all at once, in a tree: loads from how many members each unit holds."""
    ranks = np.arange(groups.devices)
    first, _ = groups.place(ranks)
    device, p = groups.at(ranks), groups.p
    busy, solo, alpha, key = np.zeros(topology.links + 1), np.inf, 0.0, device
    for depth, fabric in enumerate(topology.fabrics):
        unit, start = device // fabric.unit, topology.starts[depth]
        here = _tally(first, unit)
        leaving = p - here
        if leaving.any():
            alpha = topology.latency[depth] if depth < len(topology.spans) else 0.0
            solo = min(solo, fabric.lane)
        if fabric.gates:
            down = fabric.gate(device, key, key)
            busy += np.bincount(start + fabric.gates + down, leaving, len(busy))
            if fabric.routing == "d-mod-k":
                # a unit's members send to all members outside it, port by the target's number
                lane = key % fabric.lanes
                order = np.lexsort((lane, first))
                pairs_ = np.stack([first, lane])[:, order]
                new = np.flatnonzero(np.any(np.diff(pairs_, prepend=-1), axis=0))
                group_lane = pairs_[:, new]
                amount = np.diff(new, append=len(order))
                homes, held = np.unique(np.stack([first, unit]), axis=1, return_counts=True)
                at = (
                    np.searchsorted(group_lane[0], homes[0]),
                    np.searchsorted(group_lane[0], homes[0], side="right"),
                )
                many = at[1] - at[0]
                home = np.repeat(np.arange(len(held)), many)
                row = (
                    np.arange(many.sum())
                    - np.repeat(np.cumsum(many) - many, many)
                    + np.repeat(at[0], many)
                )
                up = start + homes[1][home] * fabric.lanes + group_lane[1][row]
                busy += np.bincount(up, held[home] * amount[row], len(busy))
                own = start + unit * fabric.lanes + lane  # but not to those inside
                busy -= np.bincount(own, here, len(busy))
            else:
                up = start + fabric.gate(device, key, key)
                busy += np.bincount(up, leaving, len(busy))
        if fabric.inner_links:
            a, home = unit % fabric.width, unit // fabric.width
            base = start + 2 * fabric.gates + home * fabric.inner_links
            for apart in range(1, fabric.width):
                to = (a + apart) % fabric.width
                met = _met(first, unit, home * fabric.width + to)
                busy += np.bincount(base + a * fabric.width + to, met, len(busy))
            solo = min(solo, topology.capacity[start + 2 * fabric.gates :].min())
        key = fabric.number(device, key)
    busy /= topology.capacity
    worst = int(busy.argmax())
    each = steps.share[0]
    solo_ = (p - 1) * each / topology.capacity[busy > 0].min() if busy.any() else 0.0
    return Toll(*map(np.atleast_1d, (alpha, each * busy[worst], solo_, worst)), times=steps.times)


def _tally(first: Ids, unit: Ids) -> Ids:
    """How many of each rank's group share its unit."""
    _, where, count = np.unique(first * (unit.max() + 1) + unit, return_inverse=True,
                                return_counts=True)  # fmt: skip
    return count[where]


def _met(first: Ids, unit: Ids, other: Ids) -> Numbers:
    """How many of each rank's group are in another unit."""
    width = max(unit.max(), other.max()) + 1
    keys, count = np.unique(first * width + unit, return_counts=True)
    wanted = first * width + other
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, count[at], 0).astype(float)

"""How full each link gets when every group of a pattern takes a step at once.

A step lasts its start-up plus the time of the fullest link: max over links of bytes / capacity,
which is what max-min fair shares give flows that start together (casanova2014, §3). Steps are
counted in one piece; where the network looks the same to all, one period of it is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.collectives.schedule import AllPairs, Pairs, Shift, Steps, XorExchange
from oracle.network.contention.everyone import scattered
from oracle.network.contention.groups import Groups
from oracle.network.contention.toll import Toll
from oracle.network.topology import Topology

BLOCK = 4_000_000  # link numbers held at once


@dataclass(frozen=True, eq=False)
class Flows:
    """All flows of one step, or of as many as `share` and `times` say, end to end.

    `into` is where the way down is counted, `own` how many of the flows are the first group's
    (0: alone means each flow by itself).
    """

    source: Ints
    target: Ints
    into: Ints
    share: Floats  # of each flow
    each: int  # flows of one step
    times: Floats
    many: float = 1.0  # flows that leave one rank at once
    own: int = 0
    wheel: bool = False  # one turn of a wheel stands for all: links count as their counterparts


def toll(
    topology: Topology, groups: Groups, schedule: Sequence[Steps], reduce: bool = True
) -> list[Toll]:
    """Count the flows of all groups on every link, step by step; one toll for each `Steps`."""
    done: dict[int, list[Toll]] = {place: [] for place in range(len(schedule))}
    held: list[tuple[int, Flows]] = []

    def count() -> None:
        at = 0
        if held:
            counted = _count(topology, [flows for _, flows in held])
            for place, flows in held:
                part = slice(at, at := at + len(flows.times))
                done[place].append(Toll(*(getattr(counted, name)[part] for name in NAMES)))
        held.clear()

    weight = 0
    for place, steps in enumerate(schedule):
        if isinstance(steps, AllPairs) and topology.tree and not topology.hop and reduce:
            done[place].append(scattered(topology, groups, steps))
            continue
        for flows in _flows(topology, groups, steps, reduce):
            cost = len(flows.source) * 2 * len(topology.levels)
            if weight + cost > BLOCK:
                count()
                weight = 0
            held.append((place, flows))
            weight += cost
    count()
    return [_joined(parts) for parts in done.values()]


NAMES = ("turns", "alpha", "shared", "solo", "worst", "times")


def _joined(parts: Sequence[Toll]) -> Toll:
    if len(parts) == 1:
        return parts[0]
    return Toll(*(np.concatenate([getattr(part, name) for part in parts]) for name in NAMES))


def _flows(topology: Topology, groups: Groups, steps: Steps, reduce: bool) -> Iterator[Flows]:
    """The flows of some steps, a handful of steps at a time."""
    spins = reduce and groups.device is None and topology.period < groups.devices
    reduce = reduce and topology.tree and groups.device is None
    if isinstance(steps, Pairs):
        span = _period(topology, groups.block, groups.devices)[0] if reduce else groups.devices
        bases = groups.bases[: int(np.searchsorted(groups.bases, span))]
        source = groups.at((bases[:, None] + groups.offsets[steps.source]).ravel())
        target = groups.at((bases[:, None] + groups.offsets[steps.target]).ravel())
        own = len(steps.share) if steps.stripes > 1 else 0
        share = np.tile(steps.share, len(bases))
        yield Flows(source, target, target, share, len(source), steps.times, own=own)
        return
    first = 0
    while first < steps.count:
        last, span, fold = steps.count, groups.devices, 0
        if reduce:
            reach = _reach(groups, steps, first)
            same = (_reach(groups, steps, k) == reach for k in range(first + 1, steps.count))
            last = first + 1 + next((k for k, alike in enumerate(same) if not alike),
                                    steps.count - first - 1)  # fmt: skip
            span, period = _period(topology, reach, groups.devices)
            turning = len(groups.pattern) == 1 and (
                _even(topology, groups)
                if isinstance(steps, XorExchange)
                else _round(topology, reach)
            )
            if turning and span == reach and reach % period == 0:
                span = fold = period
        wheel = spins and not reduce and _spun(groups, steps)
        span = topology.period if wheel else span
        many = groups.p - 1 if isinstance(steps, AllPairs) else 1
        each = span * many
        room = max(1, BLOCK // (each * 2 * len(topology.levels) * 2))
        part = slice(first, min(last, first + room))
        to = steps.pairs(groups.number[:span], groups.p, part)
        base = groups.first[:span] if many == 1 else np.repeat(groups.first[:span], many)
        target = groups.at(base + groups.offsets[to]).ravel()
        ranks = np.arange(span) if many == 1 else np.repeat(np.arange(span), many)
        source = np.tile(groups.at(ranks), len(to))
        yield Flows(source, target, target % fold if fold else target,
                    np.repeat(steps.share[part], each), each, steps.times[part], many,
                    wheel=wheel)  # fmt: skip
        first = part.stop


def _spun(groups: Groups, steps: Steps) -> bool:
    """Whether all devices take part alike in a shift round all of them."""
    round_ = isinstance(steps, (Shift, AllPairs)) and len(groups.pattern) == 1
    return round_ and groups.block == groups.devices


def flows_of(
    topology: Topology, groups: Groups, steps: Steps, reduce: bool = False
) -> Iterator[Flows]:
    """Every flow of every group in some steps; with `reduce`, of a stretch that stands for all."""
    return _flows(topology, groups, steps, reduce)


def _reach(groups: Groups, steps: Steps, k: int) -> int:
    return groups.reach(int(steps.mask[k])) if isinstance(steps, XorExchange) else groups.block


def _even(topology: Topology, groups: Groups) -> bool:
    """Whether all is in powers of two, so that an exchange looks the same from every unit."""
    sizes = [groups.block, *(size for f in topology.fabrics for size in (f.unit, f.lanes))]
    return not any(size & (size - 1) for size in sizes)


def _round(topology: Topology, block: int) -> bool:
    """Whether port numbers start anew with each block, so that going round keeps every lane."""
    ports, unit = 1, 1
    for fabric in topology.fabrics:
        if fabric.routing == "d-mod-k" and block // unit * ports % fabric.lanes:
            return False
        if fabric.routing == "affinity":
            ports, unit = fabric.lanes, fabric.unit
    return True


def _period(topology: Topology, block: int, devices: int) -> tuple[int, int]:
    """Ranks after which flows inside blocks repeat, and after which the network itself does.

    In a tree, whole blocks of ranks that fill whole units load those units' own links and no
    others, and a block inside a unit never leaves it: so one such stretch stands for all. A
    shift of a whole ring moreover looks the same from every unit in it.
    """
    span, period = block, 1
    for fabric in topology.fabrics:
        if fabric.unit % block:
            span, period = lcm(span, fabric.unit), lcm(period, fabric.unit)
    return min(span, devices), period


def _count(topology: Topology, batch: list[Flows]) -> Toll:
    """Lay the flows on their links and find each step's fullest."""
    one = len(batch) == 1
    source, target, into, share = (
        getattr(batch[0], name) if one else np.concatenate([getattr(f, name) for f in batch])
        for name in ("source", "target", "into", "share")
    )
    lengths = np.concatenate([np.full(len(f.times), f.each) for f in batch])
    edges = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    steps = len(lengths)
    route, turn = topology.route_and_level(source, target, into)
    if any(f.wheel for f in batch):
        spun = np.repeat([f.wheel for f in batch], [len(f.source) for f in batch])
        route = np.where(spun, topology.first_period[route], route)
    used = np.flatnonzero(np.bincount(route.ravel(), minlength=topology.links + 1))
    width, short = len(used), np.empty(topology.links + 1, np.int64)
    short[used] = np.arange(width)
    key = short[route] + np.repeat(np.arange(steps) * width, lengths)
    weight = np.broadcast_to(share, route.shape)
    load = np.bincount(key.ravel(), weight.ravel(), steps * width).reshape(steps, width)
    busy = load * topology.seconds_per_byte[used]
    worst = busy.argmax(axis=1)
    solo = np.maximum.reduceat(share * topology.seconds_per_byte[route].max(axis=0), edges)
    solo *= np.concatenate([np.full(len(f.times), f.many) for f in batch])
    step = 0
    for f, edge in zip(batch, edges[np.cumsum([0, *(len(f.times) for f in batch[:-1])])],
                       strict=True):  # fmt: skip
        if f.own:  # lanes of one group are meant to share: alone is that group alone
            mine = slice(int(edge), int(edge) + f.own)
            links = route[:, mine].ravel()
            own = np.bincount(links, weight[:, mine].ravel(), topology.links + 1)
            solo[step] = (own * topology.seconds_per_byte).max()
        step += len(f.times)
    stages = len(topology.latency)
    at = np.repeat(np.arange(steps) * stages, lengths) + turn % stages
    turns = np.bincount(at, minlength=steps * stages).reshape(steps, stages) / lengths[:, None]
    if topology.hop:
        alpha = np.maximum.reduceat(topology.hop_delay(route), edges)
    else:
        alpha = np.where(turns > 0, topology.latency, 0.0).max(axis=1)
    times = np.concatenate([f.times for f in batch])
    return Toll(turns, alpha, busy[np.arange(steps), worst], solo, used[worst], times)

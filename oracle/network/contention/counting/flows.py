"""Flows of all groups in the steps of a schedule.

Where the network repeats itself, the flows of one period stand for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.collectives.schedule import AllPairs, Pairs, Shift, Steps, XorExchange
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology

BLOCK = 1_000_000  # link numbers held at once
PART = 2**14  # flows laid on their links at once: what they take stays in cache


@dataclass(frozen=True, eq=False)
class Flows:
    """Flows of as many steps as `times` has entries, one step after the other.

    `into` is where the way down is counted. `lanes` is how many of the flows are each group's,
    every one beside its like of the others, where those of a group are meant to share links; 0
    where each flow counts by itself.
    """

    source: Ints
    target: Ints
    into: Ints
    share: Floats  # of each flow
    per_step: int  # flows of one step
    times: Floats
    per_rank: float = 1.0  # flows that leave one rank at once
    lanes: int = 0
    periodic: bool = False  # links count as their counterparts in the first period


def flows_of(
    topology: Topology, groups: RankGroups, steps: Steps, reduce: bool = False
) -> Iterator[Flows]:
    """Yield the flows of every group in some steps, a handful of steps at a time.

    With `reduce`, where the network repeats itself, the flows of one period stand for all.
    """
    repeats = reduce and groups.device is None and topology.period < groups.devices
    reduce = reduce and topology.tree and groups.device is None
    if isinstance(steps, Pairs):
        bases = groups.bases(groups_apart(topology, groups) if reduce else None)
        # groups side by side, so that links are counted nearly in the order of their numbers
        source, target = (groups.members(ends, bases) for ends in (steps.source, steps.target))
        lanes = len(steps.share) if steps.stripes > 1 else 0
        share = np.repeat(steps.share, len(bases)) if len(bases) > 1 else steps.share
        yield Flows(source, target, target, share, len(source), steps.times, lanes=lanes)
        return
    first = 0
    while first < steps.count:
        last, span, fold = steps.count, groups.devices, 0
        if reduce:
            block = _exchange_period(groups, steps, first)
            later = range(first + 1, steps.count)
            last = next((k for k in later if _exchange_period(groups, steps, k) != block), last)
            span, period = _periods(topology, block, groups.devices)
            turning = len(groups.pattern) == 1 and (
                _powers_of_two(topology, groups)
                if isinstance(steps, XorExchange)
                else _ports_repeat(topology, block)
            )
            if turning and span == block and block % period == 0:
                span = fold = period
        periodic = repeats and not reduce and _rotates_all(groups, steps)
        span = topology.period if periodic else span
        per_rank = groups.p - 1 if isinstance(steps, AllPairs) else 1
        per_step = span * per_rank
        room = max(1, BLOCK // (per_step * 2 * len(topology.levels) * 2))
        part = slice(first, min(last, first + room))
        number = groups.number_of(np.arange(span))
        target_number = steps.pairs(number, groups.p, part)
        base = np.repeat(np.arange(span) - groups.offsets[number], per_rank)
        target = groups.devices_of(base + groups.offsets[target_number]).ravel()
        ranks = np.arange(span) if per_rank == 1 else np.repeat(np.arange(span), per_rank)
        source = np.tile(groups.devices_of(ranks), len(target_number))
        yield Flows(source, target, target % fold if fold else target,
                    np.repeat(steps.share[part], per_step), per_step, steps.times[part], per_rank,
                    periodic=periodic)  # fmt: skip
        first = part.stop


def add_to_links(load: Floats, topology: Topology, flows: Flows, share: Floats) -> None:
    """Add to the load of each link what flows send over it, `share` each."""
    for begin in range(0, len(flows.source), PART):
        part = slice(begin, begin + PART)
        route, _, carried = topology.spread_route(flows.source[part], flows.target[part])
        np.add.at(load, route.ravel(), (share[part] * carried[:, None]).ravel())


def _rotates_all(groups: RankGroups, steps: Steps) -> bool:
    """Whether all devices take part alike in a shift round all of them."""
    shift = isinstance(steps, (Shift, AllPairs)) and len(groups.pattern) == 1
    return shift and groups.block == groups.devices


def _exchange_period(groups: RankGroups, steps: Steps, k: int) -> int:
    """Ranks after which step k begins anew."""
    if not isinstance(steps, XorExchange):
        return groups.block
    return groups.exchange_period(int(steps.mask[k]))


def _powers_of_two(topology: Topology, groups: RankGroups) -> bool:
    """Whether all sizes are powers of two, so that an exchange looks the same from every unit."""
    sizes = [groups.block, *(size for f in topology.fabrics for size in (f.repeats, f.lanes))]
    return not any(size & (size - 1) for size in sizes)


def _ports_repeat(topology: Topology, block: int) -> bool:
    """Whether port numbers start anew with each block, so that going round keeps every lane."""
    ports, unit = 1, 1
    for fabric in topology.fabrics:
        if fabric.routing == "d-mod-k" and block // unit * ports % fabric.lanes:
            return False
        if fabric.routing == "affinity":
            ports, unit = fabric.lanes, fabric.unit
    return True


def groups_apart(topology: Topology, groups: RankGroups) -> int:
    """Ranks among which the groups that begin there stand for all of them.

    Where the members of a group are whole units of every level apart, groups that begin in
    different units load the same places of different units' links: those of one unit do.
    """
    if len(groups.pattern) == 1:
        ((_, stride),) = groups.pattern
        unit = lcm(*(fabric.repeats for fabric in topology.fabrics))
        if stride % unit == 0:
            return unit
    return _periods(topology, groups.block, groups.devices)[0]


def _periods(topology: Topology, block: int, devices: int) -> tuple[int, int]:
    """Ranks after which flows inside blocks repeat, and after which the network itself does.

    In a tree, whole blocks of ranks that fill whole units load those units' own links and no
    others, and a block inside a unit never leaves it: so one such stretch stands for all. A
    shift of a whole ring moreover looks the same from every unit in it.
    """
    span, period = block, 1
    for fabric in topology.fabrics:
        if fabric.unit % block:
            span, period = lcm(span, fabric.repeats), lcm(period, fabric.repeats)
    return min(span, devices), period

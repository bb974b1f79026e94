"""Cost of each step when every group takes it at once: the load of every link, counted.

A step lasts its start-up plus the time of the fullest link: max over links of bytes / capacity,
which is what max-min fair shares give flows that start together [casanova2014, §3].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.network.arrays import Ints
from oracle.network.collectives.schedule import AllPairs, Shift, Steps
from oracle.network.contention.all_pairs import all_pairs_cost, folds
from oracle.network.contention.flows import BLOCK, Flows, flows_of
from oracle.network.contention.groups import RankGroups
from oracle.network.contention.rotations import turn_costs, turned
from oracle.network.contention.step_costs import StepCosts
from oracle.network.topology import Topology

SORTED = 16  # times as many links as routes have: from there routes are sorted, not links listed
PART = 2**14  # flows laid on their links at once, of a step of more


def step_costs(
    topology: Topology, groups: RankGroups, schedule: Sequence[Steps], reduce: bool = True
) -> list[StepCosts]:
    """Count the flows of all groups on every link; one entry for each `Steps`.

    Steps that come up again, as on the way back of what is done and undone, are counted once.
    """
    first = {id(steps): place for place, steps in reversed([*enumerate(schedule)])}
    done: dict[int, list[StepCosts]] = {place: [] for place in range(len(schedule))}
    held: list[tuple[int, Flows]] = []

    def count() -> None:
        at = 0
        if held:
            counted = _counted(topology, [flows for _, flows in held])
            for place, flows in held:
                done[place].append(counted[at : at + len(flows.times)])
                at += len(flows.times)
        held.clear()

    weight = 0
    for place, steps in enumerate(schedule):
        if first[id(steps)] != place:
            continue
        if reduce and isinstance(steps, AllPairs) and folds(topology):
            done[place].append(all_pairs_cost(topology, groups, steps))
            continue
        if isinstance(steps, Shift) and len(turns := np.unique(steps.by)) < steps.count:
            done[place].append(_once(topology, groups, steps, turns, reduce))
            continue
        if reduce and isinstance(steps, Shift) and (rings := turned(topology, groups, steps)):
            done[place].append(turn_costs(topology, groups, steps, rings))
            continue
        for flows in flows_of(topology, groups, steps, reduce):
            size = len(flows.source) * 2 * len(topology.levels)
            if weight + size > BLOCK:
                count()
                weight = 0
            held.append((place, flows))
            weight += size
    count()
    found = {place: StepCosts.joined(done[place]) for place in first.values()}
    return [found[first[id(steps)]] for steps in schedule]


def _once(
    topology: Topology, groups: RankGroups, steps: Shift, turns: Ints, reduce: bool
) -> StepCosts:
    """Shifts of which some go to the same ranks with another share: each way is counted once."""
    one = np.ones(len(turns))
    (cost,) = step_costs(topology, groups, [Shift(one, one, turns)], reduce)
    at = np.searchsorted(turns, steps.by)
    return StepCosts(cost.by_level[at], cost.alpha[at], cost.shared[at] * steps.share,
                     cost.solo[at] * steps.share, cost.fullest[at], steps.times)  # fmt: skip


def _counted(topology: Topology, batch: list[Flows]) -> StepCosts:
    """Lay the flows on their links and find the fullest in each step."""
    one = len(batch) == 1
    if one and batch[0].per_step == len(batch[0].source) > PART:
        empty = not batch[0].share.any() and not topology.hop
        return (_waited if empty else _counted_in_parts)(topology, batch[0])
    source, target, into, share = (
        getattr(batch[0], name) if one else np.concatenate([getattr(f, name) for f in batch])
        for name in ("source", "target", "into", "share")
    )
    lengths = np.concatenate([np.full(len(f.times), f.per_step) for f in batch])
    edges = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    steps = len(lengths)
    route, level, part = topology.spread_route(source, target, into)
    if any(f.periodic for f in batch):
        periodic = np.repeat([f.periodic for f in batch], [len(f.source) for f in batch])
        route = np.where(periodic, topology.first_period[route], route)
    used, key = _renumbered(route, topology.links + 1)
    width = len(used)
    if steps > 1:
        key = key + np.repeat(np.arange(steps) * width, lengths)
    weight = np.broadcast_to(share, route.shape) * part[:, None]
    load = np.bincount(key.ravel(), weight.ravel(), steps * width).reshape(steps, width)
    busy = load * topology.seconds_per_byte[used]
    fullest = busy.argmax(axis=1)
    solo = np.maximum.reduceat(share * topology.slowest(route, part), edges)
    solo *= np.concatenate([np.full(len(f.times), f.per_rank) for f in batch])
    step = 0
    for f, edge in zip(batch, edges[np.cumsum([0, *(len(f.times) for f in batch[:-1])])],
                       strict=True):  # fmt: skip
        if f.lanes:  # lanes of one group are meant to share: alone is that group alone
            mine = slice(int(edge), int(edge) + f.per_step, f.per_step // f.lanes)
            links, own = _renumbered(route[:, mine], topology.links + 1)
            sent = (share[mine] * part[:, None]).ravel()
            own = np.bincount(own.ravel(), sent, len(links))
            solo[step] = (own * topology.seconds_per_byte[links]).max()
        step += len(f.times)
    levels = len(topology.latency)
    at = np.repeat(np.arange(steps) * levels, lengths) + level % levels
    by_level = np.bincount(at, minlength=steps * levels).reshape(steps, levels) / lengths[:, None]
    if topology.hop:
        alpha = np.maximum.reduceat(topology.hop_delay(route), edges)
    else:
        alpha = np.where(by_level > 0, topology.latency, 0.0).max(axis=1)
    times = np.concatenate([f.times for f in batch])
    shared = busy[np.arange(steps), fullest]
    # a rank that sends to many at once over several ways out is done before one way would be
    solo = np.minimum(solo, shared)
    return StepCosts(by_level, alpha, shared, solo, used[fullest], times)


def _waited(topology: Topology, flows: Flows) -> StepCosts:
    """A step of many flows that only waits: nothing but how far apart its ends are counts."""
    levels = len(topology.latency)
    met = np.zeros(levels)
    for begin in range(0, flows.per_step, PART):
        source, target = (each[begin : begin + PART] for each in (flows.source, flows.target))
        level = np.where(source == target, -1, topology.meeting_level(source, target))
        met += np.bincount(level % levels, minlength=levels)
    alpha = float(topology.latency[met > 0].max())
    none = np.zeros(1)
    return StepCosts(met[None] / flows.per_step, np.array([alpha]), none, none,
                     none.astype(int), flows.times)  # fmt: skip


def _counted_in_parts(topology: Topology, flows: Flows) -> StepCosts:
    """The same of one step of many flows, part by part: arrays stay in cache."""
    levels = len(topology.latency)
    load, met = np.zeros(topology.links + 1), np.zeros(levels)
    solo, alpha = 0.0, 0.0
    apart = flows.per_step // (flows.lanes or 1)  # from one flow of a group to its next
    several = flows.lanes > 0 and apart > 1  # groups, of which one alone is counted too
    own = np.zeros(len(load) if several else 0)
    for begin in range(0, flows.per_step, PART):
        at = slice(begin, begin + PART)
        ends = flows.source[at], flows.target[at], flows.into[at]
        route, level, part = topology.spread_route(*ends)
        route = topology.first_period[route] if flows.periodic else route
        share = np.broadcast_to(flows.share[at], route.shape) * part[:, None]
        np.add.at(load, route.ravel(), share.ravel())
        met += np.bincount(level % levels, minlength=levels)
        if several:
            mine = slice(-begin % apart, None, apart)
            np.add.at(own, route[:, mine].ravel(), share[:, mine].ravel())
        elif not flows.lanes:
            slowest = topology.slowest(route, part)
            solo = max(solo, float((flows.share[at] * slowest).max()) * flows.per_rank)
        if topology.hop:
            alpha = max(alpha, float(topology.hop_delay(route).max()))
    load *= topology.seconds_per_byte
    if several:
        own *= topology.seconds_per_byte
        solo = float(own.max())
    if not topology.hop:
        alpha = float(topology.latency[met > 0].max())
    fullest = int(load.argmax())
    shared = float(load[fullest])
    solo = shared if flows.lanes and not several else solo
    return StepCosts(met[None] / flows.per_step, np.array([alpha]), np.array([shared]),
                     np.array([min(solo, shared)]), np.array([fullest]), flows.times)  # fmt: skip


def _renumbered(route: Ints, links: int) -> tuple[Ints, Ints]:
    """The links that routes use, and the routes by their numbers among those."""
    if route.size < links // SORTED:
        used, short = np.unique(route, return_inverse=True)
        return used, short.reshape(route.shape)
    used = np.flatnonzero(np.bincount(route.ravel(), minlength=links))
    number = np.empty(links, np.int64)
    number[used] = np.arange(len(used))
    return used, number[route]

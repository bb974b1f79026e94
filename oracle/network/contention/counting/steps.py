"""Cost of each step when every group takes it at once: the load of every link, counted.

A step lasts its start-up plus the time of the fullest link: max over links of bytes / capacity,
which is what max-min fair shares give flows that start together [casanova2014, §3].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.network.arrays import Ints
from oracle.network.collectives.schedule import AllPairs, Shift, Steps
from oracle.network.contention.counting.all_pairs import all_pairs_cost, countable
from oracle.network.contention.counting.flows import BLOCK, PART, Flows, flows_of
from oracle.network.contention.counting.rotations import turn_costs, turned
from oracle.network.contention.counting.step_costs import StepCosts
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology

SORTED = 16  # times as many links as routes have: from there routes are sorted, not links listed


def step_costs(
    topology: Topology, groups: RankGroups, schedule: Sequence[Steps], reduce: bool = True
) -> list[StepCosts]:
    """Count the flows of all groups on every link, and return one entry for each `Steps`.

    Steps that come up again, as in a schedule that undoes what it did, are counted once.
    """
    first = {id(steps): place for place, steps in reversed([*enumerate(schedule)])}
    counted_parts: dict[int, list[StepCosts]] = {place: [] for place in range(len(schedule))}
    batch: list[tuple[int, Flows]] = []

    def count() -> None:
        first_step = 0
        if batch:
            costs = _counted(topology, [flows for _, flows in batch])
            for place, flows in batch:
                next_step = first_step + len(flows.times)
                counted_parts[place].append(costs[first_step:next_step])
                first_step = next_step
        batch.clear()

    weight = 0
    for place, steps in enumerate(schedule):
        if first[id(steps)] != place:
            continue
        if reduce and isinstance(steps, AllPairs) and countable(topology):
            counted_parts[place].append(all_pairs_cost(topology, groups, steps))
            continue
        if isinstance(steps, Shift) and len(turns := np.unique(steps.by)) < steps.count:
            counted_parts[place].append(_once(topology, groups, steps, turns, reduce))
            continue
        if reduce and isinstance(steps, Shift) and (rings := turned(topology, groups, steps)):
            counted_parts[place].append(turn_costs(topology, groups, steps, rings))
            continue
        for flows in flows_of(topology, groups, steps, reduce):
            size = len(flows.source) * 2 * len(topology.levels)
            if weight + size > BLOCK:
                count()
                weight = 0
            batch.append((place, flows))
            weight += size
    count()
    cost_of = {place: StepCosts.joined(counted_parts[place]) for place in first.values()}
    return [cost_of[first[id(steps)]] for steps in schedule]


def _once(
    topology: Topology, groups: RankGroups, steps: Shift, turns: Ints, reduce: bool
) -> StepCosts:
    """Cost of shifts, some of which go the same way with another share: each way counted once."""
    ones = np.ones(len(turns))
    (cost,) = step_costs(topology, groups, [Shift(ones, ones, turns)], reduce)
    place = np.searchsorted(turns, steps.by)
    return StepCosts(cost.by_level[place], cost.alpha[place], cost.shared[place] * steps.share,
                     cost.solo[place] * steps.share, cost.fullest[place], steps.times)  # fmt: skip


def _counted(topology: Topology, batch: list[Flows]) -> StepCosts:
    """Lay flows on their links and find the fullest link of each step."""
    single = len(batch) == 1
    if single and batch[0].per_step == len(batch[0].source) > PART:
        empty = not batch[0].share.any() and not topology.hop
        return (_waited if empty else _counted_in_parts)(topology, batch[0])
    source, target, into, share = (
        getattr(batch[0], name) if single else np.concatenate([getattr(f, name) for f in batch])
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
            one_group = slice(int(edge), int(edge) + f.per_step, f.per_step // f.lanes)
            links, group_load = _renumbered(route[:, one_group], topology.links + 1)
            sent = (share[one_group] * part[:, None]).ravel()
            group_load = np.bincount(group_load.ravel(), sent, len(links))
            solo[step] = (group_load * topology.seconds_per_byte[links]).max()
        step += len(f.times)
    levels = len(topology.latency)
    level_key = np.repeat(np.arange(steps) * levels, lengths) + level % levels
    met = np.bincount(level_key, minlength=steps * levels).reshape(steps, levels)
    by_level = met / lengths[:, None]
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
    """Cost of a step of many flows without bytes, which only wait: by how far apart they end."""
    levels = len(topology.latency)
    met = np.zeros(levels)
    for begin in range(0, flows.per_step, PART):
        source, target = (ends[begin : begin + PART] for ends in (flows.source, flows.target))
        level = np.where(source == target, -1, topology.meeting_level(source, target))
        met += np.bincount(level % levels, minlength=levels)
    alpha = float(topology.latency[met > 0].max())
    none = np.zeros(1)
    return StepCosts(met[None] / flows.per_step, np.array([alpha]), none, none,
                     none.astype(int), flows.times)  # fmt: skip


def _counted_in_parts(topology: Topology, flows: Flows) -> StepCosts:
    """Cost of one step of many flows, laid on links part by part: arrays stay in cache."""
    levels = len(topology.latency)
    load, met = np.zeros(topology.links + 1), np.zeros(levels)
    solo, alpha = 0.0, 0.0
    stride = flows.per_step // (flows.lanes or 1)  # from one flow of a group to its next
    several = flows.lanes > 0 and stride > 1  # several groups: one alone is counted too
    group_load = np.zeros(len(load) if several else 0)
    for begin in range(0, flows.per_step, PART):
        block = slice(begin, begin + PART)
        ends = flows.source[block], flows.target[block], flows.into[block]
        route, level, part = topology.spread_route(*ends)
        route = topology.first_period[route] if flows.periodic else route
        share = np.broadcast_to(flows.share[block], route.shape) * part[:, None]
        np.add.at(load, route.ravel(), share.ravel())
        met += np.bincount(level % levels, minlength=levels)
        if several:
            one_group = slice(-begin % stride, None, stride)
            np.add.at(group_load, route[:, one_group].ravel(), share[:, one_group].ravel())
        elif not flows.lanes:
            slowest = topology.slowest(route, part)
            solo = max(solo, float((flows.share[block] * slowest).max()) * flows.per_rank)
        if topology.hop:
            alpha = max(alpha, float(topology.hop_delay(route).max()))
    load *= topology.seconds_per_byte
    if several:
        group_load *= topology.seconds_per_byte
        solo = float(group_load.max())
    if not topology.hop:
        alpha = float(topology.latency[met > 0].max())
    fullest = int(load.argmax())
    shared = float(load[fullest])
    solo = shared if flows.lanes and not several else solo
    return StepCosts(met[None] / flows.per_step, np.array([alpha]), np.array([shared]),
                     np.array([min(solo, shared)]), np.array([fullest]), flows.times)  # fmt: skip


def _renumbered(route: Ints, links: int) -> tuple[Ints, Ints]:
    """The links that routes use, and the routes with links numbered among these."""
    if route.size < links // SORTED:
        used, short = np.unique(route, return_inverse=True)
        return used, short.reshape(route.shape)
    used = np.flatnonzero(np.bincount(route.ravel(), minlength=links))
    number = np.empty(links, np.int64)
    number[used] = np.arange(len(used))
    return used, number[route]

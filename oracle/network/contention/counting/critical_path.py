"""Critical path of a schedule whose steps leave some ranks out.

A rank goes on as soon as its own flows are through, and a link starts as soon as its first flow
is there; so the longest chain of steps counts, not their sum. A link is done when all its flows
are through, however it shares itself out [casanova2014, §3]:

    done(link) = max over flows f on it of  arrival(f) + work of the flows that come no earlier
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.network.arrays import Floats, Ints, LinkNumbers
from oracle.network.collectives.schedule import Pairs, Steps
from oracle.network.contention.counting.flows import PART, flows_of
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology


def leaves_ranks_out(schedule: Sequence[Steps], p: int) -> bool:
    """Whether some step is listed flow by flow and leaves out ranks that others keep busy."""
    listed = [steps for steps in schedule if isinstance(steps, Pairs)]
    if len(listed) < 2 or any(steps.stripes > 1 for steps in listed):
        return False
    return any(len({*steps.source.tolist(), *steps.target.tolist()}) < p for steps in listed)


def critical_path(
    topology: Topology, groups: RankGroups, schedule: Sequence[Steps], reduce: bool = True
) -> tuple[float, float]:
    """Return the seconds per byte until the last rank is done, in company and alone.

    clock(r) = max over flows of r of  done(its last link)

    Each rank waits for its partners only. Alone, each flow has its links to itself, and is through
    after the slowest of them.
    """
    size = int(groups.devices_of(np.arange(groups.devices)).max()) + 1
    shared, alone = np.zeros(size), np.zeros(size)
    for steps in schedule:
        for flows in flows_of(topology, groups, steps, reduce):
            source = flows.source.reshape(len(flows.times), -1)
            target = flows.target.reshape(source.shape)
            share = flows.share.reshape(source.shape)
            for s, d, part, times in zip(source, target, share, flows.times, strict=True):
                begin, sent = _begin(shared, groups, s, d, times), part * times
                end, slowest = _finish(topology, s, d, begin, sent)
                # messages that leave one rank at once still share its way out
                alone_end = _begin(alone, groups, s, d, times) + sent * flows.per_rank * slowest
                for clock, done in ((shared, end), (alone, alone_end)):
                    np.maximum.at(clock, s, done)
                    np.maximum.at(clock, d, done)
    return float(shared.max()), float(alone.max())


def _begin(clock: Floats, groups: RankGroups, s: Ints, d: Ints, times: float) -> Floats:
    """When flows start: once both ends are ready."""
    begin = np.maximum(clock[s], clock[d])
    if times > 1:  # round and round: all that take part in a group wait for all
        group = groups.first[s] if groups.device is None else np.zeros_like(s)
        last = np.zeros(len(clock))
        np.maximum.at(last, group, begin)
        begin = last[group]
    return begin


def _finish(
    topology: Topology, s: Ints, d: Ints, begin: Floats, share: Floats
) -> tuple[Floats, Floats]:
    """Return when each flow that comes at `begin` is through, and s/B of its slowest link.

    A flow is through when the last of its links is done.
    """
    last_first = np.argsort(-begin, kind="stable")
    begin, share = begin[last_first], share[last_first]
    crossed, count, part = _crossed(topology, s[last_first], d[last_first])
    order = _by_link(crossed)  # by link, the last to come first
    link, flow = crossed[order], np.repeat(np.arange(len(s), dtype=np.int32), count)[order]
    sent = share[flow] * part[order] if topology.spreads else share[flow]
    total = np.cumsum(sent * topology.seconds_per_byte[link])
    first = np.flatnonzero(np.diff(link, prepend=-1))
    before = np.concatenate([[0.0], total[first[1:] - 1]])
    total -= np.repeat(before, np.diff(first, append=len(link)))
    total += begin[flow]
    done = np.zeros(topology.links)
    if len(link):
        done[link[first]] = np.maximum.reduceat(total, first)
    results = np.empty((2, len(s)))
    slowest = _largest_of_flow(topology.seconds_per_byte[crossed], count)
    if topology.spreads:
        route, _, parts = topology.spread_route(s[last_first], d[last_first])
        slowest = topology.slowest(route, parts)
    results[:, last_first] = np.maximum(begin, _largest_of_flow(done[crossed], count)), slowest
    return results[0], results[1]


def _crossed(topology: Topology, s: Ints, d: Ints) -> tuple[LinkNumbers, Ints, Floats]:
    """Return the links of all flows in turn, their number by flow, the part that each carries."""
    links, counts, parts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for begin in range(0, len(s), PART):
        block = slice(begin, begin + PART)
        route, _, part = topology.spread_route(s[block], d[block])
        route = np.ascontiguousarray(route.T)
        crossing = route != topology.links
        links.append(route[crossing].astype(np.int32))
        counts.append(crossing.sum(axis=1))
        if topology.spreads:
            parts.append(np.broadcast_to(part, route.shape)[crossing])
    return np.concatenate(links), np.concatenate(counts), np.concatenate(parts)


def _largest_of_flow(values: Floats, count: Ints) -> Floats:
    """The largest of each flow's values, 0 where a flow has none."""
    most_of_flow, first = np.zeros(len(count)), np.cumsum(count) - count
    if len(values):
        most_of_flow[count > 0] = np.maximum.reduceat(values, first[count > 0])
    return most_of_flow


def _by_link(link: LinkNumbers) -> Ints:
    """Return the stable order by link number, sorted by digits of 16 bits."""
    order = np.argsort((link & 0xFFFF).astype(np.uint16), kind="stable")
    if (high := (link >> 16).astype(np.uint16)).any():
        order = order[np.argsort(high[order], kind="stable")]
    return order

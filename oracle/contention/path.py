"""Schedules whose steps leave some ranks out: the longest chain of steps, not their sum.

A rank goes on as soon as its own flows are through, so a crowded link holds up those behind it
only. Loads are still those of whole steps: who runs ahead is taken to crowd nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.collectives.schedule import Pairs, Steps
from oracle.contention.groups import Groups
from oracle.contention.loads import flows_of
from oracle.topology import Topology


def uneven(schedule: Sequence[Steps], p: int) -> bool:
    """Whether some step is listed flow by flow and leaves out ranks that others keep busy."""
    listed = [steps for steps in schedule if isinstance(steps, Pairs)]
    if len(listed) < 2 or any(steps.stripes > 1 for steps in listed):
        return False
    return any(len(np.union1d(steps.source, steps.target)) < p for steps in listed)


def longest(
    topology: Topology, groups: Groups, schedule: Sequence[Steps], reduce: bool = True
) -> float:
    """Seconds per byte until the last rank is done, each waiting for its partners only.

    clock(r) = max over flows of r of  max(clock of both ends) + load of its fullest link
    """
    clock = np.zeros(int(groups.at(np.arange(groups.devices)).max()) + 1)
    for steps in schedule:
        for flows in flows_of(topology, groups, steps, reduce):
            source = flows.source.reshape(len(flows.times), -1)
            target = flows.target.reshape(source.shape)
            share = flows.share.reshape(source.shape)
            for s, d, part, times in zip(source, target, share, flows.times, strict=True):
                route = topology.route(s, d)
                weight = np.broadcast_to(part, route.shape)
                load = np.bincount(route.ravel(), weight.ravel(), topology.links + 1)
                spent = (load * topology.pace)[route].max(axis=0) * times
                begin = np.maximum(clock[s], clock[d])
                if times > 1:  # round and round: all that take part in a group wait for all
                    group = groups.first[s] if groups.device is None else np.zeros_like(s)
                    last = np.zeros(len(clock))
                    np.maximum.at(last, group, begin)
                    begin = last[group]
                end, now = begin + spent, clock.copy()
                np.maximum.at(now, s, end)
                np.maximum.at(now, d, end)
                clock = now
    return float(clock.max())

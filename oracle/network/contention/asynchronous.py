"""Seconds per byte of exchanges whose ranks go on as soon as their own partners are done.

In a schedule in which every rank swaps with another in each step, and steps load links unequally,
ranks on emptier links run ahead, and flows of several steps share links. A flow begins when both
of its ranks have come to its step and gets its max-min fair share of links until it is through:
what is played here, flow by flow, for as many as are worth it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.collectives.schedule import Shift, Steps, XorExchange
from oracle.network.contention.fair_shares import fair_rates
from oracle.network.contention.flows import flows_of
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology

MOST = 70_000  # flows that are played


def swaps(schedule: Sequence[Steps], groups: RankGroups) -> bool:
    """Whether every rank swaps with each other one, one at a time, and not too many do."""
    if len(schedule) != 1 or not isinstance(schedule[0], Shift | XorExchange):
        return False
    steps = schedule[0]
    partners = steps.by if isinstance(steps, Shift) else steps.mask
    alone = len(np.unique(partners)) == steps.count and bool((steps.times == 1).all())
    every = steps.count == groups.p - 1 > 1
    return every and alone and steps.count * groups.devices <= MOST


def played(topology: Topology, groups: RankGroups, steps: Steps) -> float:
    """Seconds per byte until the last rank is done."""
    source, target, share = _every(topology, groups, steps)
    count, ranks = source.shape
    route, _, part = topology.spread_route(source.ravel(), target.ravel())
    used, route = np.unique(np.append(route.ravel(), topology.links), return_inverse=True)
    route = route[:-1].reshape(-1, count * ranks)
    capacity = topology.capacity[used]
    left = share.astype(float).ravel()
    at = np.zeros(int(max(source.max(), target.max())) + 1, np.int64)  # the step of each rank
    waits = np.full((count, len(at)), 2)  # of a rank in a step: what it sends, and what it gets
    now, going = 0.0, np.arange(ranks)
    sender, getter = source.ravel(), target.ravel()
    flow_of = np.empty((count, len(at)), np.int64)
    into = np.empty_like(flow_of)
    for step in range(count):
        flow_of[step, source[step]] = into[step, target[step]] = step * ranks + np.arange(ranks)
    while len(going):
        rate = fair_rates(capacity, route[:, going], part)
        need = np.where(np.isfinite(rate), left[going] / rate, 0.0)
        span = float(need.min())
        now += span
        done = need <= span * (1 + 1e-9)
        left[going] = np.where(done, 0.0, left[going] - np.where(np.isfinite(rate), rate, 0) * span)
        over, going = going[done], going[~done]
        step = over // ranks
        for ends in (sender[over], getter[over]):
            np.subtract.at(waits, (step, ends), 1)
        free = np.unique(np.concatenate([sender[over], getter[over]]))
        free = free[waits[at[free], free] == 0]
        at[free] += 1
        free = free[at[free] < count]
        fresh = np.unique(np.concatenate([flow_of[at[free], free], into[at[free], free]]))
        both = (at[sender[fresh]] == fresh // ranks) & (at[getter[fresh]] == fresh // ranks)
        going = np.concatenate([going, fresh[both]])
    return now


def _every(topology: Topology, groups: RankGroups, steps: Steps) -> tuple[Ints, Ints, Floats]:
    """(steps, ranks) devices that send and get, and what."""
    parts = [tuple(each.reshape(len(f.times), -1) for each in (f.source, f.target, f.share))
             for f in flows_of(topology, groups, steps)]  # fmt: skip
    source, target, share = (np.concatenate(each) for each in zip(*parts, strict=True))
    return source, target, share

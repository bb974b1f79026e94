"""Seconds per byte of schedules whose ranks go on as soon as their own partners are done.

Where steps load links unequally, or leave ranks out, some ranks run ahead and flows of several
steps share links. A flow begins when both of its ranks have come to its step and gets its
max-min fair share of links until it is through: what is played here, flow by flow, for as many
as are worth it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.collectives.schedule import Pairs, Shift, Steps, XorExchange
from oracle.network.contention.counting.fair_shares import fair_rates
from oracle.network.contention.counting.flows import flows_of
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology

MOST = 70_000  # flows that are played where all swap with all
FEW = 2_500  # where steps leave ranks out: of more the longest chain of steps counts


def swaps(schedule: Sequence[Steps], groups: RankGroups) -> bool:
    """Whether each rank swaps with all others, one at a time, in few enough flows to be played."""
    if len(schedule) != 1 or not isinstance(schedule[0], Shift | XorExchange):
        return False
    steps = schedule[0]
    partners = steps.by if isinstance(steps, Shift) else steps.mask
    alone = len(np.unique(partners)) == steps.count and bool((steps.times == 1).all())
    every = steps.count == groups.p - 1 > 1
    return every and alone and steps.count * groups.devices <= MOST


def listed(schedule: Sequence[Steps], groups: RankGroups) -> bool:
    """Whether all flows of all steps are listed, each once, and few enough to be played."""
    flows = [len(steps.share) for steps in schedule if isinstance(steps, Pairs)]
    once = len(flows) == len(schedule) and all(steps.times[0] == 1 for steps in schedule)
    return once and sum(flows) * (groups.devices // groups.p) <= FEW


def played(
    topology: Topology,
    groups: RankGroups,
    schedule: Sequence[Steps],
    reduce: bool = False,
    nbytes: float | None = None,
    envelope: float = 0.0,
) -> float:
    """Return the seconds per byte until the last rank is done, or the seconds of `nbytes`.

    With a size, each message has `envelope` bytes more and begins its α after its ranks have come:
    the bytes of some flows hide the start of others, which no line over sizes tells.
    """
    step, sender, getter, left = _every(topology, groups, schedule, reduce)
    begin, weight = np.zeros(len(left)), None
    if nbytes is not None:
        left, begin = left * nbytes + envelope, topology.alpha(sender, getter)
        weight = topology.weight(sender, getter)
    route, _, part = topology.spread_route(sender, getter)
    used, route = np.unique(np.append(route.ravel(), topology.links), return_inverse=True)
    route = route[:-1].reshape(-1, len(step))
    capacity = topology.capacity[used]
    queue, enough = _Queue(step, sender, getter), 1e-9 * left
    now, going, coming = 0.0, np.zeros(0, np.int64), np.flatnonzero(queue.waits == 0)
    while len(going) or len(coming):
        due = begin[coming] <= now * (1 + 1e-12)
        going, coming = np.concatenate([going, coming[due]]), coming[~due]
        flow_weight = None if weight is None else weight[going]
        rate = fair_rates(capacity, route[:, going], part, flow_weight)
        need = np.where(np.isfinite(rate), left[going] / rate, 0.0)
        until = min(now + need.min(initial=np.inf), begin[coming].min(initial=np.inf))
        span, now = until - now, until
        left[going] -= np.where(np.isfinite(rate), rate, 0.0) * span
        done = (need <= span * (1 + 1e-9)) | (left[going] <= enough[going])
        over, going = going[done], going[~done]
        fresh = queue.freed(over)
        begin[fresh] += now
        coming = np.concatenate([coming, fresh])
    return now


class _Queue:
    """Flows that wait: those of a rank in a step for all flows of its step before."""

    def __init__(self, step: Ints, sender: Ints, getter: Ints) -> None:
        steps, flows = int(step.max()) + 1, len(step)
        keys = np.concatenate([sender, getter]) * steps + np.tile(step, 2)
        turns, turn = np.unique(keys, return_inverse=True)  # a turn is a step of a rank
        self.of = turn.reshape(2, flows)
        self.open = np.bincount(turn)  # flows of a turn that are not through
        self.first = np.diff(turns // steps, prepend=-1) > 0
        self.waits = (~self.first[self.of]).sum(axis=0)
        self.flows = np.argsort(turn, kind="stable") % flows
        self.begin = np.append(np.cumsum(self.open) - self.open, 2 * flows)

    def freed(self, over: Ints) -> Ints:
        """The flows that may begin once these are through."""
        turns = self.of[:, over].ravel()
        np.subtract.at(self.open, turns, 1)
        after = np.unique(turns[self.open[turns] == 0]) + 1
        after = after[after < len(self.first)]
        after = after[~self.first[after]]
        count = self.begin[after + 1] - self.begin[after]
        place = np.arange(count.sum()) + np.repeat(self.begin[after] - np.cumsum(count) + count,
                                                   count)  # fmt: skip
        fresh = self.flows[place]
        np.subtract.at(self.waits, fresh, 1)
        return np.unique(fresh[self.waits[fresh] == 0])


def _every(
    topology: Topology, groups: RankGroups, schedule: Sequence[Steps], reduce: bool
) -> tuple[Ints, Ints, Ints, Floats]:
    """The step, sender, getter and share of each flow, round by round."""
    parts, step = [], 0
    for steps in schedule:
        for f in flows_of(topology, groups, steps, reduce):
            rounds = np.repeat(np.arange(len(f.times)), f.times.astype(np.int64))
            flow = (rounds[:, None] * f.per_step + np.arange(f.per_step)).ravel()
            number = step + np.repeat(np.arange(len(rounds)), f.per_step)
            parts.append((number, f.source[flow], f.target[flow], f.share[flow]))
            step += len(rounds)
    number, source, target, share = map(np.concatenate, zip(*parts, strict=True))
    return number, source, target, np.array(share, float)

"""Cost of a schedule that all groups run at once: the sum of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oracle.network.arrays import Floats
from oracle.network.collectives import Steps
from oracle.network.contention.counting.asynchronous import listed, played, swaps
from oracle.network.contention.counting.critical_path import critical_path, leaves_ranks_out
from oracle.network.contention.counting.step_costs import StepCosts
from oracle.network.contention.counting.steps import step_costs
from oracle.network.contention.groups import RankGroups
from oracle.network.topology import Topology


@dataclass(frozen=True, eq=False)
class Cost:
    """Cost of a schedule on a network: start + per_byte · m seconds."""

    steps: Sequence[StepCosts]
    start: float
    per_byte: float
    phi: float
    full: tuple[str, ...]
    repeats: float = 1.0  # how often the schedule is run

    def start_at(self, latency: Floats, pipelined: bool) -> float:
        """Seconds to start at the given α of each level."""
        return self.repeats * sum(steps.start(latency, pipelined) for steps in self.steps)

    def repeated(self, count: float) -> Cost:
        """The same schedule run so many times."""
        if count == 1.0:
            return self
        return replace(self, start=self.start * count, per_byte=self.per_byte * count,
                       repeats=self.repeats * count)  # fmt: skip


def schedule_cost(
    topology: Topology, groups: RankGroups, schedule: Sequence[Steps], reduce: bool = True
) -> Cost:
    """Return the cost of a schedule that every group runs at once.

        T = Σ_steps times · (max α + m · max over links of load / capacity)

    Where some ranks sit out a step, the sum runs along the longest chain of steps instead
    (`critical_path`). Flows that meet are played where they are few, and where all ranks swap with
    all, one by one (`asynchronous`). `full` names the links that set the pace of a tenth of the
    time or more.
    """
    return schedule_costs(topology, groups, [schedule], reduce)[0]


def schedule_costs(
    topology: Topology,
    groups: RankGroups,
    schedules: Sequence[Sequence[Steps]],
    reduce: bool = True,
) -> list[Cost]:
    """Return the costs of several schedules of the same groups, counted in one go."""
    every_step = [steps for schedule in schedules for steps in schedule]
    costs = iter(step_costs(topology, groups, every_step, reduce))
    summed = [_cost(topology, [next(costs) for _ in schedule]) for schedule in schedules]
    return [_in_time(topology, groups, cost, schedule, reduce)
            for cost, schedule in zip(summed, schedules, strict=True)]  # fmt: skip


def _in_time(
    topology: Topology, groups: RankGroups, cost: Cost, schedule: Sequence[Steps], reduce: bool
) -> Cost:
    """The cost where ranks wait for nobody but their partners."""
    if leaves_ranks_out(schedule, groups.p):
        together, solo = critical_path(topology, groups, schedule, reduce)
        if together > solo * (1 + 1e-9) and listed(schedule, groups):
            together = played(topology, groups, schedule, reduce)
        return _relieved(cost, together, solo)
    if cost.phi > 1 + 1e-9 and swaps(schedule, groups):
        solo = cost.per_byte / cost.phi
        return _relieved(cost, played(topology, groups, schedule), solo)
    return cost


def _relieved(cost: Cost, per_byte: float, solo: float) -> Cost:
    """The cost where ranks that sit out a step run ahead, alone as in company."""
    return replace(cost, per_byte=per_byte, phi=per_byte / solo if solo else 1.0)


def _cost(topology: Topology, costs: list[StepCosts]) -> Cost:
    start = sum(float(t.times @ t.alpha) for t in costs)
    solo = sum(float(t.times @ t.solo) for t in costs)
    shared = np.concatenate([t.times * t.shared for t in costs])
    fullest = np.concatenate([t.fullest for t in costs])
    per_byte = float(shared.sum())
    full: dict[str, float] = {}
    for link, seconds in zip(fullest.tolist(), shared.tolist(), strict=True):
        if link < topology.links:
            name = topology.label(link)
            full[name] = full.get(name, 0.0) + seconds
    pace = sorted(full, key=lambda name: -full[name])
    return Cost(costs, start, per_byte, per_byte / solo if solo else 1.0,
                tuple(name for name in pace if full[name] >= 0.1 * per_byte))  # fmt: skip

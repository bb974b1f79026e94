"""Partitions of unlike devices that wait for each other: how long, and what would even them out.

Every device is useful for as long as it would be if all had a share of the batch by their speed:
n_k devices that would take t_k for all of it by themselves take 1 / Σ (n_k / t_k) together. It
names the `pipeline`, whose stages may be cut by what they take where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.ask.partitions import balanced, deals_unevenly, with_shares
from oracle.models.model import Model
from oracle.plan.plan import Plan
from oracle.predict.estimate import Estimate
from oracle.predict.estimate import estimate as predict
from oracle.predict.sides import Side
from oracle.spec.options import Options
from oracle.spec.partitions import parts
from oracle.spec.system import System
from oracle.spec.units import show

GAIN = 0.01  # of a step, that another deal has to save to be worth telling
ALIKE = 1.02  # times as long, from where on one partition is slower than another


@dataclass(frozen=True, slots=True)
class Fair:
    """What all devices would take if each had its share, and what they wait since they have not."""

    seconds: float
    lost: float  # by which the busiest are above the average
    slowest: str  # the partition that they are of
    words: str


@dataclass(frozen=True, slots=True)
class Evened:
    """How unevenly partitions are busy, and the nearest plan by which they wait less."""

    words: str
    plan: str  # nothing where none is faster
    seconds: float  # of its step

    def to_dict(self) -> dict[str, Any]:
        """As data."""
        return {"words": self.words, "plan": self.plan or None,
                "seconds": self.seconds if self.plan else None}  # fmt: skip


def fairly(
    model: Model, system: System, sides: Sequence[Side], batch: int, options: Options
) -> Fair:
    """What partitions would take together, and who is above the average of what they do take."""
    count = np.array([side.devices for side in sides], float)
    each = []
    for side in sides:
        alone = predict(model, parts(system, (side.number,))[0].view, ["serial"], batch, options)
        each.append(float(alone.compute["forward"][0] + alone.compute["backward"][0]))
    most = max(sides, key=lambda side: side.busy)
    average = float(np.average([side.mean for side in sides], weights=count))
    took = ", ".join(f"{show(seconds, 's')} on one of {side.name}"
                     for seconds, side in zip(each, sides, strict=True))  # fmt: skip
    return Fair(1 / float((count / each).sum()), max(most.busy - average, 0.0), most.name,
                f"a share by its speed of what would take {took}")  # fmt: skip


def even_out(model: Model, system: System, shown: Estimate, options: Options) -> Evened | None:
    """What would have the partitions of one plan wait less; None where it is on one alone."""
    work = shown.work[0]
    sides = work.sides
    if len(sides) < 2:
        return None
    slow, quick = (pick(sides, key=lambda side: side.busy) for pick in (max, min))
    times = slow.busy / max(quick.busy, 1e-30)
    if times < ALIKE:
        return Evened("all partitions are as busy", "", 0.0)
    words = f"devices of {slow.name} are busy {times:.2g} × as long as those of {quick.name}"
    others = list(_others(model, system, work.plan, options))
    if others:
        found = predict(model, system, others, float(shown.batch[0]), options)
        seconds = np.where(found.feasible | ~shown.feasible[0], found.seconds, np.inf)
        best = int(np.argmin(seconds))
        if seconds[best] < (1 - GAIN) * shown.seconds[0]:
            took = f"{found.plans[best]} takes {show(float(seconds[best]), 's')}"
            return Evened(f"{words}; {took}", found.plans[best], float(seconds[best]))
    return Evened(f"{words}; no other share or cut is faster", "", 0.0)


def _others(model: Model, system: System, plan: Plan, options: Options) -> Iterator[Plan]:
    """The plan with other shares, and with stages cut by what they take where they are."""
    pipeline = plan.axis("pipeline")
    staged = float(pipeline.degree[0, 0]) > 1
    dealt = any(float(np.max(axis.degree)) > 1 for axis in plan.axes if axis.deals_batch)
    if staged and pipeline.word("cuts") != "balanced":
        one = replace(pipeline, cuts=0 * pipeline.cuts + pipeline.number("cuts", "balanced"))
        yield Plan(plan.batch, tuple(one if axis is pipeline else axis for axis in plan.axes))
    if dealt and (options.any_plan or deals_unevenly(options.software)):
        for shares in dict.fromkeys(balanced(model, system, [plan], options)[0]):
            yield with_shares(plan, shares)

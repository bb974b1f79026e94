"""Which partitions of a system plans are tried on, in which order, with what shares of the batch.

One partition alone is often better than all: every one that is large enough is tried by itself,
and every order of several. An axis that spans them sits outermost: the pipeline, whose stages are
then unlike, or the axes that deal the batch, whose replicas are. It names `on`, whose knobs these
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import gcd

import numpy as np
from numpy.typing import NDArray

from oracle.models.model import Model
from oracle.plan.plan import Plan, table
from oracle.plan.strategies.base import number_of
from oracle.plan.strategies.on import On
from oracle.predict import evaluate
from oracle.predict.estimate import estimate
from oracle.predict.sides import Side
from oracle.spec.options import Options
from oracle.spec.partitions import parts
from oracle.spec.software import Software
from oracle.spec.system import System

ORDERS = 24  # of partitions, that are tried at most
ROUNDS = 4  # of shares that follow from what the last took
NEAR = 2  # samples of a replica beside the balanced share that are tried
MOST = 10**5  # what a share is at most


@dataclass(frozen=True)
class Where:
    """Where plans of a search run, and which of their axes spans it."""

    on: float = 0.0  # the number of `on.parts`
    several: bool = False  # partitions
    staged: bool = False  # only plans with a pipeline are tried: others are as in another order
    dealt_first: bool = False  # replicas are unlike, not stages
    shares: tuple[float, ...] = ()  # numbers of `on.shares` worth trying, the usual one first


ANYWHERE = Where()


def places(
    model: Model,
    system: System,
    devices: int,
    options: Options,
    software: Software | None,
    span: bool,
) -> Iterator[Where]:
    """Each way to seat so many devices; of a system without partitions the only one."""
    if not system.partitions:
        yield ANYWHERE
        return
    every = range(1, 1 + len(system.partitions))
    room = {number: system.partitions[number - 1].devices for number in every}
    for number in every:
        if room[number] >= devices:
            yield Where(_number("parts", (number,)))
    uneven = software is None or deals_unevenly(software)
    orders_seen: set[frozenset[int]] = set()
    orders = (order for count in range(2, 1 + len(every)) for order in permutations(every, count))
    for order in orders if span else ():
        all_partitions = sum(room[n] for n in order)
        if (
            not all_partitions - room[order[-1]] < devices <= all_partitions
            or len(orders_seen) > ORDERS
        ):
            continue
        on = 0.0 if order == tuple(every) else _number("parts", order)
        shares = (_in_proportion(model, system, order, options), 0.0) if uneven else ()
        mirrored = devices == all_partitions and frozenset(order) in orders_seen
        orders_seen.add(frozenset(order))
        partitions_used = Where(on, True, mirrored, shares=tuple(dict.fromkeys(shares)))
        yield partitions_used
        if not mirrored:
            yield replace(partitions_used, staged=True, dealt_first=True)


def deals_unevenly(software: Software) -> bool:
    """Whether a framework can be told that replicas have unlike shares of a batch."""
    return not software.launch.strategies or "on.shares" in software.launch.knobs


def _number(knob: str, values: tuple[int, ...]) -> float:
    """The number of a knob's text; 0 of shares that are all alike."""
    if knob == "shares":
        common = gcd(*values)
        values = tuple(min(value // common, MOST) for value in values)
        if len({*values}) == 1:
            return 0.0
    words = On.__dataclass_fields__[knob].metadata["words"]
    return number_of("/".join(map(str, values)), words)


def _in_proportion(model: Model, system: System, order: tuple[int, ...], options: Options) -> float:
    """Shares by the speed of a device of each partition by itself."""
    seconds = [
        float(estimate(model, parts(system, (number,))[0].view, ["serial"], 8, options).seconds[0])
        for number in order
    ]
    slowest = max(seconds)
    return _number("shares", tuple(max(1, round(4 * slowest / speeds)) for speeds in seconds))


def balanced(
    model: Model, system: System, plans: Sequence[Plan], options: Options
) -> list[list[float]]:
    """For each plan shares by which its partitions take as long, and those next to them.

    A share follows from what partitions take of the last: s_k B / busy_k, in whole samples.
    """
    shares_by_plan: list[list[float]] = [[] for _ in plans]
    last: dict[int, _Dealt] = {}
    going = dict(enumerate(plans))
    for _ in range(ROUNDS):
        questions, going = list(going.items()), {}
        for (number, plan), sides in zip(
            questions, _sides(model, system, questions, options), strict=True
        ):
            if len(sides) < 2:
                last.pop(number, None)
                continue
            last[number] = dealt = _Dealt.of(plan, sides)
            shares = _number("shares", dealt.each)
            shares_by_plan[number].append(shares)
            if shares != float(plan.axis("on").shares[0, 0]):
                going[number] = with_shares(plan, shares)
        if not going:
            break
    for number, dealt in last.items():
        shares_by_plan[number] += dealt.near()
    return shares_by_plan


def _sides(
    model: Model, system: System, questions: Sequence[tuple[int, Plan]], options: Options
) -> list[tuple[Side, ...]]:
    """What each partition takes of some plans, priced in one table."""
    sides: list[tuple[Side, ...]] = [()] * len(questions)
    for plan, rows in table(
        [plan for _, plan in questions], [float(plan.batch[0, 0]) for _, plan in questions]
    ):
        for numbers, part in evaluate.blocks(model, system, plan, options):
            for row, number in enumerate(numbers.tolist()):
                sides[rows[number]] = part.sides(row)
    return sides


@dataclass(frozen=True)
class _Dealt:
    """A batch as partitions would take as long for it."""

    each: tuple[int, ...]  # samples of a replica on each partition
    total: float
    count: NDArray[np.float64]  # of replicas

    @classmethod
    def of(cls, plan: Plan, sides: Sequence[Side]) -> _Dealt:
        total = float(plan.batch[0, 0])
        speed = np.array([side.samples / max(side.busy, 1e-30) for side in sides])
        dealt = np.prod([axis.degree[0, 0] for axis in plan.axes
                         if axis.deals_batch and axis.multiplies])  # fmt: skip
        count = np.array([dealt * side.devices for side in sides]) / plan.devices[0, 0]
        samples_each = speed * total / (speed @ count)
        return cls(tuple(max(1, round(value)) for value in samples_each), total, count)

    def near(self) -> Iterator[float]:
        """Shares of which the first partition has a few samples more or fewer."""
        new, total, count = self.each, self.total, self.count
        for change in range(-NEAR, NEAR + 1):
            first = new[0] + change
            rest = (total - first * count[0]) / max(count[1:].sum(), 1)
            scale = rest / max(float(np.average(new[1:], weights=count[1:])), 1e-30)
            other_samples = tuple(max(1, int(np.ceil(value * scale - 1e-9))) for value in new[1:])
            if first >= 1 and rest >= 1:
                yield _number("shares", (first, *other_samples))


def with_shares(plan: Plan, number: float) -> Plan:
    """The plan with these shares."""
    on = plan.axis("on")
    other_axes = (axis for axis in plan.axes if axis is not on)
    return Plan(plan.batch, (replace(on, shares=np.full_like(on.shares, number)), *other_axes))

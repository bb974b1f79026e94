"""Which partitions of a system plans are tried on, in which order, with what shares of the batch.

One partition alone is often better than all: every one that is large enough is tried by itself,
and every order of several. An axis that spans them sits outermost: the pipeline, whose stages are
then unlike, or the axes that deal the batch, whose replicas are. It names `on`, whose knobs these
are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from math import gcd

import numpy as np

from oracle.models.model import Model
from oracle.plan.plan import Plan
from oracle.plan.strategies.base import number_of
from oracle.plan.strategies.on import On
from oracle.predict import evaluate
from oracle.predict.estimate import estimate
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
    model: Model, system: System, devices: int, options: Options, told: Software | None, span: bool
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
    uneven = told is None or deals_unevenly(told)
    seen: set[frozenset[int]] = set()
    orders = (order for count in range(2, 1 + len(every)) for order in permutations(every, count))
    for order in orders if span else ():
        whole = sum(room[n] for n in order)
        if not whole - room[order[-1]] < devices <= whole or len(seen) > ORDERS:
            continue
        on = 0.0 if order == tuple(every) else _number("parts", order)
        shares = (_in_proportion(model, system, order, options), 0.0) if uneven else ()
        mirrored = devices == whole and frozenset(order) in seen
        seen.add(frozenset(order))
        where = Where(on, True, mirrored, shares=tuple(dict.fromkeys(shares)))
        yield where
        if not mirrored:
            yield replace(where, staged=True, dealt_first=True)


def deals_unevenly(told: Software) -> bool:
    """Whether a framework can be told that replicas have unlike shares of a batch."""
    return not told.launch.strategies or "on.shares" in told.launch.knobs


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
    return _number("shares", tuple(max(1, round(4 * slowest / each)) for each in seconds))


def balanced(model: Model, system: System, plan: Plan, options: Options) -> Iterator[float]:
    """Shares for one plan by which its partitions take as long, and those next to them.

    A share follows from what partitions take of the last: s_k B / busy_k, in whole samples.
    """
    for _ in range(ROUNDS):
        ((_, found),) = evaluate.blocks(model, system, plan, options)
        sides = found.sides(0)
        if len(sides) < 2:
            return
        total = float(plan.batch[0, 0])
        speed = np.array([side.samples / max(side.busy, 1e-30) for side in sides])
        dealt = np.prod([axis.degree[0, 0] for axis in plan.axes
                         if axis.deals_batch and axis.multiplies])  # fmt: skip
        count = np.array([dealt * side.devices for side in sides]) / plan.devices[0, 0]
        each = speed * total / (speed @ count)
        new = tuple(max(1, round(value)) for value in each)
        axis = plan.axis("on")
        number = _number("shares", new)
        yield number
        if number == float(axis.shares[0, 0]):
            break
        plan = with_shares(plan, number)
    for change in range(-NEAR, NEAR + 1):
        first = new[0] + change
        rest = (total - first * count[0]) / max(count[1:].sum(), 1)
        scale = rest / max(float(np.average(new[1:], weights=count[1:])), 1e-30)
        others = tuple(max(1, int(np.ceil(value * scale - 1e-9))) for value in new[1:])
        if first >= 1 and rest >= 1:
            yield _number("shares", (first, *others))


def with_shares(plan: Plan, number: float) -> Plan:
    """The plan with these shares."""
    on = plan.axis("on")
    others = (axis for axis in plan.axes if axis is not on)
    return Plan(plan.batch, (replace(on, shares=np.full_like(on.shares, number)), *others))

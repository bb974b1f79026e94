"""When the stages of each plan's `pipeline` are done, as its schedule is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from oracle.models.model import Flags
from oracle.models.shard import Array
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.plan.player import finish
from oracle.plan.schedule import NAMES, SCHEDULES

CLOSED = ("gpipe", "1f1b")  # the step has a closed form of these


class Order(NamedTuple):
    """A schedule of so many stages, micro-batches and chunks a stage."""

    schedule: str
    stages: int
    micro_batches: int
    chunks: int


def orders(plan: Plan) -> tuple[list[Order], Array]:
    """Every order there is, and which of them each plan has.

    A plan whose schedule cannot order its stages says so in its rules; it is taken for 1F1B.
    """
    pipeline = plan.axis("pipeline")
    columns = pipeline.schedule, pipeline.degree, pipeline.segments, pipeline.interleave
    table = np.hstack(columns)
    first, kind = distinct(table)
    found_orders = []
    for number, *numbers in table[first].astype(int).tolist():
        order = Order(NAMES[number], *numbers)
        if order.schedule not in CLOSED and not SCHEDULES[order.schedule].fits(*numbers):
            order = order._replace(schedule="1f1b")
        found_orders.append(order)
    return found_orders, kind


def split(plan: Plan) -> bool:
    """Whether any has a schedule without a closed form: it takes backward passes apart."""
    closed = [NAMES.index(name) for name in CLOSED]
    return not bool(np.isin(plan.axis("pipeline").schedule, closed).all())


def done(
    plan: Plan, seconds: Callable[[Array], dict[str, Array]], unlike: Flags | None = None
) -> Iterator[tuple[Array, Array]]:
    """(rows, when each of their stages has ended its last pass) of plans without a closed form.

    And of those whose stages are on `unlike` devices, of which closed forms are too long: a slow
    stage runs ahead while its first micro-batch is on its way. `seconds` says those of the kinds
    of turns, of some rows.
    """
    any_unlike = unlike is not None and unlike.any()
    if not (any_unlike or split(plan)):
        return
    every, kind = orders(plan)
    for number, order in enumerate(every):
        rows = np.flatnonzero(kind == number)
        if order.schedule in CLOSED:
            rows = rows[unlike[rows]] if unlike is not None else rows[:0]
        if len(rows) and order.stages > 1:
            turns = {
                name: turn_seconds[:, : order.stages]
                for name, turn_seconds in seconds(rows).items()
            }
            yield rows, finish(order.schedule, order.micro_batches, order.chunks, turns)

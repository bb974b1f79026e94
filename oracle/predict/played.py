"""When the stages of each plan's `pipeline` are done, as its schedule is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from oracle.models.model import Flags
from oracle.models.shard import Array
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.plan.player import finish
from oracle.plan.schedule import NAMES, SCHEDULES
from oracle.plan.stages import Stages

CLOSED = ("gpipe", "1f1b")  # the step has a closed form of these


def orders(plan: Plan, stages: Stages) -> tuple[list[tuple[str, int]], Array]:
    """Every (schedule, segments) there is, and which of them each plan has.

    A plan whose schedule cannot order its stages says so in its rules; it is taken for 1F1B.
    """
    pipeline = plan.axis("pipeline")
    both = np.hstack([pipeline.schedule, pipeline.segments])
    first, kind = distinct(both)
    found = []
    for number, segments in both[first].astype(int).tolist():
        name = NAMES[number]
        if name not in CLOSED and not SCHEDULES[name].fits(stages.p, segments, stages.v):
            name = "1f1b"
        found.append((name, segments))
    return found, kind


def split(plan: Plan) -> bool:
    """Whether any has a schedule without a closed form: it takes backward passes apart."""
    closed = [NAMES.index(name) for name in CLOSED]
    return not bool(np.isin(plan.axis("pipeline").schedule, closed).all())


def done(
    plan: Plan, stages: Stages, seconds: Callable[[Array], dict[str, Any]],
    unlike: Flags | None = None,
) -> Iterator[tuple[Array, Array]]:  # fmt: skip
    """(rows, when each stage has ended its last pass) of plans without a closed form.

    And of those whose stages are on `unlike` devices, of which closed forms are too long: a slow
    stage runs ahead while its first micro-batch is on its way. `seconds` says those of the kinds
    of turns, of some rows.
    """
    some = unlike is not None and unlike.any()
    if stages.p == 1 or not (some or split(plan)):
        return
    names, kind = orders(plan, stages)
    for i, (name, micro_batches) in enumerate(names):
        rows = np.flatnonzero(kind == i)
        if name in CLOSED:
            rows = rows[unlike[rows]] if unlike is not None else rows[:0]
        if len(rows):
            yield rows, finish(name, micro_batches, stages.v, seconds(rows))

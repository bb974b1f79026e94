"""When the stages of each plan's pipeline are done, as its schedule is played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle.models.shard import Array
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.plan.player import finish
from oracle.plan.schedule import NAMES, SCHEDULES
from oracle.plan.stages import Stages

CLOSED = ("gpipe", "1f1b")  # the step has a closed form of these


def ordered(plan: Plan, stages: Stages) -> Iterator[tuple[str, int, Array]]:
    """(schedule, segments, rows) of plans that have both in common.

    A plan whose schedule cannot order its stages says so in its rules; it is taken for 1F1B.
    """
    pipeline = plan.axis("pipeline")
    both = np.hstack([pipeline.schedule, pipeline.segments])
    first, kind = distinct(both)
    for i, (number, segments) in enumerate(both[first].tolist()):
        name, micro_batches = NAMES[int(number)], int(segments)
        if name not in CLOSED and not SCHEDULES[name].fits(stages.p, micro_batches, stages.v):
            name = "1f1b"
        yield name, micro_batches, np.flatnonzero(kind == i)


def done(plan: Plan, stages: Stages, seconds: dict[str, Array]) -> Iterator[tuple[Array, Array]]:
    """(rows, when each stage has ended its last pass) of plans without a closed form."""
    if stages.p == 1:
        return
    for name, micro_batches, rows in ordered(plan, stages):
        if name not in CLOSED:
            mine: Any = {kind: each[rows] for kind, each in seconds.items()}
            yield rows, finish(name, micro_batches, stages.v, mine)

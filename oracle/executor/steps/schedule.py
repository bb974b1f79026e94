"""Schedule of a pipeline: the order in which a stage runs its forward and backward passes."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.plan.plan import Plan
from oracle.plan.schedule import SCHEDULES


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward or backward pass of a micro-batch through one of a stage's chunks."""

    forward: bool
    chunk: int
    micro_batch: int


def micro_batches(plan: Plan) -> int:
    """How many micro-batches a device's samples are cut into in a step."""
    return int(plan.axis("pipeline").segments[0, 0] * plan.axis("data").accumulate[0, 0])


def passes(name: str, stage: int, stages: int, count: int, chunks: int) -> list[Pass]:
    """The passes of a stage over `count` micro-batches, backward passes being whole.

    >>> [("F" if p.forward else "B") + str(p.micro_batch) for p in passes("1f1b", 0, 2, 3, 1)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    turns = SCHEDULES[name].order(stage, stages, count, chunks)
    return [Pass(turn.kind == "forward", turn.chunk, turn.micro) for turn in turns]

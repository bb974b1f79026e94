"""What crosses between the stages of a pipeline, and the order in which one sends to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from oracle.executor.graph import OperationGraph
from oracle.executor.parts import Interval
from oracle.executor.schedule import Pass


class Crossing(NamedTuple):
    """A tensor that one chunk makes and another reads; chunks are counted along the model."""

    target: int
    operation: int
    source: int


def crossings(graph: OperationGraph, stages: Sequence[Interval]) -> list[Crossing]:
    """What goes from chunk to chunk: each tensor once, directly, to each chunk that reads it."""
    chunk = {unit: at for at, units in enumerate(stages) for unit in range(*units)}
    of = [chunk[op.unit] for op in graph.operations]
    found = {Crossing(of[op.index], feed, of[feed]) for op in graph.operations
             for feed in op.feeds if feed >= 0 and of[feed] != of[op.index]}  # fmt: skip
    return sorted(found)


def neighbours(every: Sequence[Crossing], stages: int) -> list[tuple[int, int]]:
    """Pairs of stages between which something crosses, each way."""
    there = {(one.source % stages, one.target % stages) for one in every}
    return sorted({way for a, b in there if a != b for way in ((a, b), (b, a))})


def arrivals(
    every: Sequence[Crossing], turns: Sequence[Pass], stage: int, stages: int, to: int
) -> Iterator[tuple[Pass, int]]:
    """What one stage sends to another, in order: the pass that wants it, and the crossing."""
    for this in turns:
        at = this.chunk * stages + stage
        for number, one in enumerate(every):
            made, wanted = (one.source, one.target) if this.forward else (one.target, one.source)
            chunk, there = divmod(wanted, stages)
            if made == at and there == to != stage:
                yield replace(this, chunk=chunk), number

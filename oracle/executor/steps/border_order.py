"""Tensors that cross between pipeline stages, and the order in which stages send them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from oracle.executor.local.graph import OperationGraph
from oracle.executor.local.parts import Interval
from oracle.executor.steps.schedule import Pass


class Crossing(NamedTuple):
    """A tensor that one chunk makes and another reads; chunks are counted along the model."""

    target: int
    operation: int
    source: int


def crossings(graph: OperationGraph, stages: Sequence[Interval]) -> list[Crossing]:
    """Tensors that go from chunk to chunk: each once, directly, to every chunk that reads it."""
    chunk_of_unit = {unit: number for number, units in enumerate(stages) for unit in range(*units)}
    chunk = [chunk_of_unit[op.unit] for op in graph.operations]
    return sorted({
        Crossing(chunk[op.index], feed, chunk[feed])
        for op in graph.operations for feed in op.feeds
        if feed >= 0 and chunk[feed] != chunk[op.index]
    })  # fmt: skip


def neighbours(every_crossing: Sequence[Crossing], stages: int) -> list[tuple[int, int]]:
    """Pairs of stages between which something crosses, each way."""
    pairs = {(crossing.source % stages, crossing.target % stages) for crossing in every_crossing}
    return sorted({way for a, b in pairs if a != b for way in ((a, b), (b, a))})


def arrivals(
    every_crossing: Sequence[Crossing], turns: Sequence[Pass], stage: int, stages: int, to: int
) -> Iterator[tuple[Pass, int]]:
    """The crossings that one stage sends to another, in order, each with the pass that wants it."""
    for turn in turns:
        sender = turn.chunk * stages + stage
        for number, crossing in enumerate(every_crossing):
            source, target = crossing.source, crossing.target
            if not turn.forward:
                source, target = target, source
            chunk, target_stage = divmod(target, stages)
            if source == sender and target_stage == to != stage:
                yield replace(turn, chunk=chunk), number

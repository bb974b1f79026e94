"""Runs of operations of a chunk that run together, and are recomputed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.executor.local.graph import Operation, OperationGraph
from oracle.executor.local.parts import Interval
from oracle.plan.strategies.recompute import inside


@dataclass(frozen=True)
class Span:
    """Operations of a unit, or of a recomputed block, with what they read and hand on."""

    unit: int  # the first
    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]  # operations before it whose outputs it reads; -1: the samples
    owners: tuple[int, ...]  # units that made the inputs; its own for those of other chunks
    outputs: tuple[int, ...]  # its outputs that others read; the last one at the end of a chunk
    done: tuple[int, ...]  # inputs that nobody in the chunk reads from here on
    remade: bool  # lies in a block that may be recomputed


def spans_of(graph: OperationGraph, units: Interval, blocks: bool) -> list[Span]:
    """The spans of a chunk; with `blocks`, the recomputed units of one block are one span."""
    chunk = graph.of_units(*units)
    begins, remade = graph.model.pieces.begins, inside(graph.model)
    groups: list[list[Operation]] = []
    for op in chunk:
        first = not groups or op.unit != groups[-1][-1].unit
        joins = blocks and first and groups and not begins[op.unit] and bool(
            remade[op.row] and remade[groups[-1][-1].row])  # fmt: skip
        if first and not joins:
            groups.append([])
        groups[-1].append(op)
    indices = {op.index for op in chunk}
    read: dict[int, int] = {}  # the last operation of the chunk that reads a tensor
    elsewhere = (op for op in graph.operations if op.index not in indices)
    outside = {feed for op in elsewhere for feed in op.feeds} & indices
    for op in chunk:
        read.update(dict.fromkeys(op.feeds, op.index))
    unit: dict[int, int] = {}
    for op in chunk:  # a view belongs to the unit of the tensor that it is of
        viewed = op.shape.kind in ("flatten", "reshape")
        unit[op.index] = unit.get(op.feeds[0], op.unit) if viewed else op.unit
    return [_span(group, read, outside, unit, bool(remade[group[0].row])) for group in groups]


def _span(
    group: Sequence[Operation], read: dict[int, int], outside: set[int], unit: dict[int, int],
    remade: bool,
) -> Span:  # fmt: skip
    end = max(unit)
    members, last = {op.index for op in group}, group[-1].index
    inputs = tuple(dict.fromkeys(feed for op in group for feed in op.feeds if feed not in members))
    outputs = tuple(op.index for op in group if read.get(op.index, -1) > last
                    or op.index in outside or op.index == end
                    or (op.shape.kind == "loss" and op.index not in read))  # fmt: skip
    done = tuple(feed for feed in inputs if read[feed] <= last and feed not in outside)
    owners = tuple(unit.get(feed, group[0].unit) for feed in inputs)
    return Span(group[0].unit, tuple(group), inputs, owners, outputs, done, remade)

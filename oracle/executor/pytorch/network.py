"""The chunks of a model on one device as one module of units, each a run of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from oracle.executor.local.graph import Operation, OperationGraph
from oracle.executor.local.parts import Interval
from oracle.executor.local.spans import Span, spans_of
from oracle.executor.passes import operators
from oracle.executor.pytorch.modules import dealt, fill, module_of, place_of


class Unit(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Rows that run together: a block, or a piece of the model between two of its cuts."""

    def __init__(self, span: Span, parts: int) -> None:
        super().__init__()
        self.span = span
        self.rows = nn.ModuleDict({str(op.index): module_of(op, parts) for op in span.operations})

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = dict(zip(self.span.inputs, inputs, strict=True))
        last = {feed: op.index for op in self.span.operations for feed in op.feeds}
        for op in self.span.operations:
            row_inputs = [outputs[feed] for feed in op.feeds]
            outputs[op.index] = self.rows[str(op.index)](*row_inputs)
            del row_inputs
            for feed in op.feeds:
                if last[feed] == op.index and feed not in self.span.outputs:
                    outputs.pop(feed, None)
        return tuple(outputs[index] for index in self.span.outputs)


class Network(nn.Module):  # type: ignore[misc]
    """The units of a model in order, handing on what later units read.

    It takes the tensors that are alive where it begins, in the order of `inputs`, and returns
    those that are alive where it ends, in the order of `outputs`: for a whole model the samples
    and its last output.
    """

    def __init__(
        self, layers: OperationGraph, units: Interval, *, seed: int, dtype: torch.dtype,
        blocks: bool = False, parts: int = 1, last: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.parts, self.layers = parts, layers
        self.last = last  # channels stand last in its tensors
        spans = spans_of(layers, units, blocks)
        self.inputs, self.outputs = alive(layers, units[0]), alive(layers, units[1])
        self.units = nn.ModuleList([Unit(span, parts) for span in spans])
        # inputs of each unit that no later unit needs
        self.done = [set(span.done) - set(self.outputs) for span in spans]
        for op, row in self.rows():
            fill(row, op, seed, dtype, parts)
        self.tie()

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        laid = map(channels_last, inputs) if self.last else inputs
        live = dict(zip(self.inputs, laid, strict=True))
        del inputs, laid
        for unit, done in zip(self.units, self.done, strict=True):
            span = span_in(unit)
            unit_inputs = [live[feed] for feed in span.inputs]
            for feed in done:
                live.pop(feed)
            live.update(zip(span.outputs, unit(*unit_inputs), strict=True))
            del unit_inputs
        outputs = tuple(live[index] for index in self.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def rows(self) -> Iterator[tuple[Operation, nn.Module]]:
        """Each operation with its module, whatever was wrapped around it."""
        for unit in self.units:
            for op in span_in(unit).operations:
                yield op, row_of(unit, op)

    def lay_weights(self) -> None:
        """Lay weights out in memory as activations are; those of `fully_shard` may not be."""
        for weight in self.parameters() if self.last else ():
            weight.data = channels_last(weight.data)

    def tie(self) -> None:
        """Let tied matrices use the table of the embedding."""
        for op, row in self.rows():
            if op.shape.tied:
                row.weight = self.table

    @property
    def table(self) -> nn.Parameter:
        """The table that words are looked up in."""
        row = next(row for op, row in self.rows() if op.shape.kind == "embedding")
        owner, name = place_of(row, "table")
        table: nn.Parameter = getattr(owner, name)
        return table

    def weights(self) -> Iterator[tuple[Operation, str, Tensor]]:
        """Each weight with its row and its name; a tied one once."""
        for op, row in self.rows():
            for name in operators.weights_of(op):
                owner, attribute = place_of(row, name)
                yield op, name, getattr(owner, attribute)

    def full_weights(self) -> dict[str, Tensor]:
        """All weights of this device, gathered from all ranks, in the model's own order."""
        weights = {}
        for op, name, weight in self.weights():
            value = weight.detach()
            value = value.full_tensor() if hasattr(value, "full_tensor") else value.clone()
            if (order := dealt(op, self.parts)) is not None:
                value = torch.empty_like(value).index_copy_(0, order, value)
            weights[f"{op.index}.{name}"] = value
        return weights


def channels_last(x: Tensor) -> Tensor:
    """The tensor with channels last in memory, if it is of planes or volumes."""
    kinds = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=kinds[x.dim()]) if x.dim() in kinds else x


def span_in(unit: nn.Module) -> Span:
    """The span of a unit, wrapped or not."""
    span: Span = getattr(unit, "_checkpoint_wrapped_module", unit).span
    return span


def row_of(unit: nn.Module, op: Operation) -> nn.Module:
    """The module of a row of a unit, wrapped or not."""
    row = getattr(unit, "_checkpoint_wrapped_module", unit).rows[str(op.index)]
    return getattr(row, "_checkpoint_wrapped_module", row)


def alive(layers: OperationGraph, unit: int) -> tuple[int, ...]:
    """Operations made before a unit and read from it on; -1: the samples; at the end the last."""
    before = {op.index for op in layers.operations if op.unit < unit} | {-1}
    after = [op for op in layers.operations if op.unit >= unit]
    if not after:
        return (layers.operations[-1].index,)
    return tuple(sorted({feed for op in after for feed in op.feeds} & before))


def without_loss(layers: OperationGraph) -> tuple[OperationGraph, Operation | None]:
    """The model without its loss, and the loss, if it ends with one."""
    *rest, last = layers.operations
    if last.shape.kind != "loss":
        return layers, None
    return replace(layers, operations=tuple(rest)), last


def loss_of(op: Operation | None, y: Tensor, target: Tensor, batch: int) -> Tensor:
    """The loss of this device; the sum over all devices is the mean over the batch."""
    if op is None:
        return operators.mean_square(y, batch)
    positions = math.prod(op.shape.given.extents)
    return operators.summed_loss(op, y, target) / (batch * positions)


def units_of(stages: Sequence[Interval], last: int) -> list[Interval]:
    """Units of each stage, of a model that ends without its loss after `last` units."""
    return [(begin, min(end, last)) for begin, end in stages]

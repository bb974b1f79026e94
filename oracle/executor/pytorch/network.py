"""The chunks of a model on one device as one module of units, each a run of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from oracle.executor import operators
from oracle.executor.graph import Operation, OperationGraph
from oracle.executor.parts import Interval
from oracle.executor.pytorch.modules import dealt, fill, module_of, place_of
from oracle.executor.spans import Span, spans_of


class Unit(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Rows that run together: a block, or a piece of the model between two of its cuts."""

    def __init__(self, span: Span, parts: int) -> None:
        super().__init__()
        self.span = span
        self.rows = nn.ModuleDict({str(op.index): module_of(op, parts) for op in span.operations})

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        made = dict(zip(self.span.given, inputs, strict=True))
        last = {feed: op.index for op in self.span.operations for feed in op.feeds}
        for op in self.span.operations:
            taken = [made[feed] for feed in op.feeds]
            made[op.index] = self.rows[str(op.index)](*taken)
            del taken
            for feed in op.feeds:
                if last[feed] == op.index and feed not in self.span.made:
                    made.pop(feed, None)
        return tuple(made[index] for index in self.span.made)


class Network(nn.Module):  # type: ignore[misc]
    """Units in order; what later ones read is handed on beside.

    It takes what is alive where it begins, in the order of `given`, and makes what is alive where
    it ends, in the order of `made`: of a whole model the samples and its last output.
    """

    def __init__(
        self, layers: OperationGraph, units: Interval, *, seed: int, dtype: torch.dtype,
        blocks: bool = False, parts: int = 1, last: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.parts, self.layers = parts, layers
        self.last = last  # channels stand last in its tensors
        spans = spans_of(layers, units, blocks)
        self.given, self.made = alive(layers, units[0]), alive(layers, units[1])
        self.units = nn.ModuleList([Unit(span, parts) for span in spans])
        # each unit's reads that nobody after it wants
        self.done = [set(span.done) - set(self.made) for span in spans]
        for op, row in self.rows():
            fill(row, op, seed, dtype, parts)
        self.tie()

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        laid = map(channels_last, inputs) if self.last else inputs
        live = dict(zip(self.given, laid, strict=True))
        del inputs, laid
        for unit, done in zip(self.units, self.done, strict=True):
            span = span_in(unit)
            taken = [live[feed] for feed in span.given]
            for feed in done:
                live.pop(feed)
            live.update(zip(span.made, unit(*taken), strict=True))
            del taken
        made = tuple(live[index] for index in self.made)
        return made[0] if len(made) == 1 else made

    def rows(self) -> Iterator[tuple[Operation, nn.Module]]:
        """Each operation with its module, whatever was wrapped around it."""
        for unit in self.units:
            for op in span_in(unit).operations:
                yield op, row_of(unit, op)

    def lay_weights(self) -> None:
        """Let weights stand in memory as activations do; those of `fully_shard` may not."""
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
        found: nn.Parameter = getattr(owner, name)
        return found

    def weights(self) -> Iterator[tuple[Operation, str, Tensor]]:
        """Each weight with its row and its name; a tied one once."""
        for op, row in self.rows():
            for name in operators.weights_of(op):
                owner, own = place_of(row, name)
                yield op, name, getattr(owner, own)

    def whole(self) -> dict[str, Tensor]:
        """All weights held here, put together from all ranks and in the model's own order."""
        found = {}
        for op, name, weight in self.weights():
            value = weight.detach()
            value = value.full_tensor() if hasattr(value, "full_tensor") else value.clone()
            if (order := dealt(op, self.parts)) is not None:
                value = torch.empty_like(value).index_copy_(0, order, value)
            found[f"{op.index}.{name}"] = value
        return found


def channels_last(x: Tensor) -> Tensor:
    """The same tensor with its channels last in memory, if it is of planes or of volumes."""
    kinds = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=kinds[x.dim()]) if x.dim() in kinds else x


def span_in(unit: nn.Module) -> Span:
    """The rows of a unit, wrapped or not."""
    found: Span = getattr(unit, "_checkpoint_wrapped_module", unit).span
    return found


def row_of(unit: nn.Module, op: Operation) -> nn.Module:
    """The module of a row of a unit, wrapped or not."""
    row = getattr(unit, "_checkpoint_wrapped_module", unit).rows[str(op.index)]
    return getattr(row, "_checkpoint_wrapped_module", row)


def alive(layers: OperationGraph, unit: int) -> tuple[int, ...]:
    """What has been made before a unit and is read from it on; -1: the samples; at the end, all."""
    before = {op.index for op in layers.operations if op.unit < unit} | {-1}
    after = [op for op in layers.operations if op.unit >= unit]
    if not after:
        return (layers.operations[-1].index,)
    return tuple(sorted({feed for op in after for feed in op.feeds} & before))


def without_loss(layers: OperationGraph) -> tuple[OperationGraph, Operation | None]:
    """The model up to what its loss is of, and the loss, if it ends with one."""
    *rest, last = layers.operations
    if last.shape.kind != "loss":
        return layers, None
    return replace(layers, operations=tuple(rest)), last


def loss_of(op: Operation | None, y: Tensor, target: Tensor, batch: int) -> Tensor:
    """The loss of this device: the sum over all is the mean over the batch."""
    if op is None:
        return (y**2).sum() / (batch * math.prod(y.shape[1:]))
    positions = math.prod(op.shape.given.extents)
    return operators.summed_loss(op, y, target) / (batch * positions)


def units_of(stages: Sequence[Interval], last: int) -> list[Interval]:
    """Units of each stage, of a model that ends without its loss after `last` units."""
    return [(begin, min(end, last)) for begin, end in stages]

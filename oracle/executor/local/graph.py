"""Operations of a model: its rows with every copy unrolled, in the order in which they run.

The columns of a `Model` fold equal blocks and hold shapes only. To run it, each copy needs
weights of its own and each operation what its layer said: padding, function, bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.models.build import Network
from oracle.models.layers import Layer, Placed, Row, Shape
from oracle.models.model import Model, network
from oracle.models.model import model as read_model
from oracle.spec.software import PLAIN


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of one copy: what runs, on whose outputs, with whose weights."""

    index: int
    row: int  # in the model's columns
    shape: Row
    layer: Layer
    part: str  # which row of its layer: "" when it has only one, else "qkv", "core", "up", …
    feeds: tuple[int, ...]  # operations whose outputs it takes; -1 is the input
    unit: int = 0  # the piece of the model that a pipeline deals out

    @property
    def label(self) -> str:
        return f"{self.index} {self.shape.name}"


@dataclass(frozen=True)
class OperationGraph:
    """All operations of a model, and the model whose rows they are."""

    model: Model
    operations: tuple[Operation, ...]

    @property
    def units(self) -> int:
        return self.operations[-1].unit + 1

    def of_units(self, start: int, stop: int) -> list[Operation]:
        return [op for op in self.operations if start <= op.unit < stop]


def sample_shape(shape: Shape, extents: Sequence[int] | None = None) -> tuple[int, ...]:
    """Sizes of a sample's tensor, channels first, of tokens last; `extents` may be a part's."""
    extents = shape.extents if extents is None else extents
    return (*extents, shape.channels) if shape.tokens else (shape.channels, *extents)


def graph(source: Any) -> OperationGraph:
    """Unroll a model by shipped name, path or dict."""
    spec, node, _, _ = network(source)
    model = read_model(source)
    if spec.transformer is not None:
        items: Sequence[Placed] = spec.transformer.placed(node, PLAIN.kernels)
        input_shape = Shape(1, (spec.transformer.sequence,), tokens=True)
    else:
        items, input_shape = spec.layers, Shape(spec.input[0], tuple(spec.input[1:]))
    walk = _Unroller(spec, model)
    walk.place(items, (input_shape, -1), {"input": (input_shape, -1)})
    if walk.row != len(model):
        raise ValueError(f"{spec.name}: {walk.row} rows were found of {len(model)}")
    return OperationGraph(model, tuple(_with_units(model, walk.operations)))


At = tuple[Shape, int]


class _Unroller:
    """Follows a spec as shape inference does, through every copy of a repeated block."""

    def __init__(self, spec: Network, model: Model) -> None:
        self.spec, self.model = spec, model
        self.operations: list[Operation] = []
        self.row, self.nested = 0, False

    def place(self, items: Sequence[Placed], position: At, scope: dict[str, At]) -> At:
        for item in items:
            place = self.place_block if item.layer is None else self.place_layer
            position = place(item, position, scope)
        return position

    def place_layer(self, item: Placed, position: At, scope: dict[str, At]) -> At:
        layer = item.layer
        assert layer is not None
        inputs = [scope[word] for word in layer.inputs] or [position]
        entry = feeds = tuple(index for _, index in inputs)
        rows = list(layer.rows([shape for shape, _ in inputs]))
        for shape in rows:
            part = shape.name.rpartition(".")[2] if len(rows) > 1 else ""
            index = len(self.operations)
            back = tuple(index - steps if steps else entry[0] for steps in shape.takes)
            row_feeds = entry if shape.entry else back or feeds
            self.operations.append(Operation(index, self.row, shape, layer, part, row_feeds))
            feeds, self.row = (index,), self.row + 1
        position = (rows[-1].made, len(self.operations) - 1)
        if layer.name:
            scope[layer.name] = position
        return position

    def place_block(self, item: Placed, position: At, scope: dict[str, At]) -> At:
        """Unroll a repeated block; copies that the model folds run over the same rows again."""
        copies_left = item.repeat
        while copies_left:
            begin, entered = self.row, position[0]
            outer, self.nested = self.nested, True
            position = self.place(item.block, position, {**scope, "block": position})
            self.nested = outer
            folded = copies_left if position[0] == entered and not self.nested else 1
            for _ in range(folded - 1):
                self.row, self.nested = begin, True
                position = self.place(item.block, position, {**scope, "block": position})
                self.nested = outer
            copies_left -= folded
        if item.name:
            scope[item.name] = position
        return position


def _with_units(model: Model, operations: Sequence[Operation]) -> Iterator[Operation]:
    """Number the unit of each operation: each unit takes its rows in order."""
    counts, _ = model.units
    after = iter(operations)
    for unit, rows in enumerate(np.asarray(counts)):
        for row in np.flatnonzero(rows):
            op = next(after)
            if op.row != row:
                raise ValueError(f"unit {unit} wants row {row}, {op.label} is row {op.row}")
            yield Operation(op.index, op.row, op.shape, op.layer, op.part, op.feeds, unit)

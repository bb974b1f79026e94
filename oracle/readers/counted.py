"""Operators of a traced graph as `opaque` layers, and checks of known layers against counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from oracle.models.layers import Misfit, Shape, kinds
from oracle.readers.operations import Counted, Dims

# families of kernels of PyTorch's operators
KERNELS = {
    "_embedding_bag": "tables", "_fft_r2c": "fft", "_fft_c2r": "fft", "_fft_c2c": "fft",
    "lstm": "recurrent", "gru": "recurrent", "rnn_tanh": "recurrent", "rnn_relu": "recurrent",
}  # fmt: skip
MISFIT = -1  # in place of a layer's weights where its input does not fit


class Written(Protocol):
    """A layer of a spec to be written."""

    kind: str
    fields: dict[str, Any]


def per_sample(dims: Dims, batch: int) -> int:
    """Return the elements of one sample, rounded up."""
    return max(1, -(-math.prod(dims) // batch))


def shape_of(dims: Dims, batch: int) -> Shape:
    """Return the shape of one sample: channels are second in pictures and volumes, else last."""
    if len(dims) in (4, 5) and dims[0] == batch:
        return Shape(dims[1], dims[2:])
    size, last = per_sample(dims, batch), dims[-1] if dims else 1
    if last < 1 or size % last:
        return Shape(size)
    return Shape(last, (size // last,), True) if size > last else Shape(last)


def as_counted(cost: Counted, batch: int, weights: int) -> tuple[dict[str, Any], Shape]:
    """Return the fields of an `opaque` layer, and the shape of its output."""
    output = shape_of(cost.made, batch)
    fields: dict[str, Any] = {"op": cost.op, "at": cost.at, **_output_fields(output)}
    for name in ("flop", "moves", "moves_back", "kept"):
        fields[name] = _number(getattr(cost, name) / batch)
    fields |= {"weights": weights, "keeps": cost.keeps, "each": cost.each}
    if cost.steps > 1:
        fields["steps"] = cost.steps
    fields["family"] = KERNELS.get(cost.op, "")
    return {key: value for key, value in fields.items() if value}, output


def norms_beside(
    costs: Sequence[Counted], batch: int, weights: int, shape: Shape
) -> dict[str, Any]:
    """Return an `opaque` layer of the norms of queries and keys, to follow their attention."""
    moved = {name: _number(sum(getattr(cost, name) for cost in costs) / batch)
             for name in ("moves", "moves_back")}  # fmt: skip
    return {"op": "norms of queries and keys", "at": costs[0].at, **_output_fields(shape), **moved,
            "weights": weights, "each": True}  # fmt: skip


def as_part(have: Shape, want: Shape) -> tuple[dict[str, Any], Shape]:
    """Return an `opaque` view of a part of a tensor or of repeated values: gradients move."""
    fields = {"op": "part", **_output_fields(want), "moves_back": have.size + want.size}
    if have.extents == want.extents:
        fields["each"] = True
    return fields, want


def _number(value: float) -> float:
    """Return a number as a spec file writes it."""
    return int(value) if value == int(value) else round(value, 3)


def _output_fields(shape: Shape) -> dict[str, Any]:
    fields: dict[str, Any] = {"made": [shape.channels, *shape.extents]}
    return {**fields, "tokens": True} if shape.tokens else fields


def weights_of(item: Written, input_shape: Shape) -> int:
    """Return the weights of a layer by its kind, or MISFIT where its input does not fit."""
    kind: Any = kinds().get(item.kind)
    if kind is None:  # a function of each element
        return 0
    arguments = {key: tuple(v) if isinstance(v, list) else v for key, v in item.fields.items()}
    try:
        inputs = (input_shape, input_shape) if getattr(kind, "several", False) else (input_shape,)
        return sum(int(row.weights) for row in kind(**arguments).rows(inputs))
    except (Misfit, TypeError):
        return MISFIT

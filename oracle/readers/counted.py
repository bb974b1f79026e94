"""Operators of a traced graph as `opaque` layers, and what known layers are checked by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from oracle.models.layers import Misfit, Shape, kinds
from oracle.readers.operations import Counted, Dims

# families of kernels that operators of PyTorch are
KERNELS = {
    "_embedding_bag": "tables", "_fft_r2c": "fft", "_fft_c2r": "fft", "_fft_c2c": "fft",
    "lstm": "recurrent", "gru": "recurrent", "rnn_tanh": "recurrent", "rnn_relu": "recurrent",
}  # fmt: skip
MISFIT = -1  # weights of a layer that its input does not fit


class Written(Protocol):
    """A layer to be written."""

    kind: str
    fields: dict[str, Any]


def per_sample(dims: Dims, batch: int) -> int:
    """Elements of one sample, rounded up."""
    return max(1, -(-math.prod(dims) // batch))


def shape_of(dims: Dims, batch: int) -> Shape:
    """Of one sample: pictures and volumes have their channels second, all else has them last."""
    if len(dims) in (4, 5) and dims[0] == batch:
        return Shape(dims[1], dims[2:])
    size, last = per_sample(dims, batch), dims[-1] if dims else 1
    if last < 1 or size % last:
        return Shape(size)
    return Shape(last, (size // last,), True) if size > last else Shape(last)


def as_counted(cost: Counted, batch: int, weights: int) -> tuple[dict[str, Any], Shape]:
    """The fields of an `opaque` layer, and what it makes."""
    made = shape_of(cost.made, batch)
    fields: dict[str, Any] = {"op": cost.op, "at": cost.at, **_made(made)}
    for name in ("flop", "moves", "moves_back", "kept"):
        fields[name] = _number(getattr(cost, name) / batch)
    fields |= {"weights": weights, "keeps": cost.keeps, "each": cost.each}
    if cost.steps > 1:
        fields["steps"] = cost.steps
    fields["family"] = KERNELS.get(cost.op, "")
    return {key: value for key, value in fields.items() if value}, made


def beside(costs: Sequence[Counted], batch: int, weights: int, made: Shape) -> dict[str, Any]:
    """The norms of queries and keys, behind the attention that they are part of."""
    moved = {name: _number(sum(getattr(one, name) for one in costs) / batch)
             for name in ("moves", "moves_back")}  # fmt: skip
    return {"op": "norms of queries and keys", "at": costs[0].at, **_made(made), **moved,
            "weights": weights, "each": True}  # fmt: skip


def as_part(have: Shape, want: Shape) -> tuple[dict[str, Any], Shape]:
    """A view of a part of a tensor, or of values read several times: only gradients move."""
    fields = {"op": "part", **_made(want), "moves_back": have.size + want.size}
    if have.extents == want.extents:
        fields["each"] = True
    return fields, want


def _number(value: float) -> float:
    """As a spec file writes it."""
    return int(value) if value == int(value) else round(value, 3)


def _made(shape: Shape) -> dict[str, Any]:
    made: dict[str, Any] = {"made": [shape.channels, *shape.extents]}
    return {**made, "tokens": True} if shape.tokens else made


def weights_of(item: Written, given: Shape) -> int:
    """The weights of a layer as its kind counts them; MISFIT where its input does not fit."""
    known: Any = kinds().get(item.kind)
    if known is None:  # a function of each element
        return 0
    said = {key: tuple(v) if isinstance(v, list) else v for key, v in item.fields.items()}
    try:
        inputs = (given, given) if getattr(known, "several", False) else (given,)
        return sum(int(row.weights) for row in known(**said).rows(inputs))
    except (Misfit, TypeError):
        return MISFIT

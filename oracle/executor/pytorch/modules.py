"""Rows of a model as modules of PyTorch, each with its seeded weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from oracle.executor.local.cuts import blocks_of
from oracle.executor.local.graph import Operation
from oracle.executor.local.parts import deal
from oracle.executor.local.weights import initial
from oracle.executor.passes import operators
from oracle.executor.supported import NotSupported
from oracle.models.layers import Norm


class RowModule(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """The module of a row, with weights or without."""

    tokens: Tensor | None = None  # numbers of the tokens on this device; None: all tokens

    def __init__(self, op: Operation) -> None:
        super().__init__()
        self.op = op


class Convolution(RowModule):
    """A convolution, transposed or not, over any number of extents."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def forward(self, x: Tensor) -> Tensor:
        run = operators.deconvolution if self.op.shape.kind == "deconv" else operators.convolution
        return run(self.op, x, self.weight, getattr(self, "bias", None))


class Product(nn.Linear):  # type: ignore[misc]
    """A matrix product over the channels at every position."""

    def __init__(self, op: Operation) -> None:
        self.everywhere = not op.shape.given.tokens
        super().__init__(op.shape.given.channels, op.shape.made.channels,
                         bias="bias" in operators.weights_of(op), device="meta")  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        if self.everywhere and x.dim() > 2:
            return super().forward(x.movedim(1, -1)).movedim(-1, 1)
        return super().forward(x)


class Normalisation(RowModule):
    """A norm with the statistics of this device's samples."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def forward(self, x: Tensor) -> Tensor:
        return operators.norm(self.op, x, self.weight, getattr(self, "bias", None))


class Lookup(nn.Embedding):  # type: ignore[misc]
    """A table whose rows are looked up."""

    def __init__(self, op: Operation) -> None:
        rows, width = operators.weights_of(op)["table"]
        super().__init__(rows, width, device="meta")


class PositionedLookup(RowModule):
    """A table whose rows are looked up, with the vectors of their positions added."""

    positions: nn.Parameter

    def __init__(self, op: Operation) -> None:
        super().__init__(op)
        self.table = Lookup(op)

    def forward(self, tokens: Tensor) -> Tensor:
        numbers = slice(tokens.shape[1]) if self.tokens is None else self.tokens
        return self.table(tokens) + self.positions[numbers]


class Positions(RowModule):
    """Adds vectors of positions, after putting tokens first that no sample has."""

    positions: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "extra"):
            x = torch.cat([self.extra.expand(x.shape[0], *self.extra.shape), x], 1)
        return x + (self.positions if self.tokens is None else self.positions[self.tokens])


class Attention(RowModule):
    """Attention of this device's heads."""

    def __init__(self, op: Operation, parts: int) -> None:
        super().__init__(op)
        self.heads, self.kv_heads = op.shape.heads // parts, op.shape.kv_heads // parts

    def forward(self, x: Tensor) -> Tensor:
        return operators.attention(self.op, x, self.heads, self.kv_heads)


class Rotation(RowModule):
    """Rotary positions of this device's heads."""

    def __init__(self, op: Operation, parts: int) -> None:
        super().__init__(op)
        layer = op.layer
        heads: int = layer.heads  # type: ignore[attr-defined]
        kv_heads: int = layer.kv_heads or heads  # type: ignore[attr-defined]
        self.width = op.shape.given.channels // (heads + 2 * kv_heads)
        self.heads, self.kv_heads = heads // parts, kv_heads // parts

    def forward(self, x: Tensor) -> Tensor:
        numbers = 0 if self.tokens is None else self.tokens
        return operators.rotary(x, self.heads, self.kv_heads, self.width, numbers)


class Function(RowModule):
    """A row without weights."""

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        op, shape, kind = self.op, self.op.shape, self.op.shape.kind
        if kind == "pool":
            return operators.pool(op, x)
        if kind == "activation":
            return operators.activation(op, x)
        if kind == "mlp":
            return operators.mlp_function(op, x)
        if kind == "add":
            return torch.stack((x, *more)).sum(0) if len(more) > 1 else x + more[0]
        if kind == "concat":
            return torch.cat((x, *more), -1 if shape.made.tokens else 1)
        if kind == "first":
            return x[:, :1]
        if kind in ("flatten", "reshape"):
            return operators.reshape(x, shape.given, shape.made)
        if kind == "dropout":
            rate: float = op.layer.rate  # type: ignore[attr-defined]
            return functional.dropout(x, rate, self.training)
        raise NotSupported(f"{op.label}: layers of kind `{kind}`")


def module_of(op: Operation, parts: int) -> nn.Module:
    """The module of a row, of which `parts` tensor-parallel ranks hold the heads."""
    shape, kind = op.shape, op.shape.kind
    heads = parts if shape.role == "heads" else 1
    if shape.work == "conv":
        return Convolution(op)
    if shape.work == "gemm":
        return Product(op)
    if shape.work == "attention":
        return Attention(op, heads)
    if kind == "attention":
        return Rotation(op, heads)
    if kind == "norm":
        return _norm(op)
    if kind == "embedding":
        return PositionedLookup(op) if "positions" in operators.weights_of(op) else Lookup(op)
    if kind == "position":
        return Positions(op)
    return Function(op)


def _norm(op: Operation) -> nn.Module:
    """The module of a norm, PyTorch's own where it has one of tokens."""
    layer, width = op.layer, op.shape.given.channels
    assert isinstance(layer, Norm)
    if op.shape.given.tokens and layer.op == "layer":
        return nn.LayerNorm(width, bias="bias" in operators.weights_of(op), device="meta")
    if op.shape.given.tokens and layer.op == "rms":
        return nn.RMSNorm(width, eps=1e-5, device="meta")
    return Normalisation(op)


def place_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that holds a weight of a row, and the weight's name there."""
    if isinstance(module, PositionedLookup) and name == "table":
        return module.table, "weight"
    return module, "weight" if name == "table" else name


def fill(module: nn.Module, op: Operation, seed: int, dtype: torch.dtype, parts: int) -> None:
    """Give a row the weights that every engine begins with."""
    for name, shape in operators.weights_of(op).items():
        value = initial(op, name, shape, seed).to(dtype)
        if (order := dealt(op, parts)) is not None:
            value = value[order]
        owner, attribute = place_of(module, name)
        setattr(owner, attribute, nn.Parameter(value))


def dealt(op: Operation, parts: int) -> Tensor | None:
    """The order of a matrix's rows that puts each rank's side by side; None where it is so."""
    if parts == 1 or op.shape.role != "column":
        return None
    blocks = [deal(count, parts, begin) for begin, count in blocks_of(op, parts)]
    return torch.cat([torch.arange(*block[i]) for i in range(parts) for block in blocks])

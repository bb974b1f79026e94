"""Layers of any tensor: matrices, norms, functions of an element, sums, shapes, the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from oracle.models.layers.base import Layer, Misfit, Row, Shape
from oracle.spec.schema import Count, Fraction


@dataclass(frozen=True)
class Dense(Layer):
    """A matrix applied to the channels at every position."""

    filters: Count
    bias: bool = True
    role: Literal["", "column", "row", "vocab"] = ""
    tied: bool = False

    shorthand: ClassVar[str] = "filters"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape = shapes[0]
        weights = (0 if self.tied else shape.channels * self.filters) + self.bias * self.filters
        yield Row(
            self.name or "dense", "dense", "gemm", shape, replace(shape, channels=self.filters),
            weights=weights, role=self.role, needs="x", tied=self.tied, bias=self.bias,
        )  # fmt: skip


@dataclass(frozen=True)
class Norm(Layer):
    """Batch, layer, group, instance or RMS normalisation.

    Where it is not fused, RMS is written out operator by operator, in fp32 between two casts
    (counted for 16-bit tensors); the others are one kernel in every framework.
    """

    op: Literal["batch", "layer", "rms", "group", "instance"] = "batch"
    affine: bool = True
    bias: bool | None = None
    fused: bool = True

    shorthand: ClassVar[str] = "op"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape = shapes[0]
        shift = self.op != "rms" if self.bias is None else self.bias
        weights = shape.channels * (1 + shift) if self.affine else 0
        if self.op == "rms" and not self.fused:  # cast, square, mean, scale, cast, weight
            yield Row(
                self.name or "norm", "norm", "stream", shape, shape, weights=weights, needs="x",
                sequence=shape.tokens, reads=(12, 6), rereads=(18, 18), pieces=4,
                extra_kept=shape.size, extra_bytes=4.0 * shape.size,
            )  # fmt: skip
            return
        # statistics need a pass of their own where they span samples or pixels
        first = 2.0 if self.op in ("batch", "group", "instance") else 1.0
        yield Row(
            self.name or "norm", "norm", "stream", shape, shape, weights=weights, needs="x",
            sequence=shape.tokens, reads=(first, 1), rereads=(first, 1 + first),
            spans=self.op if first > 1 else "",
        )  # fmt: skip


@dataclass(frozen=True)
class Activation(Layer):
    """A function of each element; relu is done in place and keeps its output only."""

    op: Literal["relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "swish"] = (
        "relu"
    )

    shorthand: ClassVar[str] = "op"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        output = self.op in ("relu", "leaky_relu", "tanh", "sigmoid", "softmax")
        yield Row(
            self.name or self.op, "activation", "stream", shapes[0], shapes[0],
            reads=(1, 1), rereads=(2 - output, 1 + output), needs="y" if output else "x",
        )  # fmt: skip


@dataclass(frozen=True)
class Dropout(Layer):
    """Zeroes some elements and remembers which, one byte each."""

    rate: Fraction = 0.1

    shorthand: ClassVar[str] = "rate"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        yield Row(
            self.name or "dropout", "dropout", "stream", shapes[0], shapes[0], reads=(1, 1.5),
            rereads=(0.5, 2), sequence=shapes[0].tokens, extra_bytes=float(shapes[0].size),
        )  # fmt: skip


@dataclass(frozen=True)
class Add(Layer):
    """The sum of two or more equal shapes: where a residual joins."""

    dropout: bool = False  # of the newest branch, fused into the sum

    several: ClassVar[bool] = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        if len(shapes) < 2 or len({(s.channels, s.extents) for s in shapes}) > 1:
            listed = ", ".join(map(str, shapes))
            raise Misfit(f"only equal shapes add up, here: {listed}")
        mask = float(shapes[0].size) if self.dropout else 0.0
        yield Row(
            self.name or "add", "add", "stream", shapes[0], shapes[0], sequence=shapes[0].tokens,
            reads=(len(shapes), 1), rereads=(1, 0.0 if not mask else 1.0), extra_bytes=mask,
        )  # fmt: skip


@dataclass(frozen=True)
class Concat(Layer):
    """Channels of several inputs side by side."""

    several: ClassVar[bool] = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        if len({s.extents for s in shapes}) > 1:
            raise Misfit(f"extents differ: {', '.join(map(str, shapes))}")
        output = replace(shapes[0], channels=sum(s.channels for s in shapes))
        yield Row(
            self.name or "concat", "concat", "stream", output, output, reads=(1, 1), rereads=(1, 1)
        )


@dataclass(frozen=True)
class Scale(Layer):
    """A tensor times one number a channel, the second input: squeeze and excitation."""

    several: ClassVar[bool] = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        if len(shapes) != 2 or shapes[0].channels != shapes[1].channels:
            listed = ", ".join(map(str, shapes))
            raise Misfit(f"two inputs of as many channels are multiplied, here: {listed}")
        # backward: dx reads dy and is written; so is dy · x, which is read to be summed by channel
        yield Row(
            self.name or "scale", "scale", "stream", shapes[0], shapes[0], reads=(1, 1),
            rereads=(4, 2), needs="x",
        )  # fmt: skip


@dataclass(frozen=True)
class Flatten(Layer):
    """Extents become channels; nothing is moved."""

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        yield Row(self.name or "flatten", "flatten", "stream", shapes[0], Shape(shapes[0].size))


@dataclass(frozen=True)
class Reshape(Layer):
    """The same elements under another shape: patches become tokens, tokens a picture."""

    to: tuple[Count, ...]
    tokens: bool = False

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        output = Shape(self.to[0], self.to[1:], self.tokens)
        if output.size != shapes[0].size:
            raise Misfit(f"{shapes[0]} has {shapes[0].size} elements, {output} has {output.size}")
        yield Row(self.name or "reshape", "reshape", "stream", shapes[0], output)


@dataclass(frozen=True)
class Loss(Layer):
    """Softmax and cross-entropy over the channels, in fp32."""

    op: Literal["cross_entropy", "mse", "bce"] = "cross_entropy"
    fused: bool = True  # else its gradient stands beside it, as PyTorch writes it out
    one_kernel: bool = False  # reads the logits as they are and leaves the gradient in their place

    shorthand: ClassVar[str] = "op"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape = shapes[0]
        # cast up, maximum, shift, exponential, sum, division; back: scale, copy, cast down.
        # an fp32 copy of the logits is what is kept; it becomes the gradient in place, or not
        reads, rereads = (0.5, 1.0) if self.one_kernel else (9.5, 5.5)
        extra = 0.0 if self.one_kernel else 4.0 if self.fused else 8.0
        yield Row(self.name or "loss", "loss", "stream", shape, shape, role="vocab",
                  reads=(reads, 0), rereads=(rereads, 0), extra_bytes=extra * shape.size,
                  extra_kept=self.one_kernel * float(shape.size))  # fmt: skip

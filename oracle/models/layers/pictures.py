"""Layers of pictures and volumes: convolutions, pooling, interpolation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from oracle.models.layers.base import Extents, Layer, Misfit, Row, Shape, along
from oracle.spec.schema import Count, Whole


@dataclass(frozen=True)
class Conv(Layer):
    """Convolution over 1-3 extents, with groups, dilation and stride."""

    filters: Count
    kernel: Count | tuple[Count, ...]
    stride: Count | tuple[Count, ...] = 1
    padding: Literal["same", "valid"] | Whole | tuple[Whole, ...] = 0
    dilation: Count | tuple[Count, ...] = 1
    groups: Count = 1
    bias: bool = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, rank = shapes[0], len(shapes[0].extents)
        if not 1 <= rank <= 3:
            raise Misfit(f"a convolution takes 1 to 3 extents, its input {shape} has {rank}")
        kernel, stride = along(self.kernel, rank), along(self.stride, rank)
        dilation = along(self.dilation, rank)
        reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
        extents = tuple(
            (n + pad - r) // s + 1
            for n, pad, r, s in zip(
                shape.extents, self.pads(shape, reach, stride), reach, stride, strict=True
            )
        )
        if min(extents) < 1:
            raise Misfit(f"a window of {'×'.join(map(str, reach))} does not fit into {shape}")
        yield _row(self, "conv", shape, extents, kernel, stride)

    def pads(self, shape: Shape, reach: Extents, stride: Extents) -> Extents:
        """Return the padding of both sides together, per extent."""
        if self.padding == "valid":
            return (0,) * len(reach)
        if self.padding == "same":
            sizes = zip(shape.extents, reach, stride, strict=True)
            return tuple(max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in sizes)
        return tuple(2 * p for p in along(self.padding, len(reach)))


@dataclass(frozen=True)
class Deconv(Layer):
    """Transposed convolution: a stride makes the output larger."""

    filters: Count
    kernel: Count | tuple[Count, ...]
    stride: Count | tuple[Count, ...] = 1
    padding: Whole | tuple[Whole, ...] = 0
    output_padding: Whole | tuple[Whole, ...] = 0
    groups: Count = 1
    bias: bool = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, rank = shapes[0], len(shapes[0].extents)
        if not 1 <= rank <= 3:
            raise Misfit(f"a transposed convolution takes 1 to 3 extents, its input has {rank}")
        kernel, stride = along(self.kernel, rank), along(self.stride, rank)
        pad, extra = along(self.padding, rank), along(self.output_padding, rank)
        sizes = zip(shape.extents, kernel, stride, pad, extra, strict=True)
        extents = tuple((n - 1) * s - 2 * p + k + e for n, k, s, p, e in sizes)
        if min(extents) < 1:
            raise Misfit(f"padding {pad} leaves nothing of {shape}")
        yield _row(self, "deconv", shape, extents, kernel, stride)


def _row(
    layer: Conv | Deconv, kind: str, shape: Shape, extents: Extents, kernel: Extents,
    stride: Extents,
) -> Row:  # fmt: skip
    """Return the row of a convolution, or raise a Misfit where its groups do not fit."""
    if shape.channels % layer.groups or layer.filters % layer.groups:
        raise Misfit(f"{layer.groups} groups do not divide {shape.channels} → {layer.filters}")
    weights = layer.filters * shape.channels // layer.groups * math.prod(kernel)
    return Row(
        layer.name or kind, kind, "conv", shape, Shape(layer.filters, extents, shape.tokens),
        kernel, stride, layer.groups, weights + layer.bias * layer.filters, needs="x",
        bias=layer.bias,
    )  # fmt: skip


@dataclass(frozen=True)
class Pool(Layer):
    """Max or mean over a window; `global` makes every extent one."""

    kernel: Count | tuple[Count, ...] | Literal["global"] = 2
    stride: Count | tuple[Count, ...] | None = None
    padding: Literal["same", "valid"] | Whole | tuple[Whole, ...] = 0
    op: Literal["max", "mean"] = "max"
    ceil: bool = False

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, rank = shapes[0], len(shapes[0].extents)
        if not rank:
            raise Misfit("pooling needs extents, its input has none")
        if self.kernel == "global":
            extents, kernel, stride = (1,) * rank, shape.extents, shape.extents
        else:
            kernel = along(self.kernel, rank)
            stride = along(kernel if self.stride is None else self.stride, rank)
            pads = Conv(1, kernel, padding=self.padding).pads(shape, kernel, stride)
            sizes = list(zip(shape.extents, kernel, stride, pads, strict=True))
            up = [s - 1 if self.ceil else 0 for s in stride]
            extents = tuple(
                (n + p - k + u) // s + 1 for (n, k, s, p), u in zip(sizes, up, strict=True)
            )
            # a window that would start beyond the padded input is dropped, as everybody does
            extents = tuple(
                m - 1 if self.ceil and (m - 1) * s >= n + p // 2 else m
                for m, (n, _, s, p) in zip(extents, sizes, strict=True)
            )
        if min(extents) < 1:
            raise Misfit(f"a window of {kernel} does not fit into {shape}")
        indices = 8.0 * math.prod(extents) * shape.channels if self.op == "max" else 0.0
        yield Row(
            self.name or "pool", "pool", "stream", shape, replace(shape, extents=extents),
            kernel, stride, reads=(1, 1), rereads=(1, 1),
            needs="x" if self.op == "max" else "", extra_bytes=indices,
        )  # fmt: skip


@dataclass(frozen=True)
class Upsample(Layer):
    """The extents made larger by interpolation, by a factor or to given ones."""

    factor: Count = 2
    to: tuple[Count, ...] = ()

    shorthand: ClassVar[str] = "factor"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape = shapes[0]
        extents = self.to or tuple(n * self.factor for n in shape.extents)
        output = replace(shape, extents=along(extents, len(shape.extents)))
        yield Row(self.name or "upsample", "upsample", "stream", shape, output,
                  reads=(1, 1), rereads=(1, 1))  # fmt: skip

"""Attention of one sequence to another: what a decoder does with an encoder's tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from oracle.models.layers.base import Layer, Misfit, Row, Shape, tokens_of
from oracle.spec.schema import Count


@dataclass(frozen=True)
class Cross(Layer):
    """Queries of the first input, keys and values of the second; no mask."""

    heads: Count
    width: Count | None = None  # of one head; hidden / heads if not said
    bias: bool = True
    flash: bool = True
    fused: bool = True  # products add gradients up

    several: ClassVar[bool] = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        if len(shapes) != 2 or any(len(input_shape.extents) != 1 for input_shape in shapes):
            raise Misfit("two sequences of tokens are wanted: whose queries, whose keys and values")
        shape, memory = shapes
        if self.width is None and shape.channels % self.heads:
            raise Misfit(f"{self.heads} heads do not divide {shape.channels} channels")
        inner = self.heads * (self.width or shape.channels // self.heads)
        name, mixed = self.name or "cross", replace(shape, channels=inner)
        keys, kv = tokens_of(memory), replace(memory, channels=2 * inner)
        yield Row(f"{name}.q", "cross", "gemm", shape, mixed, role="column", needs="x", entry=True,
                  weights=(shape.channels + self.bias) * inner, adds=self.fused,
                  bias=self.bias)  # fmt: skip
        yield Row(f"{name}.kv", "cross", "gemm", memory, kv, role="column", needs="x", entry=True,
                  weights=(memory.channels + self.bias) * 2 * inner, adds=self.fused,
                  bias=self.bias)  # fmt: skip
        scores = float(self.heads * tokens_of(shape) * keys)
        yield Row(
            f"{name}.core", "cross", "attention", mixed, mixed, role="heads", needs="xy",
            heads=self.heads, kv_heads=self.heads, width=inner // self.heads, keys=keys,
            takes=(2, 1), flash=self.flash, reads=(2, 2), rereads=(2, 2),
            extra_kept=0.0 if self.flash else scores,
            extra_bytes=4.0 * self.heads * shape.extents[0] * self.flash,
        )  # fmt: skip
        yield Row(f"{name}.out", "cross", "gemm", mixed, shape, role="row", needs="x",
                  weights=(inner + self.bias) * shape.channels, adds=self.fused,
                  bias=self.bias)  # fmt: skip

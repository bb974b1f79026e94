"""Layers of alignments and of pairs, which Evoformer is made of [jumper2021, supplement 1.6]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from oracle.models.layers.base import Layer, Misfit, Row, Shape, tokens_of
from oracle.spec.schema import Count


def planes(shapes: Sequence[Shape], largest: int = 1) -> Shape:
    """Return the first input, after a check that all inputs have two extents."""
    if not 1 <= len(shapes) <= largest or any(len(shape.extents) != 2 for shape in shapes):
        expected = "a plane" if largest == 1 else f"one to {largest} planes"
        raise Misfit(f"{expected} is wanted: two extents each")
    return shapes[0]


def product(
    name: str, x: Shape, y: Shape, sizes: tuple[int, int, int], count: int = 1,
    takes: tuple[int, ...] = (1,),
) -> Row:  # fmt: skip
    """`count` products m×k by k×n of activations, as one batch of small ones."""
    m, n, k = sizes
    return Row(name, "product", "counted", x, y, family="products", needs="x", takes=takes,
               macs=float(m) * n * k * count, product=sizes)  # fmt: skip


@dataclass(frozen=True)
class Axial(Layer):
    """Gated attention along one extent of a plane, the other being so many sequences.

    A second input gives every pair of places a number for each head that is added to its score.
    Scores pass through memory, and once more for each number that is added.
    """

    heads: Count
    width: Count  # of one head
    along: Literal["rows", "columns"] = "rows"

    several: ClassVar[bool] = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, inner = planes(shapes, 2), self.heads * self.width
        name, keys = self.name or "axial", shape.extents[self.along == "rows"]
        if len(shapes) > 1 and shapes[1].extents != (keys, keys):
            raise Misfit(f"{shapes[1]} has no number for each pair of {keys} places")
        gate = replace(shape, channels=inner)
        yield Row(f"{name}.gate", "attention", "gemm", shape, gate, role="column", needs="x",
                  entry=True, weights=(shape.channels + 1) * inner, bias=True)  # fmt: skip
        if len(shapes) > 1:
            yield Row(f"{name}.bias", "attention", "gemm", shapes[1],
                      replace(shapes[1], channels=self.heads), needs="x", entry=True,
                      weights=shapes[1].channels * self.heads)  # fmt: skip
        positions = shape.extents[0] * shape.extents[1]
        packed = replace(shape, channels=3 * inner)
        yield Row(f"{name}.qkv", "attention", "gemm", shape, packed, role="column", needs="x",
                  entry=True, weights=shape.channels * 3 * inner)  # fmt: skip
        mixed, scores = Shape(inner, (positions,)), float(self.heads * positions * keys)
        added = 2.0 * len(shapes) * scores / mixed.size  # a mask and the pairs' numbers
        yield Row(
            f"{name}.core", "attention", "attention", packed, mixed, role="heads", needs="xy",
            takes=(1,) if len(shapes) < 2 else (1, 2), heads=self.heads, kv_heads=self.heads,
            width=self.width, keys=keys, apart=keys < positions, reads=(0, 2 + added),
            rereads=(0, 2 + added), extra_kept=scores,
        )  # fmt: skip
        yield Row(f"{name}.gated", "attention", "stream", mixed, mixed, role="heads", needs="x",
                  takes=(1, 2 + len(shapes)), reads=(2, 1), rereads=(3, 2))  # fmt: skip
        yield Row(f"{name}.out", "attention", "gemm", mixed, shape, role="row", needs="x",
                  weights=(inner + 1) * shape.channels, bias=True)  # fmt: skip


@dataclass(frozen=True)
class Triangle(Layer):
    """Pairs updated by the two other edges of all triangles that they are in.

    made(i, j) = gate ∘ W norm Σ_k a(i, k) ∘ b(j, k), or over a(k, i) ∘ b(k, j)
    """

    hidden: Count

    shorthand: ClassVar[str] = "hidden"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name, hidden = planes(shapes), self.name or "triangle", self.hidden
        places, c = tokens_of(shape), shape.channels
        if shape.extents[1] != places:
            raise Misfit(f"{shape} holds no pairs: its extents differ")
        gated_pair, pair, single = (replace(shape, channels=k * hidden) for k in (4, 2, 1))
        yield Row(f"{name}.gate", "triangle", "gemm", shape, shape, needs="x", entry=True,
                  weights=(c + 1) * c, bias=True)  # fmt: skip
        yield Row(f"{name}.in", "triangle", "gemm", shape, gated_pair, needs="x", entry=True,
                  weights=(c + 1) * 4 * hidden, bias=True)  # fmt: skip
        yield Row(f"{name}.gated", "triangle", "stream", gated_pair, pair, needs="x", reads=(1, 1),
                  rereads=(2, 1))  # fmt: skip
        yield product(f"{name}.product", pair, single, (places, places, places), hidden)
        yield Row(f"{name}.norm", "norm", "stream", single, single, needs="x", weights=2 * hidden,
                  reads=(1, 1), rereads=(1, 2))  # fmt: skip
        yield Row(f"{name}.out", "triangle", "gemm", single, shape, needs="x",
                  weights=(hidden + 1) * c, bias=True)  # fmt: skip
        yield Row(f"{name}.made", "triangle", "stream", shape, shape, needs="x", takes=(1, 6),
                  reads=(2, 1), rereads=(3, 2))  # fmt: skip


@dataclass(frozen=True)
class Outer(Layer):
    """Of every two columns of an alignment the mean of the outer products of their rows."""

    filters: Count
    hidden: Count

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name, h = planes(shapes), self.name or "outer", self.hidden
        sequences, places = shape.extents
        pair = replace(shape, channels=2 * h)
        pairs = Shape(h * h, (places, places))
        yield Row(f"{name}.in", "outer", "gemm", shape, pair, needs="x",
                  weights=(shape.channels + 1) * 2 * h, bias=True)  # fmt: skip
        yield product(f"{name}.product", pair, pairs, (places * h, places * h, sequences))
        yield Row(f"{name}.out", "outer", "gemm", pairs, replace(pairs, channels=self.filters),
                  needs="x", weights=(h * h + 1) * self.filters, bias=True)  # fmt: skip

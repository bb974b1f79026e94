"""Layers of recommenders: bags of rows looked up in tables, and the cross network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oracle.models.layers.base import Layer, Misfit, Row, Shape
from oracle.spec.schema import Count


@dataclass(frozen=True)
class Bags(Layer):
    """Of each table the sum of the rows that a sample names, side by side.

    Going back each of these rows is updated where it lies, by the same kernel: there are no
    gradients of the tables, nothing is exchanged of them, and no optimizer passes over them.
    """

    tables: tuple[Count, ...]  # rows of each
    width: Count  # of a row
    named: tuple[Count, ...] = ()  # rows of each that a sample names; one if not said

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        named = self.named or (1,) * len(self.tables)
        if len(named) != len(self.tables):
            raise Misfit(f"{len(named)} numbers of rows for {len(self.tables)} tables")
        mean = sum(named) / len(named)  # times as many are read as are made
        yield Row(
            self.name or "bags", "embedding", "counted", shapes[0],
            Shape(self.width * len(self.tables)), weights=sum(self.tables) * self.width,
            family="tables", reads=(0, mean + 1), rereads=(0, 1 + 2 * mean), frozen=True,
            extra_bytes=8.0 * sum(named), lookups=sum(named),
        )  # fmt: skip


@dataclass(frozen=True)
class Crossnet(Layer):
    """DCNv2's cross layers of low rank [wang2021]: x ← x₀ ∘ (W V x + b) + x, so many times."""

    layers: Count
    rank: Count

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape, name = shapes[0], self.name or "crossnet"
        narrow = replace(shape, channels=self.rank)
        for i in range(1, self.layers + 1):
            yield Row(f"{name}{i}.v", "crossnet", "gemm", shape, narrow, needs="x",
                      weights=shape.channels * self.rank)  # fmt: skip
            yield Row(f"{name}{i}.w", "crossnet", "gemm", narrow, shape, needs="x", bias=True,
                      weights=(self.rank + 1) * shape.channels)  # fmt: skip
            # x₀, x and the product are read; back x₀ gathers what each layer adds
            yield Row(f"{name}{i}.x", "crossnet", "stream", shape, shape, needs="x",
                      reads=(3, 1), rereads=(3, 3))  # fmt: skip

"""Work that no other kind describes, as it was counted: FLOP, traffic, weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, ClassVar, Literal

from oracle.models.layers.base import Layer, Misfit, Row, Shape
from oracle.spec.schema import Between, Count, Whole

Much = Annotated[float, Between(0, 1e24)]


@dataclass(frozen=True)
class Opaque(Layer):
    """An operator with counted FLOP, traffic and weights of one sample, and nothing else known.

    Priced by its FLOP at an assumed share of the peak, or by a pass over the elements moved if
    that is longer. No strategy but those that deal samples or layers cuts it, unless each position
    is worked on by itself (`each`).
    """

    op: str
    made: tuple[Count, ...]  # channels, then extents
    at: str = ""  # the module and the line of source that it comes from
    tokens: bool = False
    flop: Much = 0.0  # of a forward pass
    moves: Much = 0.0  # elements read and written by a forward pass
    moves_back: Much = 0.0  # and by a backward pass
    weights: Whole = 0
    keeps: bool = False  # the backward pass wants what it was given
    kept: Much = 0.0  # further elements that the backward pass wants
    each: bool = False  # every position by itself
    steps: Count = 1  # one after the other, each launched by itself
    family: Literal["", "scan", "tables", "recurrent", "fft"] = ""  # of kernels that it is like

    several: ClassVar[bool] = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        if not self.made:
            raise Misfit("`made` says no channels")
        output, size = Shape(self.made[0], self.made[1:], self.tokens), float(prod(self.made))
        plain = self.each and not self.flop and not self.family
        yield Row(
            f"{self.op} at {self.at}" if self.at else self.op,
            "elementwise" if self.each else "opaque", "stream" if plain else "counted",
            shapes[0], output, weights=self.weights, needs="x" if self.keeps else "",
            reads=(0.0, self.moves / size), rereads=(0.0, self.moves_back / size),
            macs=self.flop / 2, pieces=self.steps * bool(self.moves or self.flop),
            extra_kept=self.kept, family=self.family,
        )  # fmt: skip

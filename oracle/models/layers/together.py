"""Several tensors that are passed on as one, and parts of one: nothing is moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from oracle.models.layers.base import Layer, Misfit, Row, Shape, along
from oracle.spec.schema import Count, Whole


@dataclass(frozen=True)
class Together(Layer):
    """Several tensors side by side, as a pair of them is handed on; nothing is moved."""

    several: ClassVar[bool] = True

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        together = Shape(sum(shape.size for shape in shapes), parts=tuple(shapes))
        yield Row(self.name or "together", "reshape", "stream", shapes[0], together)


@dataclass(frozen=True)
class Part(Layer):
    """One of the tensors that `together` put side by side."""

    at: Whole = 0

    shorthand: ClassVar[str] = "at"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        parts = shapes[0].parts
        if self.at >= len(parts):
            raise Misfit(f"its input holds {len(parts)} tensors together, none of them {self.at}")
        yield Row(self.name or "part", "reshape", "stream", shapes[0], parts[self.at], part=self.at)


@dataclass(frozen=True)
class Crop(Layer):
    """The middle of a picture or volume, as wide as `to`; looked at, not copied."""

    to: tuple[Count, ...]

    shorthand: ClassVar[str] = "to"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape = shapes[0]
        extents = along(self.to, len(shape.extents))
        if any(inner > outer for inner, outer in zip(extents, shape.extents, strict=True)):
            raise Misfit(f"nothing as wide as {'×'.join(map(str, extents))} is inside {shape}")
        # its gradient is put into one of zeros
        yield Row(self.name or "crop", "crop", "stream", shape, replace(shape, extents=extents),
                  rereads=(1, 1))  # fmt: skip


@dataclass(frozen=True)
class Take(Layer):
    """The first so many channels; looked at, not copied."""

    channels: Count

    shorthand: ClassVar[str] = "channels"

    def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        shape = shapes[0]
        if self.channels > shape.channels:
            raise Misfit(f"there are no {self.channels} channels in {shape}")
        yield Row(self.name or "take", "reshape", "stream", shape,
                  replace(shape, channels=self.channels))  # fmt: skip

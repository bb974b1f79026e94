"""A part of a sample amid the borders that others hold and the padding around the sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from oracle.executor.parts import Interval, Window, overlap
from oracle.executor.wire import Wire
from oracle.plan.strategies.spatial import NTH


@dataclass(frozen=True)
class SpatialGrid:
    """Parts of a sample along its extents, and the ranks that hold them: the axis `spatial`."""

    wire: Wire
    parts: tuple[int, ...]  # along each extent
    at: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]  # along each extent, those in line with this one

    def windows(
        self, x: Sequence[int], made: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
        dilation: Sequence[int], before: Sequence[int],
    ) -> list[Window]:  # fmt: skip
        return [
            Window(n, m, d * (k - 1) + 1, k, s, b, q)
            for n, m, k, s, d, b, q in zip(
                x, made, kernel, stride, dilation, before, self.parts, strict=True
            )
        ]


class Reach(NamedTuple):
    """Along one extent: what each part holds and wants, and what the own kernel looks at."""

    held: Sequence[Interval]
    wanted: Sequence[Interval]
    seen: Interval  # outside of all that is held is padding


class Frame:
    """A part amid its borders and padding; the part itself, and no copy, where it has neither."""

    def __init__(
        self, x: Tensor, grid: SpatialGrid, reaches: Sequence[Reach], fill: float = 0.0
    ) -> None:
        self.grid, self.reaches = grid, reaches
        self.own = [reach.held[at] for reach, at in zip(reaches, grid.at, strict=True)]
        seen = [reach.seen for reach in reaches]
        spans = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(self.own, seen, strict=True)]
        self.begin = [begin for begin, _ in spans]
        self.inside = [overlap((reach.held[0][0], reach.held[-1][1]), span)
                       for reach, span in zip(reaches, spans, strict=True)]  # fmt: skip
        self.whole = x
        if spans != self.own:
            self.whole = x.new_empty((*x.shape[:2], *(end - begin for begin, end in spans)))
            self._pad(fill)
            self._box(self.own).copy_(x)

    def _pad(self, fill: float) -> None:
        left = self.whole
        for i, (low, high) in enumerate(self.inside):
            before, size = low - self.begin[i], high - low
            left.narrow(i + 2, 0, before).fill_(fill)
            left.narrow(i + 2, before + size, left.shape[i + 2] - before - size).fill_(fill)
            left = left.narrow(i + 2, before, size)

    def _box(self, intervals: Sequence[Interval]) -> Tensor:
        box = self.whole
        for i, (low, high) in enumerate(intervals):
            box = box.narrow(i + 2, low - self.begin[i], high - low)
        return box

    def _line(self, extent: int) -> Tensor:
        """The own part with its borders up to an extent: corners come with the last."""
        return self._box([*self.inside[: extent + 1], *self.own[extent + 1 :]])

    def fetch(self, what: str) -> None:
        """Exchange borders with the neighbours, one extent after the other; never padding."""
        for i, ((held, wanted, _), (begin, _)) in enumerate(
            zip(self.reaches, self.inside, strict=True)
        ):
            self.grid.wire.fetch_halo(
                self._line(i), i + 2, begin, self.grid.at[i], held, wanted, self.grid.ranks[i],
                what + NTH[i],
            )  # fmt: skip

    def borders(self) -> list[Tensor]:
        """Where what others hold lies, two of each extent: with the own part, all but padding."""
        found = []
        for i, ((low, high), (begin, end)) in enumerate(zip(self.inside, self.own, strict=True)):
            line = self._line(i)
            found.append(line.narrow(i + 2, 0, begin - low))
            found.append(line.narrow(i + 2, end - low, high - end))
        return found

    def restore(self, borders: Sequence[Tensor]) -> None:
        """Put borders that were kept back to where they lay."""
        for place, border in zip(self.borders(), borders, strict=True):
            if border.numel():
                place.copy_(border)

    @property
    def seen(self) -> Tensor:
        """All that the own kernel looks at."""
        return self._box([reach.seen for reach in self.reaches])

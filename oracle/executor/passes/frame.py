"""The part of a sample on this device inside a frame of borders and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from oracle.executor.local.parts import Interval, Window, overlap
from oracle.executor.messages.wire import Wire
from oracle.plan.strategies.spatial import NTH


@dataclass(frozen=True)
class SpatialGrid:
    """How samples are cut along their extents, and the ranks that hold the parts."""

    wire: Wire
    parts: tuple[int, ...]  # along each extent
    place: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]  # ranks in line with this one along each extent

    def windows(
        self, inputs: Sequence[int], outputs: Sequence[int], kernel: Sequence[int],
        stride: Sequence[int], dilation: Sequence[int], before: Sequence[int],
    ) -> list[Window]:  # fmt: skip
        """The window of a convolution or pool along each extent."""
        return [
            Window(n, m, d * (k - 1) + 1, k, s, b, q)
            for n, m, k, s, d, b, q in zip(
                inputs, outputs, kernel, stride, dilation, before, self.parts, strict=True
            )
        ]


class Reach(NamedTuple):
    """Along one extent: what each part holds and wants, and what this part's kernel reads."""

    held_parts: Sequence[Interval]
    wanted_parts: Sequence[Interval]
    kernel_span: Interval  # positions that no part holds are padding


class Frame:
    """A part inside its borders and padding; the part itself, uncopied, where it has neither."""

    def __init__(
        self, x: Tensor, grid: SpatialGrid, reaches: Sequence[Reach], fill: float = 0.0
    ) -> None:
        self.grid, self.reaches = grid, reaches
        places = zip(reaches, grid.place, strict=True)
        self.own_spans = [reach.held_parts[place] for reach, place in places]
        pairs = zip(self.own_spans, (reach.kernel_span for reach in reaches), strict=True)
        spans = [(min(a, c), max(b, d)) for (a, b), (c, d) in pairs]
        self.begin = [begin for begin, _ in spans]
        self.inside = [overlap((reach.held_parts[0][0], reach.held_parts[-1][1]), span)
                       for reach, span in zip(reaches, spans, strict=True)]  # fmt: skip
        self.values = x
        if spans != self.own_spans:
            self.values = x.new_empty((*x.shape[:2], *(end - begin for begin, end in spans)))
            self._pad(fill)
            self._box(self.own_spans).copy_(x)

    def _pad(self, fill: float) -> None:
        left = self.values
        for i, (low, high) in enumerate(self.inside):
            before, size = low - self.begin[i], high - low
            left.narrow(i + 2, 0, before).fill_(fill)
            left.narrow(i + 2, before + size, left.shape[i + 2] - before - size).fill_(fill)
            left = left.narrow(i + 2, before, size)

    def _box(self, intervals: Sequence[Interval]) -> Tensor:
        box = self.values
        for i, (low, high) in enumerate(intervals):
            box = box.narrow(i + 2, low - self.begin[i], high - low)
        return box

    def _line(self, extent: int) -> Tensor:
        """The part with its borders up to an extent: corners come with the last one."""
        return self._box([*self.inside[: extent + 1], *self.own_spans[extent + 1 :]])

    def fetch(self, label: str) -> None:
        """Fetch borders from the neighbours, one extent after the other; padding is never sent."""
        for i, (reach, (begin, _)) in enumerate(zip(self.reaches, self.inside, strict=True)):
            self.grid.wire.fetch_halo(
                self._line(i), i + 2, begin, self.grid.place[i], reach.held_parts,
                reach.wanted_parts, self.grid.ranks[i], label + NTH[i],
            )  # fmt: skip

    def borders(self) -> list[Tensor]:
        """Views of the borders that others hold, two of each extent."""
        borders = []
        spans = zip(self.inside, self.own_spans, strict=True)
        for i, ((low, high), (begin, end)) in enumerate(spans):
            line = self._line(i)
            borders.append(line.narrow(i + 2, 0, begin - low))
            borders.append(line.narrow(i + 2, end - low, high - end))
        return borders

    def restore(self, borders: Sequence[Tensor]) -> None:
        """Copy borders that were kept back to where they lay."""
        for place, border in zip(self.borders(), borders, strict=True):
            if border.numel():
                place.copy_(border)

    @property
    def kernel_input(self) -> Tensor:
        """All that this part's kernel reads."""
        return self._box([reach.kernel_span for reach in self.reaches])

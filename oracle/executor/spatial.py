"""Convolutions and pools on a part of each sample, whose borders cross between devices.

| forward         | backward                | used by                      |
| borders of x    | borders of dL/dy        | convolutions                 |
| borders of x    | what it added to theirs | pools                        |
| allgather       | reduce-scatter          | the split point of `spatial` |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from oracle.executor.exchange import Communicator, ExchangeFunction
from oracle.executor.parts import Interval, Window, deal
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


def with_borders(
    x: Tensor, grid: SpatialGrid, windows: Sequence[Window], fill: float, what: str,
    padded: Sequence[int] = (),
) -> Tensor:  # fmt: skip
    """The input of the own outputs: borders are fetched, cropped to the windows, and padded.

    Extents that a kernel pads itself (`padded`) stay as they are.
    """
    for i, window in enumerate(windows):
        if padded and padded[i]:
            continue
        at, dim = grid.at[i], i + 2
        wanted = [window.wanted(k) for k in range(window.parts)]
        low, high = window.seen(window.outputs[at])
        first = min(low, wanted[at][0])
        wanted[at] = first, max(high, wanted[at][1])
        name = what + NTH[i]
        x = grid.wire.fetch_halo(x, dim, at, window.inputs, wanted, grid.ranks[i], name, fill)
        x = x.narrow(dim, low - first, high - low)
    return x


class SpatialConvolution(ExchangeFunction):
    """A convolution on a part of the sample: borders of x forward, of dL/dy back.

    dL/dx of the own part needs the dL/dy of all windows that see it; dL/dw needs only the own
    outputs and their inputs.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, grid: SpatialGrid,
        windows: Sequence[Window], dilation: Sequence[int], groups: int, names: tuple[str, str],
    ) -> Tensor:  # fmt: skip
        padded = [window.padded for window in windows]
        seen = with_borders(x, grid, windows, 0.0, names[0], padded)
        ctx.save_for_backward(x, weight, *_borders(seen, grid, windows, padded))
        ctx.of = (grid, windows, list(dilation), groups, names, bias is not None)
        stride = [window.stride for window in windows]
        return torch.convolution(seen, weight, bias, stride, padded,
                                 list(dilation), False, [0] * len(windows), groups)  # fmt: skip

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, *borders = ctx.saved_tensors
        grid, windows, dilation, groups, names, biased = ctx.of
        stride, zeros = [w.stride for w in windows], [0] * len(windows)
        back, filters = torch.ops.aten.convolution_backward, [weight.shape[0]]
        gradient, seen = gradient.contiguous(), _bordered(x, borders, grid, windows)
        del x, borders
        _, of_weight, of_bias = back(
            gradient, seen, weight, filters if biased else None, stride, zeros, dilation, False,
            zeros, groups, [False, True, biased],
        )  # fmt: skip
        if not ctx.needs_input_grad[0]:
            return None, of_weight, of_bias, None, None, None, None, None
        del seen
        made = [window.inverse(k) for window, k in zip(windows, grid.at, strict=True)]
        wide = gradient
        for i, window in enumerate(windows):
            wanted, at = [window.touched(k) for k in range(window.parts)], grid.at[i]
            low, high = made[i].outputs
            first = min(low, wanted[at][0])
            wanted[at] = first, max(high, wanted[at][1])
            wide = grid.wire.fetch_halo(
                wide, i + 2, at, window.outputs, wanted, grid.ranks[i], names[1] + NTH[i]
            )
            wide = wide.narrow(i + 2, low - first, high - low)
        sizes = [high - low for _, (low, high), _ in made]
        shape = gradient.shape[0], weight.shape[1] * groups, *sizes
        like = wide.new_zeros(1).expand(shape)  # all that is looked at of its input
        of_x, _, _ = back(
            wide.contiguous(), like, weight, None, stride, [one.padding for one in made], dilation,
            False, zeros, groups, [True, False, False],
        )  # fmt: skip
        for i, window in enumerate(windows):
            of_x = cropped(of_x, i + 2, made[i].inputs, window.inputs[grid.at[i]])
        return of_x, of_weight, of_bias, None, None, None, None, None


@dataclass(frozen=True)
class _Inner:
    """Along one extent: the own input inside all that windows see, and that inside the padding."""

    own: Interval  # of the own input, what windows see
    first: int  # where it begins in what they see of the sample
    count: int  # how much of the sample they see
    before: int  # padding ahead of that
    padded: int  # all of it together


def _inner(grid: SpatialGrid, windows: Sequence[Window]) -> list[_Inner]:
    found = []
    for i, window in enumerate(windows):
        at = grid.at[i]
        low, high = window.seen(window.outputs[at])
        begin, end = window.inputs[at]
        first, last = max(low, begin), min(high, end)
        start, stop = max(low, 0), min(high, window.given)
        found.append(_Inner((first - begin, last - begin), first - start, stop - start,
                            start - low, high - low))  # fmt: skip
    return found


def _borders(
    seen: Tensor, grid: SpatialGrid, windows: Sequence[Window], padded: Sequence[int]
) -> list[Tensor]:
    """Copies of what windows see of others' input, two of each extent: kept beside the own."""
    found, inner = [], _inner(grid, windows)
    for i, one in enumerate(inner):
        seen = seen.narrow(i + 2, 0 if padded[i] else one.before, one.count)
    for i, one in enumerate(inner):
        width = one.own[1] - one.own[0]
        for low, high in ((0, one.first), (one.first + width, one.count)):
            found.append(seen.narrow(i + 2, low, high - low).clone(
                memory_format=torch.contiguous_format))  # fmt: skip
        seen = seen.narrow(i + 2, one.first, width)
    return found


def _bordered(
    x: Tensor, borders: Sequence[Tensor], grid: SpatialGrid, windows: Sequence[Window]
) -> Tensor:
    """All that windows see, padding too, from the own input and its borders."""
    inner = _inner(grid, windows)
    seen = whole = x.new_zeros((*x.shape[:2], *(one.padded for one in inner)))
    for i, one in enumerate(inner):
        seen = seen.narrow(i + 2, one.before, one.count)
    for i, one in enumerate(inner):
        (a, b), first = one.own, one.first
        for low, border in ((0, borders[2 * i]), (first + b - a, borders[2 * i + 1])):
            seen.narrow(i + 2, low, border.shape[i + 2]).copy_(border)
        seen, x = seen.narrow(i + 2, first, b - a), x.narrow(i + 2, a, b - a)
    seen.copy_(x)
    return whole


def cropped(x: Tensor, dim: int, held: Interval, wanted: Interval) -> Tensor:
    """Crop `held` to `wanted`; positions under no window have a gradient of zero."""
    low, high = max(held[0], wanted[0]), min(held[1], wanted[1])
    inner = x.narrow(dim, low - held[0], max(high - low, 0))
    if (low, high) == wanted:
        return inner
    pads = [0, 0] * (x.dim() - dim - 1) + [low - wanted[0], wanted[1] - max(high, low)]
    return functional.pad(inner, pads)


class HaloExchange(ExchangeFunction):
    """Forward: borders of x. Backward: gradients of borders go back and add up."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, grid: SpatialGrid, windows: Sequence[Window], fill: float,
        names: tuple[str, str],
    ) -> Tensor:  # fmt: skip
        ctx.of = (grid, windows, names)
        return with_borders(x, grid, windows, fill, names[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        grid, windows, names = ctx.of
        inside = []
        for i, window in enumerate(windows):  # the gradient of padding is dropped
            seen = [window.seen(window.outputs[k]) for k in range(window.parts)]
            inside.append([(max(low, 0), min(high, window.given)) for low, high in seen])
            low, high = inside[i][grid.at[i]]
            gradient = gradient.narrow(i + 2, low - seen[grid.at[i]][0], high - low)
        for i, window in reversed(list(enumerate(windows))):
            gradient = grid.wire.return_halo(
                gradient, i + 2, grid.at[i], window.inputs, inside[i], grid.ranks[i],
                names[1] + NTH[i],
            )  # fmt: skip
        return gradient, None, None, None, None


class GatherSample(ExchangeFunction):
    """Forward: allgather of a sample from its parts. Backward: reduce-scatter."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, grid: SpatialGrid, extents: Sequence[int], comm: Communicator
    ) -> Tensor:
        ctx.of = (grid, extents, comm)
        boxes = _boxes(grid, extents)
        most = [max(box[i][1] - box[i][0] for box in boxes) for i in range(len(extents))]
        padded = functional.pad(x, _pads(x, most)) if list(x.shape[2:]) != most else x
        whole = comm.wire.allgather(padded.contiguous()[None], comm.axes, comm.what)[:, 0]
        made = x.new_empty((*x.shape[:2], *extents))
        for box, one in zip(boxes, whole, strict=True):
            inner = one[(slice(None), slice(None), *(slice(0, b - a) for a, b in box))]
            made[(slice(None), slice(None), *(slice(a, b) for a, b in box))] = inner
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        grid, extents, comm = ctx.of
        boxes = _boxes(grid, extents)
        most = [max(box[i][1] - box[i][0] for box in boxes) for i in range(len(extents))]
        stacked = gradient.new_zeros((len(boxes), *gradient.shape[:2], *most))
        for k, box in enumerate(boxes):
            inner = gradient[(slice(None), slice(None), *(slice(a, b) for a, b in box))]
            stacked[(k, slice(None), slice(None), *(slice(0, b - a) for a, b in box))] = inner
        own = comm.wire.reduce_scatter(stacked, comm.axes, comm.back)
        box = boxes[comm.place]
        own = own[(slice(None), slice(None), *(slice(0, b - a) for a, b in box))]
        return own.contiguous(), None, None, None


def _boxes(grid: SpatialGrid, extents: Sequence[int]) -> list[list[Interval]]:
    """The part of each device of the grid, by rank."""
    found: list[list[Interval]] = [[]]
    for n, q in zip(extents, grid.parts, strict=True):
        found = [[*box, interval] for box in found for interval in deal(n, q)]
    return found


def _pads(x: Tensor, wanted: Sequence[int]) -> list[int]:
    pads: list[int] = []
    for have, want in zip(x.shape[2:], wanted, strict=True):
        pads = [0, want - have, *pads]
    return pads

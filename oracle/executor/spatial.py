"""Convolutions and pools on a part of each sample, whose borders cross between devices.

| forward         | backward                | used by                      |
| borders of x    | borders of dL/dy        | convolutions                 |
| borders of x    | what it added to theirs | pools                        |
| allgather       | reduce-scatter          | the split point of `spatial` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from oracle.executor.exchange import Communicator, ExchangeFunction
from oracle.executor.frame import Frame, Reach, SpatialGrid
from oracle.executor.parts import Interval, Window, deal
from oracle.plan.strategies.spatial import NTH


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
        frame = Frame(x, grid, _unpadded(grid, windows))
        frame.fetch(names[0])
        ctx.save_for_backward(x, weight, *map(torch.clone, frame.borders()))
        ctx.of = (grid, windows, list(dilation), groups, names, bias is not None)
        stride, padded = [w.stride for w in windows], [w.padded for w in windows]
        return torch.convolution(frame.seen, weight, bias, stride, padded, list(dilation), False,
                                 [0] * len(windows), groups)  # fmt: skip

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, *borders = ctx.saved_tensors
        grid, windows, dilation, groups, names, biased = ctx.of
        stride, zeros = [w.stride for w in windows], [0] * len(windows)
        back, filters = torch.ops.aten.convolution_backward, [weight.shape[0]]
        gradient, frame = gradient.contiguous(), Frame(x, grid, _unpadded(grid, windows))
        frame.restore(borders)
        del x, borders
        _, of_weight, of_bias = back(
            gradient, frame.seen, weight, filters if biased else None, stride,
            [w.padded for w in windows], dilation, False, zeros, groups, [False, True, biased],
        )  # fmt: skip
        if not ctx.needs_input_grad[0]:
            return None, of_weight, of_bias, None, None, None, None, None
        del frame
        made = [window.inverse(k) for window, k in zip(windows, grid.at, strict=True)]
        wide = Frame(gradient, grid, [
            Reach(window.outputs, [window.touched(k) for k in range(window.parts)], one.outputs)
            for window, one in zip(windows, made, strict=True)
        ])  # fmt: skip
        wide.fetch(names[1])
        sizes = [high - low for _, (low, high), _ in made]
        shape = gradient.shape[0], weight.shape[1] * groups, *sizes
        like = gradient.new_zeros(1).expand(shape)  # all that is looked at of its input
        of_x, _, _ = back(
            wide.seen.contiguous(), like, weight, None, stride, [one.padding for one in made],
            dilation, False, zeros, groups, [True, False, False],
        )  # fmt: skip
        for i, window in enumerate(windows):
            of_x = cropped(of_x, i + 2, made[i].inputs, window.inputs[grid.at[i]])
        return of_x, of_weight, of_bias, None, None, None, None, None


def _unpadded(grid: SpatialGrid, windows: Sequence[Window]) -> list[Reach]:
    """Those of an input whose outer padding a kernel adds where nobody cuts it."""
    reaches = zip(windows, _reaches(grid, windows), strict=True)
    return [reach._replace(seen=(0, w.given)) if w.whole else reach for w, reach in reaches]


def _reaches(grid: SpatialGrid, windows: Sequence[Window]) -> list[Reach]:
    return [
        Reach(window.inputs, [window.wanted(k) for k in range(window.parts)], window.looked_at(at))
        for window, at in zip(windows, grid.at, strict=True)
    ]


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
        frame = Frame(x, grid, _reaches(grid, windows), fill)
        frame.fetch(names[0])
        return frame.seen

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        grid, windows, names = ctx.of
        inside = []
        for i, window in enumerate(windows):  # the gradient of padding is dropped
            seen = [window.looked_at(k) for k in range(window.parts)]
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

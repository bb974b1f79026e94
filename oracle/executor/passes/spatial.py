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

from oracle.executor.local.parts import Interval, Window, deal
from oracle.executor.passes.exchange import Communicator, ExchangeFunction
from oracle.executor.passes.frame import Frame, Reach, SpatialGrid
from oracle.plan.strategies.spatial import NTH


class SpatialConvolution(ExchangeFunction):
    """A convolution on a part of the sample: borders of x forward, of dL/dy back.

    dL/dx of this part needs the dL/dy of all windows over it; dL/dw needs only this part's outputs
    and their inputs.
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
        return torch.convolution(frame.kernel_input, weight, bias, stride, padded, list(dilation),
                                 False, [0] * len(windows), groups)  # fmt: skip

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, *borders = ctx.saved_tensors
        grid, windows, dilation, groups, names, biased = ctx.of
        stride, zeros = [w.stride for w in windows], [0] * len(windows)
        back, filters = torch.ops.aten.convolution_backward, [weight.shape[0]]
        gradient, frame = gradient.contiguous(), Frame(x, grid, _unpadded(grid, windows))
        frame.restore(borders)
        del x, borders
        _, weight_gradient, bias_gradient = back(
            gradient, frame.kernel_input, weight, filters if biased else None, stride,
            [w.padded for w in windows], dilation, False, zeros, groups, [False, True, biased],
        )  # fmt: skip
        if not ctx.needs_input_grad[0]:
            return None, weight_gradient, bias_gradient, None, None, None, None, None
        del frame
        inverses = [window.inverse(k) for window, k in zip(windows, grid.place, strict=True)]
        wide = Frame(gradient, grid, [
            Reach(window.outputs, [window.touched(k) for k in range(window.parts)], inverse.outputs)
            for window, inverse in zip(windows, inverses, strict=True)
        ])  # fmt: skip
        wide.fetch(names[1])
        sizes = [high - low for _, (low, high), _ in inverses]
        shape = gradient.shape[0], weight.shape[1] * groups, *sizes
        like = gradient.new_zeros(1).expand(shape)  # the kernel reads only the shape of its input
        x_gradient, _, _ = back(
            wide.kernel_input.contiguous(), like, weight, None, stride,
            [inverse.padding for inverse in inverses], dilation, False, zeros, groups,
            [True, False, False],
        )  # fmt: skip
        for i, window in enumerate(windows):
            part = window.inputs[grid.place[i]]
            x_gradient = cropped(x_gradient, i + 2, inverses[i].inputs, part)
        return x_gradient, weight_gradient, bias_gradient, None, None, None, None, None


def _unpadded(grid: SpatialGrid, windows: Sequence[Window]) -> list[Reach]:
    """The reaches of an input; where nobody cuts an extent the kernel pads it itself."""
    reaches = zip(windows, _reaches(grid, windows), strict=True)
    return [reach._replace(kernel_span=(0, w.input_length)) if w.uncut else reach
            for w, reach in reaches]  # fmt: skip


def _reaches(grid: SpatialGrid, windows: Sequence[Window]) -> list[Reach]:
    return [
        Reach(w.inputs, [w.needed(k) for k in range(w.parts)], w.kernel_inputs(place))
        for w, place in zip(windows, grid.place, strict=True)
    ]


def cropped(x: Tensor, dim: int, span: Interval, target: Interval) -> Tensor:
    """Crop what spans `span` to `target`; positions under no window have a gradient of zero."""
    low, high = max(span[0], target[0]), min(span[1], target[1])
    inner = x.narrow(dim, low - span[0], max(high - low, 0))
    if (low, high) == target:
        return inner
    pads = [0, 0] * (x.dim() - dim - 1) + [low - target[0], target[1] - max(high, low)]
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
        return frame.kernel_input

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        grid, windows, names = ctx.of
        inside = []
        for i, window in enumerate(windows):  # the gradient of padding is dropped
            spans = [window.kernel_inputs(k) for k in range(window.parts)]
            inside.append([(max(low, 0), min(high, window.input_length)) for low, high in spans])
            low, high = inside[i][grid.place[i]]
            gradient = gradient.narrow(i + 2, low - spans[grid.place[i]][0], high - low)
        for i, window in reversed(list(enumerate(windows))):
            gradient = grid.wire.return_halo(
                gradient, i + 2, grid.place[i], window.inputs, inside[i], grid.ranks[i],
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
        largest = [max(box[i][1] - box[i][0] for box in boxes) for i in range(len(extents))]
        padded = functional.pad(x, _pads(x, largest)) if list(x.shape[2:]) != largest else x
        boxes_of_ranks = comm.wire.allgather(padded.contiguous()[None], comm.axes, comm.label)[:, 0]
        sample = x.new_empty((*x.shape[:2], *extents))
        for box, box_values in zip(boxes, boxes_of_ranks, strict=True):
            inner = box_values[(slice(None), slice(None), *(slice(0, b - a) for a, b in box))]
            sample[(slice(None), slice(None), *(slice(a, b) for a, b in box))] = inner
        return sample

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        grid, extents, comm = ctx.of
        boxes = _boxes(grid, extents)
        largest = [max(box[i][1] - box[i][0] for box in boxes) for i in range(len(extents))]
        stacked = gradient.new_zeros((len(boxes), *gradient.shape[:2], *largest))
        for k, box in enumerate(boxes):
            inner = gradient[(slice(None), slice(None), *(slice(a, b) for a, b in box))]
            stacked[(k, slice(None), slice(None), *(slice(0, b - a) for a, b in box))] = inner
        part = comm.wire.reduce_scatter(stacked, comm.axes, comm.back_label)
        box = boxes[comm.place]
        part = part[(slice(None), slice(None), *(slice(0, b - a) for a, b in box))]
        return part.contiguous(), None, None, None


def _boxes(grid: SpatialGrid, extents: Sequence[int]) -> list[list[Interval]]:
    """The part of a sample on each device of the grid, by rank."""
    boxes: list[list[Interval]] = [[]]
    for n, q in zip(extents, grid.parts, strict=True):
        boxes = [[*box, interval] for box in boxes for interval in deal(n, q)]
    return boxes


def _pads(x: Tensor, extents: Sequence[int]) -> list[int]:
    pads: list[int] = []
    for extent, target in zip(x.shape[2:], extents, strict=True):
        pads = [0, target - extent, *pads]
    return pads

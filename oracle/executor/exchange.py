"""What crosses devices inside a forward pass, each with what crosses back for its gradient.

| forward         | backward                | who says it                                 |
| allgather       | own part                | filter: outputs are rebuilt                 |
| nothing         | allreduce               | filter, tensor: inputs of a cut matrix      |
| nothing         | reduce-scatter          | filter: the same, with back=scatter         |
| allreduce       | nothing                 | channel, tensor: partial sums               |
| own part        | allgather               | channel: inputs                             |
| allgather       | reduce-scatter          | sequence; the split point of spatial        |
| reduce-scatter  | allgather               | sequence: partial sums                      |
| borders of x    | borders of dL/dy        | spatial: convolutions                       |
| borders of x    | what it added to theirs | spatial: pooling                            |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from oracle.executor.parts import Interval, Window, deal
from oracle.executor.wire import Wire
from oracle.plan.strategies.spatial import NTH


@dataclass(frozen=True)
class Talk:
    """On which axes and under which name something is said."""

    wire: Wire
    axes: tuple[str, ...]
    what: str
    back: str = ""  # the name of what is said in the backward pass

    @property
    def size(self) -> int:
        return self.wire.mesh.group(self.axes).size

    @property
    def place(self) -> int:
        return self.wire.mesh.group(self.axes).place


def join(x: Tensor, dim: int, count: int, talk: Talk, what: str) -> Tensor:
    """Allgather parts that were dealt along `dim`."""
    parts = deal(count, talk.size)
    most = parts[0][1] - parts[0][0]
    first = x.movedim(dim, 0)
    if first.shape[0] < most:
        first = torch.cat([first, first.new_zeros(most - first.shape[0], *first.shape[1:])])
    whole = talk.wire.allgather(first.contiguous(), talk.axes, what)
    if count % talk.size == 0:
        return whole.flatten(0, 1).movedim(0, dim).contiguous()
    pieces = [whole[i, : stop - start] for i, (start, stop) in enumerate(parts)]
    return torch.cat(pieces).movedim(0, dim)


def scatter(x: Tensor, dim: int, talk: Talk, what: str) -> Tensor:
    """Reduce-scatter a whole whose parts are dealt along `dim`."""
    first, parts = x.movedim(dim, 0), deal(x.shape[dim], talk.size)
    most = parts[0][1] - parts[0][0]
    if x.shape[dim] % talk.size:
        stacked = first.new_zeros(talk.size, most, *first.shape[1:])
        for i, (start, stop) in enumerate(parts):
            stacked[i, : stop - start] = first[start:stop]
    else:
        stacked = first.contiguous().view(talk.size, most, *first.shape[1:])
    own = talk.wire.reduce_scatter(stacked, talk.axes, what)
    start, stop = parts[talk.place]
    return own[: stop - start].movedim(0, dim)


def part(x: Tensor, dim: int, talk: Talk) -> Tensor:
    start, stop = deal(x.shape[dim], talk.size)[talk.place]
    return x.narrow(dim, start, stop - start)


class _Exchange(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """Something said in the forward pass, and what is said back for its gradient."""


class Rebuilt(_Exchange):
    """Forward: allgather. Backward: the own part, for all compute the same gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, count: int, talk: Talk) -> Tensor:
        ctx.dim, ctx.talk = dim, talk
        return join(x, dim, count, talk, talk.what)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return part(gradient, ctx.dim, ctx.talk), None, None, None


class ReducedBack(_Exchange):
    """Forward: nothing. Backward: allreduce, for each sees a part of what reads x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, talk: Talk) -> Tensor:
        ctx.talk = talk
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        talk = ctx.talk
        whole = gradient.clone(memory_format=torch.contiguous_format)
        return talk.wire.allreduce(whole, talk.axes, talk.back), None


class ScatteredBack(_Exchange):
    """Forward: nothing. Backward: reduce-scatter; what others go on with is zero here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, talk: Talk) -> Tensor:
        ctx.dim, ctx.talk = dim, talk
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        own, made = scatter(gradient, ctx.dim, ctx.talk, ctx.talk.back), torch.zeros_like(gradient)
        part(made, ctx.dim, ctx.talk).copy_(own)
        return made, None, None


class Summed(_Exchange):
    """Forward: allreduce of partial sums. Backward: nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, talk: Talk) -> Tensor:
        whole = x.clone(memory_format=torch.contiguous_format)
        return talk.wire.allreduce(whole, talk.axes, talk.what)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class Sliced(_Exchange):
    """Forward: the own part. Backward: allgather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, talk: Talk) -> Tensor:
        ctx.dim, ctx.count, ctx.talk = dim, x.shape[dim], talk
        return part(x, dim, talk).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return join(gradient, ctx.dim, ctx.count, ctx.talk, ctx.talk.back), None, None


class Scattered(_Exchange):
    """Forward: reduce-scatter of partial sums. Backward: allgather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, talk: Talk) -> Tensor:
        ctx.dim, ctx.count, ctx.talk = dim, x.shape[dim], talk
        return scatter(x, dim, talk, talk.what)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return join(gradient, ctx.dim, ctx.count, ctx.talk, ctx.talk.back), None, None


class SequenceColumn(_Exchange):
    """A matrix cut by columns on tokens that are cut: gather x, multiply; keep only the part.

    Backward the input is gathered again, as one keeps a part of it [korthikanti2022, §4.2.2].
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, count: int, talks: Sequence[Talk]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.count, ctx.talks, ctx.biased = count, talks, bias is not None
        whole = join(x, 1, count, talks[0], talks[0].what)
        return functional.linear(whole, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        forth, again = ctx.talks
        whole = join(x, 1, ctx.count, again, again.what)
        flat = gradient.flatten(0, -2)
        back = scatter(gradient @ weight, 1, forth, forth.back)
        bias = flat.sum(0) if ctx.biased else None
        return back, flat.T @ whole.flatten(0, -2), bias, None, None


@dataclass(frozen=True)
class Grid:
    """Parts of a sample along its extents, and who holds them: the spatial axis of the mesh."""

    wire: Wire
    parts: tuple[int, ...]  # along each extent
    at: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]  # along each extent, those in line with this rank

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


def _bordered(x: Tensor, grid: Grid, windows: Sequence[Window], fill: float, what: str) -> Tensor:
    """The input of the own outputs: borders fetched, trimmed to what is seen, padding written."""
    pads: list[int] = []
    for i, window in enumerate(windows):
        at, dim = grid.at[i], i + 2
        wanted = [window.wanted(k) for k in range(window.parts)]
        name = what + NTH[i]
        x = grid.wire.fetch_halo(x, dim, at, window.inputs, wanted, grid.ranks[i], name)
        low, high = window.seen(window.outputs[at])
        begin, end = max(low, 0), min(high, window.given)
        x = x.narrow(dim, begin - wanted[at][0], end - begin)
        pads = [begin - low, high - end, *pads]
    return functional.pad(x, pads, value=fill) if any(pads) else x


class SpatialConvolution(_Exchange):
    """A convolution on a part of the sample: borders of x forward, of dL/dy back.

    dL/dx of the own part needs the dL/dy of all windows that see it; dL/dw needs only the own
    outputs and their inputs.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, grid: Grid,
        windows: Sequence[Window], dilation: Sequence[int], groups: int, names: tuple[str, str],
    ) -> Tensor:  # fmt: skip
        seen = _bordered(x, grid, windows, 0.0, names[0])
        ctx.save_for_backward(seen, weight)
        ctx.of = (grid, windows, list(dilation), groups, names, bias is not None)
        stride = [window.stride for window in windows]
        zeros = [0] * len(windows)
        return torch.convolution(seen, weight, bias, stride, zeros,
                                 list(dilation), False, zeros, groups)  # fmt: skip

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        seen, weight = ctx.saved_tensors
        grid, windows, dilation, groups, names, biased = ctx.of
        stride, zeros = [w.stride for w in windows], [0] * len(windows)
        back, filters = torch.ops.aten.convolution_backward, [weight.shape[0]]
        gradient = gradient.contiguous()
        _, of_weight, of_bias = back(
            gradient, seen, weight, filters if biased else None, stride, zeros, dilation, False,
            zeros, groups, [False, True, biased],
        )  # fmt: skip
        if not ctx.needs_input_grad[0]:
            return None, of_weight, of_bias, None, None, None, None, None
        wide, shape = gradient, [gradient.shape[0], weight.shape[1] * groups]
        for i, window in enumerate(windows):
            wanted = [window.touched(k) for k in range(window.parts)]
            wide = grid.wire.fetch_halo(
                wide, i + 2, grid.at[i], window.outputs, wanted, grid.ranks[i], names[1] + NTH[i]
            )
            low, high = window.seen(wanted[grid.at[i]])
            shape.append(high - low)
        of_x, _, _ = back(
            wide.contiguous(), wide.new_empty(shape), weight, None, stride, zeros, dilation, False,
            zeros, groups, [True, False, False],
        )  # fmt: skip
        for i, window in enumerate(windows):
            low, high = window.seen(window.touched(grid.at[i]))
            of_x = _cropped(of_x, i + 2, (low, high), window.inputs[grid.at[i]])
        return of_x, of_weight, of_bias, None, None, None, None, None


def _cropped(x: Tensor, dim: int, held: Interval, wanted: Interval) -> Tensor:
    """`wanted` of what covers `held`; positions that no window saw have no gradient."""
    low, high = max(held[0], wanted[0]), min(held[1], wanted[1])
    inner = x.narrow(dim, low - held[0], max(high - low, 0))
    if (low, high) == wanted:
        return inner
    pads = [0, 0] * (x.dim() - dim - 1) + [low - wanted[0], wanted[1] - max(high, low)]
    return functional.pad(inner, pads)


class Borders(_Exchange):
    """Forward: the input of the own windows. Backward: gradients of borders go home and add up."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, grid: Grid, windows: Sequence[Window], fill: float,
        names: tuple[str, str],
    ) -> Tensor:  # fmt: skip
        ctx.of = (grid, windows, names)
        return _bordered(x, grid, windows, fill, names[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        grid, windows, names = ctx.of
        inside = []
        for i, window in enumerate(windows):  # padding has no gradient that anybody wants
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


class Collected(_Exchange):
    """Forward: the whole sample from its parts, on every device. Backward: reduce-scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grid: Grid, extents: Sequence[int], talk: Talk) -> Tensor:
        ctx.of = (grid, extents, talk)
        boxes = _boxes(grid, extents)
        most = [max(box[i][1] - box[i][0] for box in boxes) for i in range(len(extents))]
        padded = functional.pad(x, _pads(x, most)) if list(x.shape[2:]) != most else x
        whole = talk.wire.allgather(padded.contiguous()[None], talk.axes, talk.what)[:, 0]
        made = x.new_empty((*x.shape[:2], *extents))
        for box, one in zip(boxes, whole, strict=True):
            inner = one[(slice(None), slice(None), *(slice(0, b - a) for a, b in box))]
            made[(slice(None), slice(None), *(slice(a, b) for a, b in box))] = inner
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        grid, extents, talk = ctx.of
        boxes = _boxes(grid, extents)
        most = [max(box[i][1] - box[i][0] for box in boxes) for i in range(len(extents))]
        stacked = gradient.new_zeros((len(boxes), *gradient.shape[:2], *most))
        for k, box in enumerate(boxes):
            inner = gradient[(slice(None), slice(None), *(slice(a, b) for a, b in box))]
            stacked[(k, slice(None), slice(None), *(slice(0, b - a) for a, b in box))] = inner
        own = talk.wire.reduce_scatter(stacked, talk.axes, talk.back)
        box = boxes[talk.place]
        own = own[(slice(None), slice(None), *(slice(0, b - a) for a, b in box))]
        return own.contiguous(), None, None, None


def _boxes(grid: Grid, extents: Sequence[int]) -> list[list[Interval]]:
    """The part of each device of the grid, in the order of their ranks."""
    found: list[list[Interval]] = [[]]
    for n, q in zip(extents, grid.parts, strict=True):
        found = [[*box, interval] for box in found for interval in deal(n, q)]
    return found


def _pads(x: Tensor, wanted: Sequence[int]) -> list[int]:
    pads: list[int] = []
    for have, want in zip(x.shape[2:], wanted, strict=True):
        pads = [0, want - have, *pads]
    return pads


class ShardedCrossEntropy(_Exchange):
    """Softmax and cross-entropy, summed, of logits whose channels are dealt out.

    Three small exchanges a call: the largest logit, the sum of exponentials, the target's own.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, dim: int, first: int, talk: Talk
    ) -> Tensor:
        import torch.distributed as dist

        scores = logits.movedim(dim, -1)
        top = scores.amax(-1)
        talk.wire.allreduce(top, talk.axes, talk.what, dist.ReduceOp.MAX)
        raised = (scores - top[..., None]).exp()
        mine = (target >= first) & (target < first + scores.shape[-1])
        index = torch.where(mine, target - first, 0)[..., None]
        own = (scores - top[..., None]).gather(-1, index)[..., 0] * mine
        both = torch.stack([raised.sum(-1), own])
        talk.wire.allreduce(both, talk.axes, talk.what)
        ctx.save_for_backward(raised / both[0][..., None], index, mine)
        ctx.dim = dim
        return (both[0].log() - both[1]).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        chances, index, mine = ctx.saved_tensors
        back = chances.clone()
        back.scatter_add_(-1, index, -mine[..., None].to(back.dtype))
        return (back * gradient).movedim(-1, ctx.dim), None, None, None, None

"""Collective operations inside a forward pass, each with the operation for its gradient.

| forward         | backward                | used by                                     |
| allgather       | own part                | filter: outputs are gathered                |
| nothing         | allreduce               | filter, tensor: inputs of a cut matrix      |
| nothing         | reduce-scatter          | filter: the same, with back=scatter         |
| allreduce       | nothing                 | channel, tensor: partial sums               |
| own part        | allgather               | channel: inputs                             |
| allgather       | reduce-scatter          | sequence: inputs                            |
| reduce-scatter  | allgather               | sequence: partial sums                      |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from oracle.executor.local.parts import deal
from oracle.executor.messages.wire import Wire


@dataclass(frozen=True)
class Communicator:
    """The ranks along axes of the mesh, and the names under which their messages are counted."""

    wire: Wire
    axes: tuple[str, ...]
    label: str
    back_label: str = ""  # the name in the backward pass

    @property
    def size(self) -> int:
        return self.wire.mesh.group(self.axes).size

    @property
    def place(self) -> int:
        return self.wire.mesh.group(self.axes).place


def gather_parts(x: Tensor, dim: int, count: int, comm: Communicator, label: str) -> Tensor:
    """Allgather the parts of a tensor that is cut along `dim`."""
    parts = deal(count, comm.size)
    largest = parts[0][1] - parts[0][0]
    first = x.movedim(dim, 0)
    if first.shape[0] < largest:
        first = torch.cat([first, first.new_zeros(largest - first.shape[0], *first.shape[1:])])
    gathered = comm.wire.allgather(first.contiguous(), comm.axes, label)
    if count % comm.size == 0:
        return gathered.flatten(0, 1).movedim(0, dim).contiguous()
    pieces = [gathered[i, : stop - start] for i, (start, stop) in enumerate(parts)]
    return torch.cat(pieces).movedim(0, dim)


def reduce_scatter_parts(x: Tensor, dim: int, comm: Communicator, label: str) -> Tensor:
    """Reduce-scatter a tensor along `dim`."""
    first, parts = x.movedim(dim, 0), deal(x.shape[dim], comm.size)
    largest = parts[0][1] - parts[0][0]
    if x.shape[dim] % comm.size:
        stacked = first.new_zeros(comm.size, largest, *first.shape[1:])
        for i, (start, stop) in enumerate(parts):
            stacked[i, : stop - start] = first[start:stop]
    else:
        stacked = first.contiguous().view(comm.size, largest, *first.shape[1:])
    del x, first
    part = comm.wire.reduce_scatter(stacked, comm.axes, label)
    start, stop = parts[comm.place]
    return part[: stop - start].movedim(0, dim)


def own_part(x: Tensor, dim: int, comm: Communicator) -> Tensor:
    """The part of a tensor, cut along `dim`, that belongs to this rank."""
    start, stop = deal(x.shape[dim], comm.size)[comm.place]
    return x.narrow(dim, start, stop - start)


class ExchangeFunction(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """An exchange in the forward pass, with the exchange for its gradient."""


class AllgatherForward(ExchangeFunction):
    """Forward: allgather. Backward: the own part, as all ranks have the same gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, count: int, comm: Communicator) -> Tensor:
        ctx.dim, ctx.comm = dim, comm
        return gather_parts(x, dim, count, comm, comm.label)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return own_part(gradient, ctx.dim, ctx.comm), None, None, None


class AllreduceBackward(ExchangeFunction):
    """Forward: nothing. Backward: allreduce, as each rank has a part of what reads x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        comm = ctx.comm
        # only the cut matrix made this gradient, so it can be summed in place
        return comm.wire.allreduce(gradient.contiguous(), comm.axes, comm.back_label), None


class ReduceScatterBackward(ExchangeFunction):
    """Forward: nothing. Backward: reduce-scatter; the parts of other ranks are zero here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, comm: Communicator) -> Tensor:
        ctx.dim, ctx.comm = dim, comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        part = reduce_scatter_parts(gradient, ctx.dim, ctx.comm, ctx.comm.back_label)
        padded = torch.zeros_like(gradient)
        own_part(padded, ctx.dim, ctx.comm).copy_(part)
        return padded, None, None


def allreduce_forward(x: Tensor, comm: Communicator) -> Tensor:
    """Forward: allreduce of partial sums, where they lie. Backward: nothing.

    The operation that made the sums must not need them again: it is a product, or a sum.
    """
    x = x.contiguous()
    comm.wire.allreduce(x.detach(), comm.axes, comm.label)
    return x


class SliceForward(ExchangeFunction):
    """Forward: the own part. Backward: allgather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, comm: Communicator) -> Tensor:
        ctx.dim, ctx.count, ctx.comm = dim, x.shape[dim], comm
        return own_part(x, dim, comm)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gather_parts(gradient, ctx.dim, ctx.count, ctx.comm, ctx.comm.back_label), None, None


class FirstToken(ExchangeFunction):
    """Forward: the first token, from the one that has it. Backward: what all make of it.

    Ranks along `parted` each have a part of its gradient, ranks along `alike` all of it.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, parted: Sequence[Communicator], alike: Sequence[Communicator]
    ) -> Tensor:
        ctx.shape, ctx.parted = x.shape, parted
        ctx.mine = not any(comm.place for comm in (*parted, *alike))
        token = x[:, :1].clone() if ctx.mine else x.new_zeros(x.shape[0], 1, x.shape[2])
        for comm in (*parted, *alike):
            comm.wire.allreduce(token, comm.axes, comm.label)
        return token

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        gradient = gradient.contiguous()
        for comm in ctx.parted:
            gradient = comm.wire.allreduce(gradient, comm.axes, comm.back_label)
        input_gradient = gradient.new_zeros(ctx.shape)
        if ctx.mine:
            input_gradient[:, :1] = gradient
        return input_gradient, None, None


class ReduceScatterForward(ExchangeFunction):
    """Forward: reduce-scatter of partial sums. Backward: allgather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, comm: Communicator) -> Tensor:
        ctx.dim, ctx.count, ctx.comm = dim, x.shape[dim], comm
        return reduce_scatter_parts(x, dim, comm, comm.label)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gather_parts(gradient, ctx.dim, ctx.count, ctx.comm, ctx.comm.back_label), None, None


class SequenceParallelLinear(ExchangeFunction):
    """A matrix cut by columns whose input is cut by tokens: allgather x, then multiply.

    Only this rank's part of x is kept; backward x is gathered again [korthikanti2022, §4.2.2].
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        count: int,
        comms: Sequence[Communicator],
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.count, ctx.comms, ctx.biased = count, comms, bias is not None
        gathered = gather_parts(x, 1, count, comms[0], comms[0].label)
        return functional.linear(gathered, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        scatter, regather = ctx.comms
        gathered = gather_parts(x, 1, ctx.count, regather, regather.label)
        flat = gradient.flatten(0, -2)
        input_gradient = reduce_scatter_parts(gradient @ weight, 1, scatter, scatter.back_label)
        bias = flat.sum(0) if ctx.biased else None
        return input_gradient, flat.T @ gathered.flatten(0, -2), bias, None, None


class ShardedCrossEntropy(ExchangeFunction):
    """Softmax and cross-entropy, summed, of logits whose channels are cut.

    Three small exchanges a call: the largest logit, the sum of exponentials, the target's own.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, dim: int, first: int, comm: Communicator
    ) -> Tensor:
        scores = logits.movedim(dim, -1)
        top = scores.amax(-1)
        comm.wire.allreduce(top, comm.axes, comm.label, dist.ReduceOp.MAX)
        raised = (scores - top[..., None]).exp()
        held_here = (target >= first) & (target < first + scores.shape[-1])
        index = torch.where(held_here, target - first, 0)[..., None]
        target_score = (scores - top[..., None]).gather(-1, index)[..., 0] * held_here
        sums = torch.stack([raised.sum(-1), target_score])
        comm.wire.allreduce(sums, comm.axes, comm.label)
        ctx.save_for_backward(raised / sums[0][..., None], index, held_here)
        ctx.dim = dim
        return (sums[0].log() - sums[1]).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        probabilities, index, held_here = ctx.saved_tensors
        logits_gradient = probabilities.clone()
        logits_gradient.scatter_add_(-1, index, -held_here[..., None].to(logits_gradient.dtype))
        return (logits_gradient * gradient).movedim(-1, ctx.dim), None, None, None, None

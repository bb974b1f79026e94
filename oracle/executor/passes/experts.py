"""Mixtures of experts: the router's choice, tokens sent to experts and back, and their products.

Each token goes as one copy to each expert that it visits. Copies leave sorted by expert, those of
one device of experts after those of the one before; how many come from whom is told ahead. With
`sequence=on` of tensor parallelism, devices that hold parts of the same experts gather theirs, to
which those are added in that have fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from oracle.executor.local.graph import Operation
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import deal
from oracle.executor.messages.mesh import EXPERTS
from oracle.executor.passes.exchange import (
    AllreduceBackward,
    Communicator,
    ExchangeFunction,
    allreduce_forward,
)
from oracle.executor.passes.one_kernel import Gate
from oracle.models.layers import Moe

PIECES = 16  # pieces of a pass's tokens that are combined one after the other
Move: TypeAlias = Callable[[Tensor], Tensor]
_AFTER = {"dispatch": 1, "up": 2, "act": 3, "down": 4, "combine": 5}  # rows behind the router


@dataclass(frozen=True, eq=False)
class Routing:
    """Where the copies of a pass's tokens go, and in which order experts have them."""

    chosen: Tensor  # (tokens, k) experts
    order: Tensor  # copies by expert
    sent: list[int]  # copies to each device of experts
    received: list[int]  # and from each
    wide: int  # the most copies of any device that gathers
    arranged: Tensor | None  # order of the gathered copies by expert; None: they arrive in it
    counts: list[int]  # copies for each expert of this device
    experts: Communicator
    tensor: tuple[Communicator, Communicator] | None  # of gathering devices: there, back

    @property
    def tokens(self) -> Tensor:
        """The token that each copy is of."""
        return self.order // self.chosen.shape[1]

    @property
    def places(self) -> Tensor:
        """(tokens, k) places of each token's copies among all copies."""
        places = torch.empty_like(self.order)
        places[self.order] = torch.arange(len(self.order), device=self.order.device)
        return places.view(self.chosen.shape)

    def to_experts(self, copies: Tensor) -> Tensor:
        """Send copies to the devices of their experts, sorted by expert."""
        comm, sent, received = self.experts, self.sent, self.received
        copies = Step.apply(copies, partial(self._swapped, sent, received, comm.label),
                            partial(self._swapped, received, sent, comm.back_label))  # fmt: skip
        if self.tensor:
            comm, _ = self.tensor
            copies = Step.apply(copies, partial(self._gathered, comm, comm.label),
                                partial(self._scattered, comm, comm.back_label))  # fmt: skip
        return copies if self.arranged is None else Step.apply(copies, self._sorted, self._unsorted)

    def from_experts(self, outputs: Tensor) -> Tensor:
        """Send the outputs of experts back to the devices that the copies came from."""
        comm, sent, received = self.experts, self.sent, self.received
        if self.arranged is not None:
            outputs = Step.apply(outputs, self._unsorted, self._sorted)
        if self.tensor:
            _, comm_back = self.tensor
            outputs = Step.apply(
                outputs,
                partial(self._scattered, comm_back, comm_back.label),
                partial(self._gathered, comm_back, comm_back.back_label),
            )
        return Step.apply(outputs, partial(self._swapped, received, sent, comm.label),
                          partial(self._swapped, sent, received, comm.back_label))  # fmt: skip

    def _swapped(
        self, sent: list[int], received: list[int], label: str, copies: Tensor
    ) -> Tensor:  # fmt: skip
        comm = self.experts
        if comm.size == 1:
            return copies.view_as(copies)
        return comm.wire.alltoall_uneven(copies, sent, received, comm.axes, label)

    def _gathered(self, comm: Communicator, label: str, copies: Tensor) -> Tensor:
        padded = functional.pad(copies, (0, 0, 0, self.wide - len(copies)))
        return comm.wire.allgather(padded, comm.axes, label).flatten(0, 1)

    def _scattered(self, comm: Communicator, label: str, outputs: Tensor) -> Tensor:
        parts = outputs.view(comm.size, self.wide, -1)
        return comm.wire.reduce_scatter(parts, comm.axes, label)[: sum(self.received)]

    def _sorted(self, copies: Tensor) -> Tensor:
        return copies[self.arranged]

    def _unsorted(self, outputs: Tensor) -> Tensor:
        size = self.wide * (self.tensor[0].size if self.tensor else 1)
        return outputs.new_zeros(size, outputs.shape[1]).index_copy_(0, self.arranged, outputs)


def routing(local: LocalModel, op: Operation) -> Routing:
    """The choice that a mixture's router made in this pass."""
    route: Routing = local.routings[op.index - _AFTER[op.part]]
    return route


def routed(local: LocalModel, op: Operation, x: Tensor, logits: Tensor) -> Routing:
    """The routing that a router's logits give the tokens of this device."""
    layer, mesh = op.layer, local.mesh
    assert isinstance(layer, Moe)
    chosen = (
        _in_turn(local, op, x) if local.routing == "even" else choice(logits.flatten(0, -2), layer)
    )
    order = chosen.flatten().argsort(stable=True)
    counts = chosen.flatten().bincount(minlength=layer.experts)
    experts = Communicator(local.wire, EXPERTS, "expert: tokens to experts",
                           "expert: gradients to experts")  # fmt: skip
    dealt = deal(layer.experts, experts.size)
    begin, end = dealt[experts.place]
    sent = [int(counts[a:b].sum()) for a, b in dealt]
    # (sending devices, experts here), and then (gathering devices, …) in front
    incoming = local.wire.counts_of_all(counts, EXPERTS, "expert: counts")
    incoming = incoming[:, begin:end].contiguous()
    received, tensor, counts_gathered = incoming.sum(1).tolist(), None, incoming[None]
    if local.cuts.sequence and mesh.degree("expert/tensor", "tensor/expert") == 1:
        tensor = (local.comm("tensor", "expert activations gathered",
                             "expert input gradients scattered"),
                  local.comm("tensor", "expert activations scattered",
                             "expert output gradients gathered"))  # fmt: skip
        counts_gathered = local.wire.counts_of_all(incoming, ("tensor",), "tensor: counts")
    most_copies = int(counts_gathered.sum((1, 2)).max())
    counts_here = counts_gathered.sum((0, 1)).tolist()
    mixed = tensor is not None or (experts.size > 1 and len(counts_here) > 1)
    arranged = _by_expert(counts_gathered, most_copies) if mixed else None
    return Routing(chosen, order, sent, received, most_copies, arranged, counts_here, experts,
                   tensor)  # fmt: skip


def _by_expert(counts: Tensor, stride: int) -> Tensor:
    """The order that sorts copies, received by (gathering, sending, expert) counts, by expert.

    >>> _by_expert(torch.tensor([[[1, 2], [2, 0]], [[0, 1], [1, 1]]]), 5).tolist()
    [0, 3, 4, 6, 1, 2, 5, 7]
    """
    gathering, sending, experts = counts.shape
    number = torch.arange(experts, device=counts.device).repeat(gathering * sending)
    whose = number.repeat_interleave(counts.flatten())
    totals = counts.sum((1, 2))
    first = totals.cumsum(0) - totals
    shift = torch.arange(gathering, device=counts.device) * stride - first
    places = torch.arange(len(whose), device=counts.device) + shift.repeat_interleave(totals)
    return places[whose.argsort(stable=True)]


def choice(logits: Tensor, layer: Moe) -> Tensor:
    """(tokens, k) experts with the largest logits, among the best groups where these are limited.

    >>> layer = Moe(4, 1, 2, groups=2, reach=1)
    >>> choice(torch.tensor([[3.0, 0, 2, 1]]), layer).tolist()
    [[0, 1]]
    """
    if layer.reach:
        groups = logits.detach().unflatten(-1, (layer.groups, -1))
        best = groups.amax(-1).topk(layer.reach, -1).indices
        hidden = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter_(-1, best, False)
        logits = groups.masked_fill(hidden[..., None], -torch.inf).flatten(-2)
    return logits.detach().topk(layer.active, -1).indices


def _in_turn(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    """Experts chosen by turns along a sequence, so that all have as many tokens."""
    layer = op.layer
    assert isinstance(layer, Moe)
    first, end = local.tokens(op.shape.given.extents[0])
    if local.cuts.sequence:
        first, _ = deal(end - first, local.mesh.degree("tensor"), first)[local.mesh.at["tensor"]]
    positions = torch.arange(first, first + x.shape[1], device=x.device).repeat(x.shape[0])
    turn = positions[:, None] * layer.active + torch.arange(layer.active, device=x.device)
    return turn % layer.experts


class Step(ExchangeFunction):
    """One exchange or reordering of copies, with the step for their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forth: Move, back: Move) -> Tensor:
        ctx.back = back
        return forth(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.back(gradient), None, None


class Copies(ExchangeFunction):
    """A copy of each token for each of its experts; backward their gradients add up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, routing: Routing) -> Tensor:
        ctx.routing, ctx.shape = routing, x.shape
        return x.flatten(0, -2)[routing.tokens]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        input_gradient = gradient.new_zeros(ctx.shape)
        input_gradient.view(-1, ctx.shape[-1]).index_add_(0, ctx.routing.tokens, gradient)
        return input_gradient, None


class Combine(ExchangeFunction):
    """Adds up the outputs for a token's copies, weighed by the softmax of the chosen logits.

    The output of shared experts, if there are any, is added too.
    """

    @staticmethod
    def forward(
        ctx: Any, copies: Tensor, logits: Tensor, shared: Tensor | None, routing: Routing
    ) -> Tensor:
        ctx.routing, ctx.shape, ctx.both = routing, logits.shape, shared is not None
        flat = logits.flatten(0, -2)
        shares = flat.gather(-1, routing.chosen).softmax(-1)
        total = (copies.new_zeros(len(flat), copies.shape[1]) if shared is None
                 else shared.flatten(0, -2).clone())  # fmt: skip
        for tokens in _pieces(len(flat)):
            token_copies = copies[routing.places[tokens]]  # (tokens, k, channels)
            total[tokens] += torch.bmm(shares[tokens, None], token_copies)[:, 0]
        ctx.save_for_backward(copies, shares)
        return total.view(*logits.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (copies, shares), routing = ctx.saved_tensors, ctx.routing
        flat = gradient.flatten(0, -2)
        of_copies, of_shares = torch.empty_like(copies), torch.empty_like(shares)
        for tokens in _pieces(len(flat)):
            places = routing.places[tokens]
            of_shares[tokens] = torch.bmm(copies[places], flat[tokens, :, None])[..., 0]
            of_copies[places] = flat[tokens, None] * shares[tokens, :, None]
        of_chosen = shares * (of_shares - (shares * of_shares).sum(-1, keepdim=True))
        of_logits = shares.new_zeros(len(flat), ctx.shape[-1])
        of_logits.scatter_(-1, routing.chosen, of_chosen)
        return of_copies, of_logits.view(ctx.shape), gradient if ctx.both else None, None


def _pieces(tokens: int) -> list[slice]:
    """Tokens in a few pieces, so that little memory is taken for each."""
    return [slice(a, b) for a, b in deal(tokens, PIECES)]


class ExpertMatrix(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """Products of each expert with its own copies, one after the other."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, counts: Sequence[int]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.counts, ctx.biased = counts, bias is not None
        outputs = x.new_empty(len(x), weight.shape[1])
        for expert, (a, b) in enumerate(_runs(counts)):
            torch.mm(x[a:b], weight[expert].T, out=outputs[a:b])
            if bias is not None:
                outputs[a:b] += bias[expert]
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        of_x, of_weight = torch.empty_like(x), torch.empty_like(weight)
        of_bias = weight.new_empty(weight.shape[:2]) if ctx.biased else None
        for expert, (a, b) in enumerate(_runs(ctx.counts)):
            torch.mm(gradient[a:b], weight[expert], out=of_x[a:b])
            torch.mm(gradient[a:b].T, x[a:b], out=of_weight[expert])
            if of_bias is not None:
                of_bias[expert] = gradient[a:b].sum(0)
        return of_x, of_weight, of_bias, None


def _runs(counts: Sequence[int]) -> list[tuple[int, int]]:
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    return list(pairwise(ends))


def apply(local: LocalModel, op: Operation, inputs: Sequence[Tensor]) -> Tensor:
    """Run one row of a mixture's experts."""
    x = inputs[0]
    if op.part == "dispatch":
        route = routed(local, op, *inputs)
        local.routings[op.index - _AFTER["dispatch"]] = route
        return route.to_experts(Copies.apply(x, route))
    if op.part == "combine":
        shared = inputs[2] if len(inputs) > 2 else None
        route = routing(local, op)
        del local.routings[op.index - _AFTER["combine"]]
        return Combine.apply(route.from_experts(x), inputs[1], shared, route)
    if op.part == "act":
        layer = op.layer
        assert isinstance(layer, Moe)
        return Gate.apply(x, "silu") if layer.gated else functional.gelu(x)
    return _matrix(local, op, x)


def _matrix(local: LocalModel, op: Operation, x: Tensor) -> Tensor:
    """Run the products of experts, of which each device has a part where tensor ranks cut them."""
    weight, bias = local.weight(op), local.weight(op, "bias")
    assert weight is not None
    counts, cut = routing(local, op).counts, local.cuts.expert_cut
    all_copies_here = cut and not local.cuts.sequence  # each device has all copies
    if op.part == "up" and all_copies_here:
        x = AllreduceBackward.apply(x, local.comm("tensor", "", "expert input gradients"))
    if op.part == "down" and cut and bias is not None:
        # each rank adds its own part of the bias to the partial sum
        first, count = local.weight_of[op.index, "bias"].intervals[1][0][0], weight.shape[1]
        bias = functional.pad(bias, (first, count - first - bias.shape[1]))
    outputs = ExpertMatrix.apply(x, weight, bias, counts)
    if op.part == "down" and all_copies_here:
        outputs = allreduce_forward(outputs, local.comm("tensor", "expert activations"))
    return outputs

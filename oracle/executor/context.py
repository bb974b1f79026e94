"""Attention over tokens that are cut: ring attention, or all-to-all between tokens and heads.

| forward                        | backward                                          |
| all-to-all: tokens to heads    | all-to-all: heads to tokens (and the reverse)     |
| ring: keys and values          | ring: keys, values and their gradients            |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from oracle.executor.exchange import Communicator, ExchangeFunction
from oracle.executor.parts import Interval, deal


def all_to_all(x: Tensor, dim: int, other: int, comm: Communicator, what: str) -> Tensor:
    """Exchange a tensor that is cut along `other` for one that is cut along `dim`."""
    parts = torch.stack(x.chunk(comm.size, dim))
    heard = comm.wire.alltoall(parts, comm.axes, what)
    return torch.cat(list(heard), other)


class AllToAll(ExchangeFunction):
    """Forward: all-to-all that cuts `dim` and joins `other`. Backward: the reverse."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, other: int, comm: Communicator) -> Tensor:
        ctx.of = (dim, other, comm)
        return all_to_all(x, dim, other, comm, comm.what)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        dim, other, comm = ctx.of
        return all_to_all(gradient, other, dim, comm, comm.back), None, None, None


class RingAttention(ExchangeFunction):
    """Ring attention: softmax(q kᵀ/√w) v of tokens that are cut [liu2023, §3].

    Forward each holds its queries and sees one part of keys and values after the other, p - 1
    hops; sums are kept with the logarithm of what they are divided by. Backward the parts go
    round again. A part's owner adds its own share at the end, so gradients travel p - 1 hops
    too: first without a part that has none yet, last without keys, which are needed no more.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, tokens: int, causal: bool, comm: Communicator
    ) -> Tensor:
        parts, me, p = deal(tokens, comm.size), comm.place, comm.size
        made, least = torch.zeros_like(q), q.new_full(q.shape[:-1], -math.inf)
        held = torch.stack([k, v])
        for hop in range(p):
            owner = (me - hop) % p
            wait = _pass_on(held, parts, owner, comm, comm.what) if hop < p - 1 else None
            scores = _scores(q, held[0], parts[me], parts[owner], causal)
            most = torch.logaddexp(least, scores.logsumexp(-1))
            share = _of_values((scores - most[..., None]).exp(), held[1], q.shape[1])
            made = made * (least - most).exp()[..., None] + share
            least = most
            held = wait() if wait else held
        ctx.save_for_backward(q, k, v, made, least)
        ctx.of = (parts, causal, comm)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        q, k, v, made, least = ctx.saved_tensors
        parts, causal, comm = ctx.of
        me, p = comm.place, comm.size
        dot = (gradient * made).sum(-1)[..., None]

        def shares(held: Tensor, owner: int) -> tuple[Tensor, Tensor]:
            keys, values = held
            scores = _scores(q, keys, parts[me], parts[owner], causal)
            chances = (scores - least[..., None]).exp()
            wide = values.repeat_interleave(q.shape[1] // values.shape[1], 1)
            steep = chances * (gradient @ wide.transpose(-2, -1) - dot) / math.sqrt(q.shape[-1])
            of_q = _of_values(steep, keys, q.shape[1])
            back = (steep.transpose(-2, -1) @ q, chances.transpose(-2, -1) @ gradient)
            return of_q, torch.stack([_folded(t, keys.shape[1]) for t in back])

        own = torch.stack([k, v])
        of_q, own_kv = shares(own, me)
        held, travelling = own, None
        for hop in range(1, p):  # the part of the one before, then of the one before that
            owner = (me - hop) % p
            whole = held if travelling is None else torch.cat([held, travelling])
            arrived = _pass_on(whole, parts, (owner + 1) % p, comm, comm.back)()
            held, travelling = arrived[:2], arrived[2:] if len(arrived) > 2 else None
            share, found = shares(held, owner)
            of_q = of_q + share
            travelling = found if travelling is None else travelling + found
        if travelling is not None:  # back to the owner, the next rank
            own_kv = own_kv + _pass_on(travelling, parts, (me + 1) % p, comm, comm.back)()
        return of_q, own_kv[0], own_kv[1], None, None, None


def _pass_on(
    held: Tensor, parts: Sequence[Interval], owner: int, comm: Communicator, what: str
) -> Callable[[], Tensor]:
    """Begin to send the part of `owner` on; call what is returned for the one that arrives."""
    begin, end = parts[(owner - 1) % comm.size]
    shape = (*held.shape[:-2], end - begin, held.shape[-1])
    return comm.wire.rotate(held, held.new_empty(shape), comm.axes, what)


def _scores(q: Tensor, keys: Tensor, mine: Interval, theirs: Interval, causal: bool) -> Tensor:
    wide = keys.repeat_interleave(q.shape[1] // keys.shape[1], 1)
    scores: Tensor = q @ wide.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        at, of = (torch.arange(*span, device=q.device) for span in (mine, theirs))
        scores = scores.masked_fill(of[None, :] > at[:, None], -math.inf)
    return scores


def _of_values(weights: Tensor, values: Tensor, heads: int) -> Tensor:
    return weights @ values.repeat_interleave(heads // values.shape[1], 1)


def _folded(gradient: Tensor, kv_heads: int) -> Tensor:
    """Add up the gradients of queries that share keys."""
    return gradient.unflatten(1, (kv_heads, -1)).sum(2)

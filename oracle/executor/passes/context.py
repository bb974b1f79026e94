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

from oracle.executor.local.parts import Interval, deal
from oracle.executor.passes.exchange import Communicator, ExchangeFunction


def all_to_all(x: Tensor, dim: int, joined_dim: int, comm: Communicator, label: str) -> Tensor:
    """Exchange a tensor that is cut along `joined_dim` for one that is cut along `dim`."""
    parts = torch.stack(x.chunk(comm.size, dim))
    received = comm.wire.alltoall(parts, comm.axes, label)
    return torch.cat(list(received), joined_dim)


class AllToAll(ExchangeFunction):
    """Forward: all-to-all that cuts `dim` and joins `joined_dim`. Backward: the reverse."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, joined_dim: int, comm: Communicator) -> Tensor:
        ctx.of = (dim, joined_dim, comm)
        return all_to_all(x, dim, joined_dim, comm, comm.label)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        dim, joined_dim, comm = ctx.of
        return all_to_all(gradient, joined_dim, dim, comm, comm.back_label), None, None, None


class RingAttention(ExchangeFunction):
    """Ring attention: softmax(q kᵀ/√w) v of tokens that are cut [liu2023, §3].

    Forward each rank holds its queries and sees one part of keys and values after the other, in
    p - 1 hops; sums are kept with the logarithm of their divisors. Backward the parts go round
    again. A part's owner adds its own share at the end, so gradients travel p - 1 hops
    too: first without a part that has none yet, last without keys, which are needed no more.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, tokens: int, causal: bool, comm: Communicator
    ) -> Tensor:
        parts, me, p = deal(tokens, comm.size), comm.place, comm.size
        output, logsum = torch.zeros_like(q), q.new_full(q.shape[:-1], -math.inf)
        keys_values = torch.stack([k, v])
        for hop in range(p):
            owner = (me - hop) % p
            wait = _pass_on(keys_values, parts, owner, comm, comm.label) if hop < p - 1 else None
            scores = _scores(q, keys_values[0], parts[me], parts[owner], causal)
            logsum_new = torch.logaddexp(logsum, scores.logsumexp(-1))
            share = _of_values((scores - logsum_new[..., None]).exp(), keys_values[1], q.shape[1])
            output = output * (logsum - logsum_new).exp()[..., None] + share
            logsum = logsum_new
            keys_values = wait() if wait else keys_values
        ctx.save_for_backward(q, k, v, output, logsum)
        ctx.of = (parts, causal, comm)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        q, k, v, output, logsum = ctx.saved_tensors
        parts, causal, comm = ctx.of
        me, p = comm.place, comm.size
        dot = (gradient * output).sum(-1)[..., None]

        def shares(keys_values: Tensor, owner: int) -> tuple[Tensor, Tensor]:
            keys, values = keys_values
            scores = _scores(q, keys, parts[me], parts[owner], causal)
            probabilities = (scores - logsum[..., None]).exp()
            wide_values = values.repeat_interleave(q.shape[1] // values.shape[1], 1)
            score_gradient = probabilities * (gradient @ wide_values.transpose(-2, -1) - dot)
            score_gradient = score_gradient / math.sqrt(q.shape[-1])
            query_gradient = _of_values(score_gradient, keys, q.shape[1])
            back = (score_gradient.mT @ q, probabilities.mT @ gradient)
            return query_gradient, torch.stack([_folded(t, keys.shape[1]) for t in back])

        own_keys_values = torch.stack([k, v])
        query_gradient, own_kv_gradient = shares(own_keys_values, me)
        keys_values, travelling = own_keys_values, None
        for hop in range(1, p):  # the part of the rank before, then of the one before that
            owner = (me - hop) % p
            message = keys_values if travelling is None else torch.cat([keys_values, travelling])
            arrived = _pass_on(message, parts, (owner + 1) % p, comm, comm.back_label)()
            keys_values, travelling = arrived[:2], arrived[2:] if len(arrived) > 2 else None
            q_share, kv_share = shares(keys_values, owner)
            query_gradient = query_gradient + q_share
            travelling = kv_share if travelling is None else travelling + kv_share
        if travelling is not None:  # back to the owner, the next rank
            arrived = _pass_on(travelling, parts, (me + 1) % p, comm, comm.back_label)()
            own_kv_gradient = own_kv_gradient + arrived
        return query_gradient, own_kv_gradient[0], own_kv_gradient[1], None, None, None


def _pass_on(
    tensors: Tensor, parts: Sequence[Interval], owner: int, comm: Communicator, label: str
) -> Callable[[], Tensor]:
    """Begin to send the part of `owner` on; call what is returned for the part that arrives."""
    begin, end = parts[(owner - 1) % comm.size]
    shape = (*tensors.shape[:-2], end - begin, tensors.shape[-1])
    return comm.wire.rotate(tensors, tensors.new_empty(shape), comm.axes, label)


def _scores(q: Tensor, keys: Tensor, rows: Interval, columns: Interval, causal: bool) -> Tensor:
    """The scores of queries at tokens `rows` and keys at tokens `columns`."""
    wide_keys = keys.repeat_interleave(q.shape[1] // keys.shape[1], 1)
    scores: Tensor = q @ wide_keys.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        at_row, at_column = (torch.arange(*span, device=q.device) for span in (rows, columns))
        scores = scores.masked_fill(at_column[None, :] > at_row[:, None], -math.inf)
    return scores


def _of_values(weights: Tensor, values: Tensor, heads: int) -> Tensor:
    return weights @ values.repeat_interleave(heads // values.shape[1], 1)


def _folded(gradient: Tensor, kv_heads: int) -> Tensor:
    """Add up the gradients of queries that share keys."""
    return gradient.unflatten(1, (kv_heads, -1)).sum(2)

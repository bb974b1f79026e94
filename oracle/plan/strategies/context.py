"""Context parallelism: every sequence is cut along its tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oracle.models import masks
from oracle.models.model import Floats, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Rule, Strategy, words
from oracle.plan.strategies.sharded import cut_state

# tokens of a sequence from where practitioners cut it: the shortest that is cut in the recipes of
# `python -m benchmarks.practice` (Qwen3 235B of Megatron-Bridge)
LONG = 4096


@dataclass(frozen=True)
class Context(Strategy):
    """Split the tokens of each sequence over p devices; attention still sees them all.

        T_comp = D/p Σ (FW + BW) + D/B Σ WU
        T_comm = T_gradients + D/B Σ_attention 3 (p - 1)(α + 2 B s/p h_kv d δβ)
        M      = 2γδ Σ (B (|x| + |y|)/p + |w|)

    `kind=ring` passes keys and values round, p - 1 hops forward and twice as many bytes back
    (their gradients travel with them), under the attention of the part at hand: p smaller
    kernels, whose results are merged as they come.
    `kind=alltoall` turns the cut from tokens to heads and back: two exchanges of q, k, v and
    one of the output, each pass. The weights stay whole: this axis joins `Data`'s exchange.
    """

    kind: Array = words("ring", "alltoall")

    letters = "CP"
    source = "liu2023, §3 (ring); jacobs2023, §3 (all-to-all)"
    nearness = 3
    bound = "tokens of a sequence"
    limited_by = ("layer-wise exchange", "gradient exchange")
    leaves = "they are of the weights, not of the tokens"
    runs = ("kind",)

    def limit(self, model: Model, batch: Array) -> Array | float:
        tokens = [r.made.extents[0] for r in model.rows if r.work == "attention"]
        heads = [r.kv_heads for r in model.rows if r.work == "attention"]
        # what may look at any token, or at others than tokens
        if (masks.opaque(model) & model.tokens | masks.attention(model) & ~model.tokens).any():
            return 1.0
        turned = self.says("kind", "alltoall")
        return np.where(turned, min(heads, default=1), min(tokens, default=1))

    def unusual(self, model: Model) -> Array:
        """Short sequences, which nobody cuts."""
        tokens = [row.made.extents[0] for row in model.rows if row.work == "attention"]
        return (np.asarray(self.degree) > 1) & (max(tokens, default=0) < LONG)

    def rules(self, model: Model, batch: Array, axes: Mapping[str, Any]) -> Iterator[Rule]:
        yield from super().rules(model, batch, axes)
        complaint = "kind=alltoall wants as many whole heads and tokens on each device"
        yield Rule.never(self.uneven(model, axes["tensor"].degree), complaint)

    def uneven(self, model: Model, tensor: Array) -> Array:
        """Plans whose all-to-all finds heads, of those that `tensor` leaves, or tokens over."""
        p = np.asarray(self.degree)
        uneven_shares = np.zeros(np.shape(p), bool)
        for row in model.rows:
            if row.work == "attention":
                uneven_shares = (
                    uneven_shares | (row.kv_heads // tensor % p > 0) | (row.made.extents[0] % p > 0)
                )
        return np.asarray(uneven_shares & (p > 1) & self.says("kind", "alltoall"))

    def split(self, shard: Shard) -> Shard:
        shard = shard.but(replicas=(*shard.replicas, "context"))
        if not self.wide:
            return shard
        p, model = self.degree, shard.model
        cut = model.tokens & masks.attention(model).any()
        # what heads make is wanted by their kernel; what tokens get of it by the matrix behind it
        flash = model.mask(lambda row: row.flash) & self.says("kind", "alltoall") & (p > 1)
        twice = shard.delta * np.where(flash, shard.y / p, 0.0)
        return cut_state(shard, shard.zero, p).but(
            given=(np.where(cut, shard.deal(shard.given[0], p), shard.given[0]), *shard.given[1:]),
            made=(np.where(cut, shard.deal(shard.made[0], p), shard.made[0]), *shard.made[1:]),
            x=np.where(cut, shard.x / p, shard.x),
            y=np.where(cut, shard.y / p, shard.y),
            kept=np.where(cut, shard.kept / p, shard.kept),
            kept_bytes=np.where(cut, shard.kept_bytes / p, shard.kept_bytes) + twice,
            work=shard.work * np.where(cut, 1 / p, 1.0),
            long=shard.long * p,
            rounds=shard.rounds * np.where(self.says("kind", "ring"), p, 1),
        )

    def talk(self, shard: Shard) -> list[Message]:
        model = shard.model
        core = masks.attention(model)
        width, keys = head_width(model), shard.kv_heads * repeated(model)
        micro = shard.micro * shard.delta
        ring = self.says("kind", "ring")
        part = micro * shard.made[0] * width * keys * 2  # keys and values of one part
        # q, k and v one way, what is made of them the other: two exchanges a pass
        turned = micro * shard.made[0] * width * (shard.heads + keys)
        hops = (np.asarray(self.degree) - 1) * core
        ahead, back = ("forward", "backward") if shard.software.context == "beside" else ("", "")
        return [
            Message("keys and values", "sendrecv", part, ("context",), hops * ring,
                    when="forward", hides=ahead),
            Message("keys, values and gradients", "sendrecv", 2 * part, ("context",), hops * ring,
                    when="backward", hides=back),
            Message("heads for tokens", "alltoall", turned, ("context",), 2 * core * ~ring,
                    when="forward"),
            Message("tokens for heads", "alltoall", turned, ("context",), 2 * core * ~ring,
                    when="backward"),
        ]  # fmt: skip


@lru_cache(masks.MODELS)
def head_width(model: Model) -> Floats:
    return model.column(lambda row: row.width)


@lru_cache(masks.MODELS)
def repeated(model: Model) -> Floats:
    """Times that keys and values stand in memory, and are sent."""
    return model.column(lambda row: row.repeated)

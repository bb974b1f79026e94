"""How replicas agree on gradients other than by a plain allreduce: what `data` says then.

    compress   fewer bytes of each gradient       encoded on the device, bucket by bucket
    servers    pushed to k servers, pulled back    in time or each at its own pace
    sync       weights averaged every k steps      local SGD

Of n weights, δ bytes each, and density d:

    fp16, bf16 one allreduce, 2n bytes
    int8, fp8  all-to-all and allgather of n bytes and a scale for each block of 2,048
    onebit     the same of n/8 bytes, and two allgathers of a scale of each rank [tang2021]
    powersgd   allreduces of r g and of r a words of each matrix a × g [vogels2019]; the rest whole
    topk       d n values and places: allgathered (`sparse=allgather`), or one of
               `oracle.network.collectives.sparse`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from oracle.models import masks
from oracle.models.model import Flags, Floats, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.network.collectives.sparse import INDEX, switched
from oracle.plan.strategies.base import Rule

Data: TypeAlias = Any  # the axis of that name, whose file stands on this one
COMPRESS = ("none", "fp16", "bf16", "fp8", "int8", "onebit", "powersgd", "topk")
SPARSE = ("allgather", "pairwise", "switching", "gtopk", "oktopk")
BLOCK = 2048  # numbers that share a scale [dettmers2022, §2.1]
SCALED = 1 + 4 / BLOCK  # bytes of a number of 8 bits, its share of the scale with it
WORTH = 2.0  # times fewer words than it has, or a matrix is sent whole [vogels2019; ddp_hooks]
# ρ: the support of a sum of s ranks is that of s^(1 − ρ) independent ones. Assumed: nothing is
# known to overlap, which is the most that sums fill up
OVERLAP = 0.0


def plainly(data: Data, wire: float) -> Array | float:
    """What the plain allreduce sends, of the gradients' bytes: all, half of them, or nothing."""
    if not special(data):
        return 1.0
    plain = ~(encoded(data) | (_wide(data) & (np.asarray(data.servers) > 0)) | averaged(data))
    narrow = _wide(data) & (data.says("compress", "fp16") | data.says("compress", "bf16"))
    return np.where(narrow, min(2.0 / wire, 1.0), plain * 1.0)


def special(data: Data) -> bool:
    """Whether any plan does otherwise than by a plain allreduce."""
    knobs = data.compress, data.servers, np.asarray(data.sync) - 1
    return any(bool(np.any(np.asarray(knob) > 0)) for knob in knobs)


def waited(data: Data) -> Array | float:
    """Part of the replicas that a step waits for: all, but backups; none where each goes alone."""
    served = _wide(data) & (np.asarray(data.servers) > 0)
    if not served.any():
        return 1.0
    part = 1 - np.asarray(data.backups) / np.maximum(data.degree, 1)
    return np.where(served, np.where(data.says("mode", "async"), 0.0, part), 1.0)


def encoded(data: Data) -> Array:
    """Plans whose gradients travel in a form that cannot be added up on the way."""
    return np.asarray(_wide(data) & (np.asarray(data.compress) > COMPRESS.index("bf16")))


def averaged(data: Data) -> Array:
    """Plans that average weights now and then instead of gradients."""
    return np.asarray(_wide(data) & (np.asarray(data.sync) > 1))


def _wide(data: Data) -> Array:
    return np.asarray(np.asarray(data.degree) > 1)


@dataclass(frozen=True)
class Speaker:
    """What is the same of all messages of one group: whose weights they are of, what hides them."""

    data: Data
    shard: Shard
    prefix: str
    group: tuple[str, ...]
    learned: Array  # |w| of its rows
    under: str
    dense: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dense", self.learned * self.shard.wire)

    def say(
        self, what: str, op: str, nbytes: Array, where: Array, by: str = "",
        sized: Callable[[Array], Array] | None = None, calls: Any = 1.0, hides: bool = True,
    ) -> Message:  # fmt: skip
        """A message of the plans `where` it is sent."""
        return Message(f"{self.prefix}{what}", op, nbytes * where, self.group, calls, when="step",
                       hides=self.under if hides else "", by=by, stands_for=self.dense * where,
                       sized=sized)  # fmt: skip


def messages(
    data: Data, shard: Shard, groups: list[tuple[str, Flags, tuple[str, ...]]], w: Array
) -> Iterator[Message]:
    """What plans say that do not agree by a plain allreduce."""
    if not special(data):
        return
    under = "backward" if shard.software.exchange.overlap == "backward" else ""
    for prefix, rows, group in groups:
        learned = w * shard.model.trained * rows
        if np.any(learned):
            one = Speaker(data, shard, prefix, group, learned, under)
            yield from _narrow(one)
            yield from _low_rank(one)
            yield from _sparse(one)
            yield from _servers(one)
            yield from _averaged(one)


def _where(one: Speaker, word: str) -> Array:
    return np.asarray(_wide(one.data) & one.data.says("compress", word))


def _narrow(one: Speaker) -> Iterator[Message]:
    """Every rank adds up its part of what all send it, and tells all the sum in as few bits."""
    eight = _where(one, "int8") | _where(one, "fp8")
    if eight.any():
        yield one.say("gradients in 8 bits", "alltoall", one.learned * SCALED, eight)
        yield one.say("sums in 8 bits", "allgather", one.learned * SCALED, eight)
    signs = _where(one, "onebit")
    if signs.any():
        whole = np.sum(one.learned * one.shard.model.repeat, axis=-1, keepdims=True)
        each = one.learned / whole
        yield one.say("signs of gradients", "alltoall", one.learned / 8, signs)
        yield one.say("signs of sums", "allgather", one.learned / 8, signs)
        yield one.say("scales of signs", "allgather", 4.0 * each, signs, sized=_whole, calls=2.0)


def _whole(ranks: Array) -> Array:
    """An allgather's buffer is that of all ranks."""
    return ranks


def _low_rank(one: Speaker) -> Iterator[Message]:
    there = _where(one, "powersgd")
    if not there.any():
        return
    left, right, rest = factors(one.shard, one.learned, np.asarray(one.data.rank))
    width = one.shard.wire
    yield one.say("left factors", "allreduce", left * width, there)
    yield one.say("right factors", "allreduce", right * width, there)
    yield one.say("what is not factored", "allreduce", rest * width, there)


@lru_cache(masks.MODELS)
def _factored(model: Model) -> tuple[Flags, Floats, Floats, Floats]:
    """(rows with matrices, outputs whole, whether they have a bias, experts of each)."""
    mask = model.mask(lambda row: row.work in ("gemm", "conv") or row.kind == "embedding")
    outputs = model.column(lambda row: row.made.channels)
    biased = model.column(lambda row: row.bias > 0)
    return mask, outputs, biased, model.column(lambda row: max(row.experts, 1))


def factors(shard: Shard, learned: Array, rank: Array) -> tuple[Array, Array, Array]:
    """Words of the left and the right factor of each row's matrices, and of what has none.

    A matrix of a × g is sent as r (a + g) words where that is half of it or less.
    """
    mask, outputs, biased, experts = _factored(shard.model)
    held = np.maximum(experts / shard.visits, 1.0)
    g = np.where(shard.model.weighted, shard.filters, outputs)
    bias = np.minimum(biased * g * held, learned)
    a = np.divide(learned - bias, g * held, out=np.zeros(np.broadcast_shapes(
        learned.shape, np.shape(g), np.shape(held))), where=(g * held) > 0)  # fmt: skip
    worth = mask & (rank * (a + g) * WORTH < a * g)
    left, right = rank * g * held * worth, rank * a * held * worth
    return left, right, np.where(worth, bias, learned)


def _sparse(one: Speaker) -> Iterator[Message]:
    there = _where(one, "topk")
    if not there.any():
        return
    data, wire = one.data, one.shard.wire
    chosen = np.asarray(data.density) * one.learned * (wire + INDEX)
    for word in SPARSE:
        where = there & data.says("sparse", word)
        if not where.any():
            continue
        if word == "allgather":
            yield one.say("largest gradients", "allgather", chosen, where, sized=_whole)
        elif word == "switching":
            mean = Switched(np.asarray(data.density, float), INDEX / wire)
            yield one.say("largest gradients by shares", "sparse_allreduce", one.dense, where,
                          word, mean)  # fmt: skip
        else:
            yield one.say(f"largest gradients by {word}", "sparse_allreduce", chosen, where, word)


@dataclass(frozen=True, eq=False)
class Switched:
    """What a ring of shares sends of the dense vector, on the mean of its steps."""

    density: Array
    index: float

    def __call__(self, ranks: Array) -> Array:
        density, ranks = np.broadcast_arrays(self.density, ranks)
        found = [
            float(np.mean(switched(d, max(int(p), 2), self.index, OVERLAP)))
            for d, p in zip(density.ravel(), ranks.ravel(), strict=True)
        ]
        return np.reshape(found, density.shape)


def _servers(one: Speaker) -> Iterator[Message]:
    data = one.data
    if not np.any(np.asarray(data.servers) > 0):
        return
    for k in np.unique(np.asarray(data.servers)).astype(int).tolist():
        for word, thinned in (("shared", None), ("own", _from_outside)):
            where = _wide(data) & (np.asarray(data.servers) == k) & data.says("hosts", word)
            if k and where.any():
                what = f"gradients and weights, {k} server{'s' * (k > 1)}"
                what += " apart" * (word == "own")
                message = one.say(what, "allreduce", one.dense, where, f"servers:{k}")
                yield replace(message, thinned=thinned)


def _from_outside(places: Array) -> Array:
    """To a server on a node of its own go the gradients of all nodes, not of all others."""
    return np.asarray(np.where(places > 1, places / np.maximum(places - 1, 1), 1.0))


def _averaged(one: Speaker) -> Iterator[Message]:
    where = averaged(one.data)
    if where.any():
        often = 1 / np.maximum(np.asarray(one.data.sync, float), 1.0)
        yield one.say("weights averaged", "allreduce", one.learned * one.shard.gathered, where,
                      calls=often, hides=False)  # fmt: skip


def rules(data: Data, batch: Array) -> Iterator[Rule]:
    """What does not go together: one way to agree at a time, and of whole gradients."""
    ahead = data.says("mode", "async") | (np.asarray(data.backups) > 0)
    if not special(data) and not ahead.any():
        return
    ways = [np.asarray(data.compress) > 0, np.asarray(data.servers) > 0, np.asarray(data.sync) > 1]
    several = sum((way * 1.0 for way in ways), np.zeros(1))
    any_of = _wide(data) & (several > 0)
    sharded = any_of & (np.asarray(data.zero) > 0)
    alone = ~ways[1] & ahead & _wide(data)
    for broken, what in (
        (sharded, "replicas that share state out agree by reduce-scatter, in full (zero=0)"),
        (_wide(data) & (several > 1), "one of compress, servers and sync at a time"),
        (alone, "workers go ahead of others only where servers wait for them"),
    ):
        yield Rule.never(broken & (batch > 0), what)
    workers = np.asarray(data.degree) * np.ones_like(batch)
    used = _wide(data) * np.ones_like(batch)
    yield Rule.most("servers", data.servers * used, workers, "replicas")
    yield Rule.most("backups", data.backups * used, workers - used, "replicas but one")

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
        self, words: str, op: str, nbytes: Array, sending_plans: Array, by: str = "",
        sized: Callable[[Array], Array] | None = None, calls: Any = 1.0, hides: bool = True,
    ) -> Message:  # fmt: skip
        """A message of the plans that send it."""
        return Message(
            f"{self.prefix}{words}", op, nbytes * sending_plans, self.group, calls, when="step",
            hides=self.under if hides else "", by=by, stands_for=self.dense * sending_plans,
            sized=sized,
        )  # fmt: skip


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
            speaker = Speaker(data, shard, prefix, group, learned, under)
            yield from _narrow(speaker)
            yield from _low_rank(speaker)
            yield from _sparse(speaker)
            yield from _servers(speaker)
            yield from _averaged(speaker)


def _where(speaker: Speaker, word: str) -> Array:
    return np.asarray(_wide(speaker.data) & speaker.data.says("compress", word))


def _narrow(speaker: Speaker) -> Iterator[Message]:
    """Every rank adds up its part of what all send it, and tells all the sum in as few bits."""
    eight = _where(speaker, "int8") | _where(speaker, "fp8")
    if eight.any():
        yield speaker.say("gradients in 8 bits", "alltoall", speaker.learned * SCALED, eight)
        yield speaker.say("sums in 8 bits", "allgather", speaker.learned * SCALED, eight)
    signs = _where(speaker, "onebit")
    if signs.any():
        all_weights = np.sum(speaker.learned * speaker.shard.model.repeat, axis=-1, keepdims=True)
        row_share = speaker.learned / all_weights
        yield speaker.say("signs of gradients", "alltoall", speaker.learned / 8, signs)
        yield speaker.say("signs of sums", "allgather", speaker.learned / 8, signs)
        yield speaker.say(
            "scales of signs", "allgather", 4.0 * row_share, signs, sized=_whole, calls=2.0
        )


def _whole(ranks: Array) -> Array:
    """An allgather's buffer is that of all ranks."""
    return ranks


def _low_rank(speaker: Speaker) -> Iterator[Message]:
    factored = _where(speaker, "powersgd")
    if not factored.any():
        return
    left, right, rest = factors(speaker.shard, speaker.learned, np.asarray(speaker.data.rank))
    width = speaker.shard.wire
    yield speaker.say("left factors", "allreduce", left * width, factored)
    yield speaker.say("right factors", "allreduce", right * width, factored)
    yield speaker.say("what is not factored", "allreduce", rest * width, factored)


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
    experts_held = np.maximum(experts / shard.visits, 1.0)
    g = np.where(shard.model.weighted, shard.filters, outputs)
    bias = np.minimum(biased * g * experts_held, learned)
    columns = g * experts_held
    shape = np.broadcast_shapes(learned.shape, np.shape(columns))
    a = np.divide(learned - bias, columns, out=np.zeros(shape), where=columns > 0)
    worth = mask & (rank * (a + g) * WORTH < a * g)
    left, right = rank * g * experts_held * worth, rank * a * experts_held * worth
    return left, right, np.where(worth, bias, learned)


def _sparse(speaker: Speaker) -> Iterator[Message]:
    sparse = _where(speaker, "topk")
    if not sparse.any():
        return
    data, wire = speaker.data, speaker.shard.wire
    chosen = np.asarray(data.density) * speaker.learned * (wire + INDEX)
    for word in SPARSE:
        sending_plans = sparse & data.says("sparse", word)
        if not sending_plans.any():
            continue
        if word == "allgather":
            yield speaker.say("largest gradients", "allgather", chosen, sending_plans, sized=_whole)
        elif word == "switching":
            mean = Switched(np.asarray(data.density, float), INDEX / wire)
            yield speaker.say("largest gradients by shares", "sparse_allreduce", speaker.dense,
                              sending_plans, word, mean)  # fmt: skip
        else:
            yield speaker.say(
                f"largest gradients by {word}", "sparse_allreduce", chosen, sending_plans, word
            )


@dataclass(frozen=True, eq=False)
class Switched:
    """What a ring of shares sends of the dense vector, on the mean of its steps."""

    density: Array
    index: float

    def __call__(self, ranks: Array) -> Array:
        density, ranks = np.broadcast_arrays(self.density, ranks)
        sent = [
            float(np.mean(switched(d, max(int(p), 2), self.index, OVERLAP)))
            for d, p in zip(density.ravel(), ranks.ravel(), strict=True)
        ]
        return np.reshape(sent, density.shape)


def _servers(speaker: Speaker) -> Iterator[Message]:
    data = speaker.data
    if not np.any(np.asarray(data.servers) > 0):
        return
    for k in np.unique(np.asarray(data.servers)).astype(int).tolist():
        for word, thinned in (("shared", None), ("own", _from_outside)):
            sending_plans = _wide(data) & (np.asarray(data.servers) == k) & data.says("hosts", word)
            if k and sending_plans.any():
                words = f"gradients and weights, {k} server{'s' * (k > 1)}"
                words += " apart" * (word == "own")
                message = speaker.say(
                    words, "allreduce", speaker.dense, sending_plans, f"servers:{k}"
                )
                yield replace(message, thinned=thinned)


def _from_outside(places: Array) -> Array:
    """To a server on a node of its own go the gradients of all nodes, not of all others."""
    return np.asarray(np.where(places > 1, places / np.maximum(places - 1, 1), 1.0))


def _averaged(speaker: Speaker) -> Iterator[Message]:
    sending_plans = averaged(speaker.data)
    if sending_plans.any():
        often = 1 / np.maximum(np.asarray(speaker.data.sync, float), 1.0)
        nbytes = speaker.learned * speaker.shard.gathered
        yield speaker.say("weights averaged", "allreduce", nbytes, sending_plans,
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
    for broken, complaint in (
        (sharded, "replicas that share state out agree by reduce-scatter, in full (zero=0)"),
        (_wide(data) & (several > 1), "one of compress, servers and sync at a time"),
        (alone, "workers go ahead of others only where servers wait for them"),
    ):
        yield Rule.never(broken & (batch > 0), complaint)
    workers = np.asarray(data.degree) * np.ones_like(batch)
    used = _wide(data) * np.ones_like(batch)
    yield Rule.most("servers", data.servers * used, workers, "replicas")
    yield Rule.most("backups", data.backups * used, workers - used, "replicas but one")

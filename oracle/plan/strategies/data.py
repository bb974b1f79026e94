"""Data parallelism: every device has the whole model and a slice of the batch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.agreement import COMPRESS, SPARSE, messages, plainly, rules
from oracle.plan.strategies.base import Rule, Strategy, count, part, words
from oracle.plan.strategies.sharded import cut_state, exchange, peers
from oracle.plan.strategies.zero_plus import QUANTIZE, Fewer, with_second_copy
from oracle.plan.strategies.zero_plus import rules as fewer_rules


@dataclass(frozen=True)
class Data(Strategy):
    """Split the batch over p devices; agree on the gradients after each iteration.

        T_comp = D/p Σ (FW + BW) + D/B Σ WU                       (1)
        T_comm = 2 D/B (p - 1)(α + Σ|w|/p δβ)                      (6)
        M      = 2γδ Σ (B/p (|x| + |y|) + |w|)                     (7)

    The exchange spans every replica of the weights, whichever strategy made it. `zero`
    shards what replicas hold in common: the optimizer state (1), the gradients (2), the
    weights (3), along every axis that replicates them. `accumulate` cuts the batch of a
    device into micro-batches.

    Replicas may agree otherwise than by an allreduce of all bytes [`agreement`]: `compress` sends
    fewer (`topk` a part `density` of them, by the algorithm `sparse`; `powersgd` factors of a
    `rank`), with `feedback` keeping what was left out for the next step; k `servers` on nodes of
    the workers or their own (`hosts`) add gradients up, in step, waiting for all but `backups`
    workers, or for each alone (`mode=async`); `sync` averages weights every so many steps. Of
    zero=3 ZeRO++ says less [`zero_plus`]: `quantize` weights or gradients, and `hpz` neighbours
    hold the weights among them between the passes.

    Differs from the source: a device's batch is ⌈B/p⌉, and the exchange hides under the
    backward pass unless `overlap=off`.
    """

    zero: Array = words("0", "1", "2", "3", alone=True)
    accumulate: Array = count(alone=True, micro_batches=True)
    overlap: Array = words("off", "on", default="on")
    compress: Array = words(*COMPRESS, rare=True)
    density: Array = part(0.01)
    rank: Array = count(4)
    sparse: Array = words(*SPARSE)
    feedback: Array = words("off", "on", default="on")
    servers: Array = count(0, rare=True)
    hosts: Array = words("shared", "own")
    backups: Array = count(0)
    mode: Array = words("sync", "async", rare=True)
    sync: Array = count(1, rare=True)
    quantize: Array = words(*QUANTIZE, rare=True)
    hpz: Array = count(1, rare=True)

    letters = "DP"
    source = "kahira2021, Table III 'Data'; eqs. 1, 6, 7"
    nearness = 1
    bound = "samples in the batch"
    limited_by = ("gradient exchange", "memory redundancy: weights replicated", "weight update")
    deals_batch = True
    speaks_for_all = True
    state_knobs = ("zero", "overlap")
    runs = ("zero", "accumulate", "overlap", "compress=fp16", "compress=bf16", "compress=onebit",
            "compress=powersgd", "compress=topk", "density", "rank", "sparse", "feedback",
            "servers", "sync")  # fmt: skip

    def limit(self, model: Model, batch: Array) -> Array | float:
        return batch

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """What changes nothing that is learned."""
        values = super().tries(model)
        return {knob: values[knob] for knob in ("zero", "overlap")}

    @classmethod
    def lossy(cls) -> list[dict[str, float]]:
        lossy_words: list[dict[str, float]] = [
            {"compress": cls.number("compress", word)} for word in COMPRESS if word != "none"
        ]
        lossy_words += [{"compress": cls.number("compress", "topk"), "density": density,
                   "sparse": cls.number("sparse", by)}
                  for density in (0.01, 0.001) for by in ("allgather", "oktopk")]  # fmt: skip
        return [{**knob_word, "zero": 0.0} for knob_word in lossy_words]

    @classmethod
    def spares(cls, model: Model) -> dict[str, float]:
        return {"zero": cls.number("zero", "3")}

    def rules(self, model: Model, batch: Array, axes: Mapping[str, Any]) -> Iterator[Rule]:
        """Replicas need a sample each, whichever axis makes them, and micro-batches too."""
        yield from super().rules(model, batch, axes)
        replicas = self.degree * axes["sharded"].degree
        yield Rule.most("replicas", replicas, batch, "samples in the batch")
        pieces = replicas * axes["pipeline"].segments * self.accumulate
        samples = np.maximum(batch, replicas)
        yield Rule.most("micro-batches", pieces, samples, "samples of a device")
        yield from rules(self, batch)
        yield from fewer_rules(self, batch, axes)

    def cuts_layers(self) -> Array:
        """Replicas that share state out have parts of gradients."""
        return np.asarray((np.asarray(self.zero) > 0) & (np.asarray(self.degree) > 1))

    def clashes(self, axes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        pipeline = axes.get("pipeline")
        if pipeline and pipeline.degree > 1 and self.accumulate > 1:
            complaint = (
                "`accumulate` cuts the batch when there is no pipeline; a pipeline has `segments`"
            )
            yield complaint, "write segments=…"

    def split(self, shard: Shard) -> Shard:
        shard = with_second_copy(self, cut_state(shard, self.zero, self.degree))
        return shard.but(
            batch=shard.deal(shard.batch, self.degree),
            segments=shard.segments * self.accumulate,
            replicas=(*shard.replicas, "data"),
            parts=shard.parts * self.degree,
            zero=self.zero,
        )

    def talk(self, shard: Shard) -> list[Message]:
        w, axes = shard.w / shard.slices, shard.replicas
        plain = plainly(self, shard.wire)
        sent = exchange(shard, self.zero, axes, w, plain, Fewer.of(self))
        return [*sent, *messages(self, shard, peers(shard, axes), w)]

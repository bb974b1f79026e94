"""Pipeline parallelism: the layers are dealt to stages, the batch follows in segments."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.schedule import NAMES, SCHEDULES
from oracle.plan.strategies.base import Rule, Strategy, count, words, words_of


@dataclass(frozen=True)
class Pipeline(Strategy):
    """Deal the layers to p stages and send the batch through in S segments.

        T_comp = D (p + S - 1)/S (max FW_i + max BW_i) + D/B max WU_i     (12)
        T_comm = 2 D/B (p + S - 2) max_{i<p} (α + B/S |y_i| δβ)           (13)
        M      = 2γδ max_i Σ_{l in i} (B (|x| + |y|) + |w|)               (14)

    `schedule=1f1b` starts a backward pass as soon as it can: at most p - i segments kept on
    stage i instead of S, in the same time where stages are equal. `interleave=v` gives each
    device v chunks of the model: the bubble shrinks to 1/v, the borders are crossed v times as
    often. `schedule=zb-h1`, `zb-v` and `dualpipe-v` take the backward pass apart to fill the
    bubble with gradients of weights; the last two place two chunks a stage in a V, and want
    `interleave=2` said. `cuts=even` deals equal blocks evenly, as launchers do; `cuts=balanced`
    takes the fastest of a few ways that make the fullest stage least, by FLOP, bytes, kernels and
    what crosses the borders. Tensor-parallel ranks that hold the same output each send a part of
    it and gather the rest on the other side (`borders=parts`), or each sends all of it (`whole`),
    as the software usually does if nobody says.

    Differs from the source: eq. 12 counts WU per sample, this once per iteration; unequal
    stages fill and drain at their own pace, Σ (FW_i + BW_i) + (S - 1) max (FW_i + BW_i), where
    FW_i and BW_i begin with the transfer that stage i waits for (both ways at once, so each
    stage waits for its own); a stage exchanges its gradients while those before it drain.
    """

    segments: Array = count(micro_batches=True)
    schedule: Array = words_of(NAMES, default="1f1b")
    interleave: Array = count()
    cuts: Array = words("even", "balanced")
    borders: Array = words("usual", "parts", "whole")

    source = "kahira2021, Table III 'Layer'; eqs. 12-14"
    nearness = 0
    bound = "stages the model can be cut into"
    limited_by = ("workload balance", "point-to-point cost: stage borders")
    timing = ("schedule",)
    runs = ("segments", "schedule=gpipe", "schedule=1f1b", "interleave", "cuts", "borders")

    def limit(self, model: Model, batch: Array) -> Array | float:
        return len(model.units[1]) // np.maximum(self.interleave, 1)

    def rules(self, model: Model, batch: Array, beside: Mapping[str, Any]) -> Iterator[Rule]:
        """Chunks and segments must be as the schedule takes them.

        Round by round, micro-batches go through the chunks of a stage in groups of p.
        """
        yield from super().rules(model, batch, beside)
        ragged = (self.interleave > 1) & (self.segments % self.degree != 0)
        what = "interleaved stages need the segments to be a multiple of the stages"
        yield Rule.never(ragged & ~self.vee, what)
        staged = np.asarray(self.degree) > 1
        for name, chosen in SCHEDULES.items():
            mine = self.says("schedule", name) & staged
            if not mine.any():
                continue
            if chosen.chunks is not None:
                what = f"schedule={name} needs interleave={chosen.chunks}"
                yield Rule.never(mine & (self.interleave != chosen.chunks), what)
            if chosen.rounds:
                few = self.segments < chosen.rounds * self.degree
                what = f"schedule={name} needs at least {chosen.rounds} segments a stage"
                yield Rule.never(mine & few, what)

    @property
    def vee(self) -> Array:
        """Where a stage's chunks lie in a V."""
        backs = [NAMES.index(name) for name, one in SCHEDULES.items() if one.placement == "V"]
        return np.isin(self.schedule, backs) & (np.asarray(self.interleave) > 1)

    @classmethod
    def dear(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Schedules that are played turn by turn; cuts by load where equal blocks need none."""
        played = (i for i, name in enumerate(NAMES) if SCHEDULES[name].ahead is None)
        loaded = (cls.number("cuts", "balanced"),) if model.folded.any() else ()
        return {"schedule": tuple(map(float, played)), "cuts": tuple(map(float, loaded))}

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Chunks by which the repeated blocks can be divided, beside the words."""
        blocks = int(np.sum(model.units[0] @ model.folded > 0)) or len(model.units[1])
        chunks = [v for v in range(1, blocks // 2 + 1) if blocks % v == 0]
        found = {**super().tries(model), "interleave": tuple(map(float, chunks or [1]))}
        del found["borders"]  # a matter of the software
        return found

    def cuts_layers(self) -> Array:
        return np.zeros_like(np.asarray(self.degree), bool)

    def split(self, shard: Shard) -> Shard:
        return shard.but(segments=shard.segments * self.segments)

    def talk(self, shard: Shard) -> list[Message]:
        """One border is crossed by the output of the row before it, both ways, per segment."""
        usual = "parts" if shard.software.borders.scattered else "whole"
        whole = self.says("borders", "whole") | (self.says("borders", "usual") & (usual == "whole"))
        parts = np.where(whole, 1.0, shard.spread)
        border = shard.micro * shard.y * shard.delta / parts
        return [Message("stage borders", "sendrecv", border, ("pipeline",), when="border")]

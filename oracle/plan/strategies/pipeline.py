"""Pipeline parallelism: the layers are dealt to stages, the batch follows in segments."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.models import masks
from oracle.models.model import Flags, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.layout import LAYOUT, edges_of, faults
from oracle.plan.schedule import NAMES, SCHEDULES
from oracle.plan.strategies.base import Rule, Strategy, count, text_of, words, words_of, words_or

BACKWARD_APART = ("zb-h1", "zb-v", "dualpipe-v")  # schedules that take the backward pass apart


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
    what crosses the borders. `cuts=3/7/12` says the unit that begins each chunk but the first,
    counted from 0, or `cuts=join4/join1` the layer or block. Of a model that is no chain a tensor
    goes directly to each stage that reads it, once. Tensor-parallel ranks that hold the same output
    each send a part of it and gather the rest on the other side (`borders=parts`), or each sends
    all of it (`whole`), as the software usually does if nobody says. A table of words that the
    last matrix uses too is held by the first and the last stage, which add up its gradients.

    Differs from the source: eq. 12 counts WU per sample, this once per iteration; unequal
    stages fill and drain at their own pace, Σ (FW_i + BW_i) + (S - 1) max (FW_i + BW_i), where
    FW_i and BW_i begin with the transfer that stage i waits for (both ways at once, so each
    stage waits for its own); a stage exchanges its gradients while those before it drain.
    """

    segments: Array = count(micro_batches=True)
    schedule: Array = words_of(NAMES, default="1f1b")
    interleave: Array = count()
    cuts: Array = words_or(LAYOUT, "even", "balanced")
    borders: Array = words("usual", "parts", "whole")

    letters = "PP"
    source = "kahira2021, Table III 'Layer'; eqs. 12-14"
    nearness = 0
    bound = "stages the model can be cut into"
    limited_by = ("workload balance", "point-to-point cost: stage borders")
    timing = ("schedule",)
    stage_knobs = ("interleave", "cuts", "borders")
    runs = ("segments", "schedule=gpipe", "schedule=1f1b", "interleave", "cuts", "borders")

    def clashes(self, axes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """A layout by hand has a place for each chunk but the first, and they follow each other."""
        if not self.by_hand_cuts.any():
            return
        chunks = int(np.ravel(self.degree)[0] * np.ravel(self.interleave)[0])
        yield from faults(self.word("cuts"), chunks)

    @property
    def by_hand_cuts(self) -> Array:
        """Where stages are cut at places that the plan says."""
        return np.asarray(np.asarray(self.cuts) >= len(self._words()))

    @classmethod
    def _words(cls) -> Sequence[str]:
        return cls.__dataclass_fields__["cuts"].metadata["words"]  # type: ignore[no-any-return]

    def edges(self, model: Model, row: int = 0) -> tuple[int, ...]:
        """The units that one plan's layout by hand says; none where it says none, or wrongly."""
        if not np.ravel(self.by_hand_cuts)[row]:
            return ()
        return edges_of(model, text_of(np.ravel(self.cuts)[row], self._words()))[0]

    def limit(self, model: Model, batch: Array) -> Array | float:
        return len(model.units[1]) // np.maximum(self.interleave, 1)

    def rules(self, model: Model, batch: Array, axes: Mapping[str, Any]) -> Iterator[Rule]:
        """Chunks and segments must be as the schedule takes them.

        Round by round, micro-batches go through the chunks of a stage in groups of p.
        """
        yield from super().rules(model, batch, axes)
        ragged = (self.interleave > 1) & (self.segments % self.degree != 0)
        complaint = "interleaved stages need the segments to be a multiple of the stages"
        yield Rule.never(ragged & ~self.vee, complaint)
        staged = np.asarray(self.degree) > 1
        if (by_hand := self.by_hand_cuts & staged).any():
            for number in np.unique(np.asarray(self.cuts)[by_hand]):
                edges, wrong = edges_of(model, text_of(number, self._words()))
                concerned = by_hand & (np.asarray(self.cuts) == number)
                if not wrong:
                    complaint = f"cuts={text_of(number, self._words())} are not one place a chunk"
                    too_few = np.asarray(self.degree * self.interleave) != len(edges) - 1
                    yield Rule.never(concerned & too_few, complaint)
                else:
                    yield Rule.never(concerned, wrong)
        for name, chosen in SCHEDULES.items():
            concerned = self.says("schedule", name) & staged
            if not concerned.any():
                continue
            if chosen.chunks is not None:
                complaint = f"schedule={name} needs interleave={chosen.chunks}"
                yield Rule.never(concerned & (self.interleave != chosen.chunks), complaint)
            if chosen.rounds:
                too_few = self.segments < chosen.rounds * self.degree
                complaint = f"schedule={name} needs at least {chosen.rounds} segments a stage"
                yield Rule.never(concerned & too_few, complaint)

    @property
    def vee(self) -> Array:
        """Where a stage's chunks lie in a V."""
        backs = [
            NAMES.index(name) for name, schedule in SCHEDULES.items() if schedule.placement == "V"
        ]
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
        values = {**super().tries(model), "interleave": tuple(map(float, chunks or [1]))}
        del values["borders"]  # a matter of the software
        return values

    @classmethod
    def unnamed(cls) -> dict[str, tuple[float, ...]]:
        return {"schedule": tuple(float(NAMES.index(name)) for name in BACKWARD_APART)}

    def unusual(self, model: Model) -> Array:
        """Networks without tokens in stages, and schedules that few frameworks have."""
        rare = np.isin(self.schedule, [NAMES.index(name) for name in BACKWARD_APART])
        return (np.asarray(self.degree) > 1) & (rare | (not model.tokens.any()))

    def cuts_layers(self) -> Array:
        return np.zeros_like(np.asarray(self.degree), bool)

    def split(self, shard: Shard) -> Shard:
        cut_shard = shard.but(segments=shard.segments * self.segments)
        if shard.ideal or not masks.borrowed(shard.model).any():
            return cut_shard
        return cut_shard.but(w=shard.w + self.copied(shard.model))

    def copied(self, model: Model) -> Array:
        """(plans, rows) weights of a tied table that the last stage holds beside the first."""
        return masks.borrowed(model) * self._ends(model)

    def _ends(self, model: Model) -> Flags:
        """Plans whose last stage has not the table; a decoder's begins the second of two."""
        several = 1 if masks.embeddings(model)[0] else 2
        return np.asarray((np.asarray(self.degree) > several) & ~self.vee)

    def talk(self, shard: Shard) -> list[Message]:
        """One border is crossed by the output of the row before it, both ways, per segment."""
        usual = "parts" if shard.software.borders.scattered else "whole"
        sends_whole = self.says("borders", "whole") | (
            self.says("borders", "usual") & (usual == "whole")
        )
        parts = np.where(sends_whole, 1.0, shard.spread)
        border = shard.micro * shard.y * shard.delta / parts
        borders = Message("stage borders", "sendrecv", border, ("pipeline",), when="border")
        return [borders, *self._tied(shard)]

    def _tied(self, shard: Shard) -> Iterator[Message]:
        """What the first and the last stage send of a table that both have, once a step."""
        share = masks.borrowed_share(shard.model)
        if shard.ideal or not share.any():
            return
        table = masks.embeddings(shard.model) & (shard.model.w > 0)
        in_both_ends = (share > 0) | (table & (np.cumsum(table) == 1))
        nbytes = (shard.learned * share).max(axis=-1, keepdims=True) * shard.summed * in_both_ends
        yield Message("gradients of the tied table", "allreduce", nbytes, ("pipeline/ends",),
                      1.0 * in_both_ends * self._ends(shard.model))  # fmt: skip

"""Sharded data parallelism (FSDP, ZeRO): replicas share one copy of the model's state."""

from dataclasses import dataclass

import numpy as np

from oracle.models import masks
from oracle.models.model import Flags, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy, words
from oracle.plan.strategies.zero_plus import Fewer


@dataclass(frozen=True)
class Sharded(Strategy):
    """Split the batch over p devices, and the model's state too; gather a layer to use it.

        T_comm = 3 D/B (p - 1) Σ (α + |w|/p δβ)
        M      = 2γδ Σ (B/p (|x| + |y|) + |w|/p)

    The 3 is an allgather for each of the two passes and a reduce-scatter of the gradients.
    With `data` around it this is hybrid sharding (HSDP): outer replicas exchange |w|/p.

    Differs from the source: gathers run ahead of the layer that needs them and hide under
    the compute of the one before; a unit (block) is gathered at once, for each micro-batch.
    """

    zero: Array = words("1", "2", "3", default="3")
    overlap: Array = words("off", "on", default="on")

    letters = "FSDP"
    source = "rajbhandari2020, §7.2.2 (ZeRO-3 moves 3/2 of data parallelism)"
    nearness = 2
    bound = "samples in the batch"
    limited_by = ("gradient exchange", "layer-wise exchange: weights are gathered to be used")
    deals_batch = True
    by_hand = ("data",)  # whose knob `zero` does the same
    state_knobs = ("zero", "overlap")
    runs = ("zero", "overlap")

    def limit(self, model: Model, batch: Array) -> Array | float:
        return batch

    def split(self, shard: Shard) -> Shard:
        if not self.wide:
            return shard
        p = self.degree
        shard = cut_state(shard, self.zero + 1, p)
        batch = shard.deal(shard.batch, p)
        return shard.but(batch=batch, slices=shard.slices * p, parts=shard.parts * p)

    def talk(self, shard: Shard) -> list[Message]:
        return exchange(shard, self.zero + 1, ("sharded",), shard.w)


def cut_state(shard: Shard, zero: Array | float, p: Array) -> Shard:
    """Optimizer state is shared out from stage 1 on, gradients from 2, weights at 3.

    Where gradients pile up whole until a step's end weights are shards from 2 on: what was
    gathered lies beside them.
    """
    stage, whole = np.asarray(zero), np.asarray(shard.whole) > 0
    return shard.but(
        stated=shard.stated / np.where(stage >= 1, p, 1),
        graded=shard.graded / np.where((stage >= 2) & ~whole, p, 1),
        stored=shard.stored / np.where(stage >= 3 - whole, p, 1),
    )


def peers(shard: Shard, axes: tuple[str, ...]) -> list[tuple[str, Flags, tuple[str, ...]]]:
    """(prefix, rows, axes) of those that hold the same weights: experts have peers of their own.

    They are replicated along what is left of the axes that they are dealt along.
    """
    experts = masks.experts(shard.model)
    left = {"data": ("data/expert", "tensor/expert"), "context": ("context/expert",)}
    around = tuple(name for axis in axes for name in left.get(axis, (axis,)))
    every = (("", ~experts, axes), ("expert ", experts, around))
    return [other_axis for other_axis in every if other_axis[1].any()]


def exchange(
    shard: Shard, zero: Array, axes: tuple[str, ...], w: Array, plain: Array | float = 1.0,
    fewer: Fewer | None = None,
) -> list[Message]:  # fmt: skip
    """What devices with the same weights say to each other, at each stage of sharding.

    Stage 0 is one allreduce of the gradients. Stages 1 and 2 reduce-scatter them and allgather
    the new weights: the same bytes; a software may add up `whole` ones at stage 1. Stage 3 gathers
    each unit's weights before either pass of every micro-batch. From stage 2 on nobody has room
    for whole gradients, so those of each micro-batch are scattered when they are there, unless
    they are whole until the step's end and are scattered then, under nothing. `plain` is
    what the allreduce of stage 0 sends of the gradients' bytes; `fewer` what stage 3 says in fewer
    bytes.
    """
    stage, learned = np.asarray(zero), w * shard.model.trained
    sent, gathered, new = learned * shard.wire, w * shard.gathered, learned * shard.gathered
    exchange_spec = shard.software
    under = "backward" if exchange_spec.exchange.overlap == "backward" else ""
    ahead, gathers_again = ("forward", "backward") if exchange_spec.gather.prefetch else ("", "")
    renewed = "forward" if exchange_spec.gather.overlap == "forward" else ""
    messages_sent: list[Message] = []
    if shard.ideal:  # the published rows agree axis by axis, each with a ring of its own
        messages_sent += [Message(_named(axis, axes), "allreduce", sent * plain, (axis,),
                          (stage == 0) * 1.0, when="step") for axis in axes]  # fmt: skip
    last = (stage >= 2) & (np.asarray(shard.whole) > 0)
    nbytes = (stage >= 2) & (np.asarray(shard.segments) > 1) & ~last
    whole = (stage == 1) & (exchange_spec.exchange.sharded == "whole") & (not shard.ideal)
    for prefix, rows, group in peers(shard, axes):
        buffer, weights, changed = sent * rows, gathered * rows, new * rows
        if not shard.ideal:
            messages_sent.append(
                Message(f"{prefix}gradients", "allreduce", buffer * plain, group,
                        (stage == 0) * 1.0, when="step", hides=under,
                        stands_for=None if np.ndim(plain) == 0 else buffer * (plain > 0))
            )  # fmt: skip
        scattered, twice = buffer, weights
        alone: Array | float = 1.0
        if fewer is not None:
            messages_sent += fewer.scattered(
                prefix, group, learned * rows, buffer, stage, nbytes, under
            )
            messages_sent += fewer.from_neighbours(prefix, weights, stage, gathers_again)
            scattered = np.where(fewer.gradients, 0.0, buffer)
            twice, alone = fewer.gathered(weights, shard.gathered), 1.0 * (fewer.near <= 1)
        if whole.any():
            messages_sent.append(Message(f"{prefix}gradients whole", "allreduce", buffer, group,
                                         whole * 1.0, when="step"))  # fmt: skip
        if last.any():
            messages_sent.append(Message(f"{prefix}gradients scattered last", "reduce_scatter",
                                         scattered, group, last * 1.0, when="step"))  # fmt: skip
        messages_sent += [
            Message(f"{prefix}gradients scattered", "reduce_scatter", scattered, group,
                    ((stage >= 1) & ~nbytes & ~whole & ~last) * 1.0, when="step", hides=under),
            Message(f"{prefix}gradients scattered each time", "reduce_scatter", scattered, group,
                    nbytes * 1.0, when="unit backward", hides=under),
            Message(f"{prefix}weights renewed", "allgather", changed, group,
                    ((stage == 1) | (stage == 2)) * 1.0, when="step", hides=renewed),
            Message(f"{prefix}weights", "allgather", twice, group, (stage == 3) * 1.0,
                    when="unit forward", hides=ahead),
            Message(f"{prefix}weights again", "allgather", twice * alone, group,
                    (stage == 3) * 1.0, when="unit backward", hides=gathers_again),
        ]  # fmt: skip
    return messages_sent


def _named(axis: str, axes: tuple[str, ...]) -> str:
    return "gradients" if len(axes) == 1 else f"gradients along {axis}"

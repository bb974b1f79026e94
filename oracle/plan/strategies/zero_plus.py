"""ZeRO++: what replicas that share weights out (zero=3) say in fewer bytes [wang2024zero].

    quantize=weights     gathered in 8 bits, a scale for each 2,048        M/2 for M of 16 bits
    hpz=K                K neighbours hold the weights among them from the forward pass on, so
                         that the backward pass gathers inside those K     0 beyond them
    quantize=gradients   scattered in 4 bits by two all-to-alls, in the node and, added up, across
                         nodes (`two_hop`)                                 M/4

3 M across nodes become 0.75 M. What K hold is a second copy, 1/K of the weights on each device.

Differs from the source: gathers of hpz stay in the width of the weights, as its second copy is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.agreement import BLOCK, SCALED
from oracle.plan.strategies.base import Rule

Data: TypeAlias = Any  # the axis of that name, whose file stands on this one
QUANTIZE = ("none", "weights", "gradients", "both")
FOUR_BITS = 0.5 + 4 / BLOCK  # bytes of a number of 4 bits, its share of the scale with it


@dataclass(frozen=True)
class Fewer:
    """Which plans say less: weights and gradients in few bits, gathers among `near`.

    All of a kind do alike, (kinds, 1); how often they do, their stage says, (plans, 1). Only plans
    of stage 3 are let through (`rules`).
    """

    weights: Array
    gradients: Array
    near: Array

    @classmethod
    def of(cls, data: Data) -> Fewer | None:
        """Nothing where no plan does."""
        if not fewer(data):
            return None
        at_all = np.asarray(data.degree) > 1
        partition_and_node = data.says("quantize", "both")
        return cls(at_all & (data.says("quantize", "weights") | partition_and_node),
                   at_all & (data.says("quantize", "gradients") | partition_and_node),
                   np.where(at_all, _dividing(data), 1))  # fmt: skip

    def gathered(self, nbytes: Array, width: float) -> Array:
        """Bytes of the forward pass' gathers, of weights that `nbytes` are at this width."""
        return np.where(self.weights, nbytes * min(SCALED / width, 1.0), nbytes)

    def from_neighbours(
        self, prefix: str, nbytes: Array, stage: Array, hides: str
    ) -> Iterator[Message]:
        """The backward pass' gathers among the few that hold the weights between passes."""
        plans = self.near > 1
        if plans.any():
            line = np.maximum(self.near, 1), np.ones_like(self.near)
            yield Message(f"{prefix}weights from neighbours", "allgather", nbytes * plans,
                          ("data",), (stage == 3) * 1.0, when="unit backward", hides=hides,
                          line=line)  # fmt: skip

    def scattered(
        self, prefix: str, group: tuple[str, ...], learned: Array, dense: Array, stage: Array,
        nbytes: Array, under: str,
    ) -> Iterator[Message]:  # fmt: skip
        """Gradients in 4 bits, once a step and where each micro-batch scatters them."""
        plans = self.gradients
        if plans.any():
            for words, when, in_node in (
                ("", "step", ~nbytes),
                (" each time", "unit backward", nbytes),
            ):
                yield Message(f"{prefix}gradients in 4 bits{words}", "reduce_scatter",
                              learned * FOUR_BITS * plans, group, (stage == 3) * in_node * 1.0,
                              when=when, hides=under, by="two_hop",
                              stands_for=dense * plans)  # fmt: skip


def _dividing(data: Data) -> Array:
    """Neighbours that hold weights: what does not divide is refused, and priced as what does."""
    every, near = (np.asarray(column).astype(int) for column in (data.degree, data.hpz))
    return np.asarray(np.gcd(every, np.maximum(near, 1)))


def fewer(data: Data) -> bool:
    """Whether any plan says less."""
    return bool(np.any(np.asarray(data.quantize) > 0) or np.any(np.asarray(data.hpz) > 1))


def with_second_copy(data: Data, shard: Shard) -> Shard:
    """The weights that K neighbours hold beside their part of all."""
    near = np.where((np.asarray(data.degree) > 1) & (np.asarray(data.zero) == 3), data.hpz, 1)
    if not np.any(near > 1):
        return shard
    return shard.but(stored=shard.stored + np.where(near > 1, 1 / near, 0.0))


def passes(data: Data, shard: Shard, width: float) -> Array | float:
    """Bytes a weight that quantising and its way back move in one micro-batch.

    Gathered weights are read in 8 bits and written; gradients are read, written in 4 bits, and
    read again to be added.
    """
    plan = Fewer.of(data)
    if plan is None:
        return 0.0
    sharing = np.asarray(data.zero) == 3
    gathers = np.where(plan.near > 1, 1, 2)
    weights = plan.weights * gathers * (SCALED + shard.gathered)
    return np.asarray(sharing * (weights + plan.gradients * (width + 2 * FOUR_BITS)))


def rules(data: Data, batch: Array, axes: Any) -> Iterator[Rule]:
    """ZeRO-3 along the data axis alone, in groups that divide it."""
    if not fewer(data):
        return
    used = ((np.asarray(data.quantize) > 0) | (np.asarray(data.hpz) > 1)) & (
        np.asarray(data.degree) > 1) & (batch > 0)  # fmt: skip
    other_knobs = np.zeros_like(used)
    for name in ("context", "spatial", "expert", "sharded"):
        other_knobs = other_knobs | (np.asarray(axes[name].degree) > 1)
    near = np.asarray(data.hpz) > 1
    uneven = (np.asarray(data.degree) % np.maximum(data.hpz, 1) > 0) | (
        np.asarray(data.hpz) >= data.degree)  # fmt: skip
    for broken, complaint in (
        (used & (np.asarray(data.zero) != 3), "quantize and hpz are of weights shared out: zero=3"),
        (used & other_knobs, "quantize and hpz go with replicas along `data` alone"),
        (used & near & uneven, "hpz divides the data degree, and is less"),
    ):
        yield Rule.never(broken, complaint)

"""The shard: what one device holds and does in one training iteration.

Strategies turn a shard into a smaller one. It carries *shapes*, not seconds: every array
broadcasts to (plans, rows), a per-plan array has shape (n, 1) and a per-row one (L,), so the
same line of an equation serves one plan and a million. The machine prices what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.models.model import Model

Array = Any  # a float or a numpy array, broadcastable to (plans, rows)
Extents = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Shard:
    """One device's part of the job: local shapes, local bytes, and who shares its weights."""

    model: Model
    batch: Array  # B    samples on this device per iteration
    delta: float  # δ    bytes per element of an activation
    channels: Array  # C of each row's kernel, here
    filters: Array  # F
    heads: Array
    kv_heads: Array
    given: Extents  # input extents
    made: Extents  # output extents
    x: Array  # |x|  input elements held, per sample
    y: Array  # |y|  output elements held, per sample
    w: Array  # |w|  weight elements used
    kept: Array  #      elements kept for the backward pass, per sample
    kept_bytes: Array  #      further bytes kept, per sample: masks, indices, fp32 copies
    work: Array = 1.0  #      share of the row's serial work that is done here
    visits: Array = 1.0  #      expert rows: distinct experts here, each a kernel of its own
    segments: Array = 1.0  # S    micro-batches an iteration is cut into
    zero: Array = 0.0  #      stage of sharding that replicas of the weights agree on
    stored: Array = 1.0  #      share of the weights kept between uses (ZeRO-3: 1/p)
    graded: Array = 1.0  #      share of the gradients kept (ZeRO-2)
    stated: Array = 1.0  #      share of the optimizer state kept and updated (ZeRO-1)
    replicas: tuple[str, ...] = ()  # axes along which devices hold these same weights
    slices: Array = 1.0  #      what sharding inside has cut off the gradients others exchange
    parts: Array = 1.0  #      into how many the batch is dealt
    long: Array = 1.0  #      into how many the tokens of a sequence are dealt
    rounds: Array = 1.0  #      kernels an attention is cut into, each with one part's keys
    spread: Array = 1.0  #      along how many devices a border between stages is cut
    expert: Array = 1.0  #      over how many devices the experts are dealt
    ideal: bool = False  # the published assumptions: everything divides, nothing is fixed

    def but(self, **changes: Any) -> Shard:
        """A copy with these fields changed; `dataclasses.replace` takes ten times as long."""
        if unknown := changes.keys() - self.__dict__.keys():
            raise TypeError(f"a shard has no {', '.join(sorted(unknown))}")
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **changes)
        return copy

    @property
    def micro(self) -> Array:
        """B/S, samples that pass through a kernel at once."""
        return self.deal(self.batch, self.segments)

    @property
    def context_tokens(self) -> Array:
        """Tokens of a sequence on this device, before sequence parallelism cuts them further."""
        return self.deal(self.model.made[0], self.long)

    def deal(self, count: Array, p: Array) -> Array:
        """The largest part when `count` things are dealt to p devices; ideally all are equal."""
        return count / p if self.ideal else np.ceil(count / p - 1e-9)

    def where(self, mask: Array, changed: Array, same: Array) -> Array:
        """`changed` in the rows that a strategy cuts, `same` in those that stay whole."""
        return np.where(mask, changed, same)


def serial(model: Model, batch: Array, delta: float, ideal: bool = False) -> Shard:
    """The whole job on one device."""
    return Shard(
        model=model,
        batch=np.asarray(batch, float),
        delta=delta,
        channels=model.channels,
        filters=model.filters,
        heads=model.heads,
        kv_heads=model.kv_heads,
        given=model.given,
        made=model.made,
        x=model.x,
        y=model.y,
        w=model.w,
        kept=model.kept,
        kept_bytes=model.kept_bytes,
        ideal=ideal,
    )


def product(extents: Sequence[Array]) -> Array:
    """Positions: the product of three extents."""
    return extents[0] * extents[1] * extents[2]

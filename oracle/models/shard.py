"""The shard: what one device holds and does in one training iteration.

Strategies turn a shard into a smaller one. It carries *shapes*, not seconds: every array
broadcasts to (plans, rows), a per-plan array has shape (n, 1) and a per-row one (L,), so the
same line of an equation serves one plan and a million. The machine prices what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.models.model import Axes, Flags, Floats, Model
from oracle.spec.software import PLAIN, Software

Numbers: TypeAlias = float | Floats  # one for all, or an array of them
Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Shard:
    """One device's part of the job: local shapes, local bytes, and who shares its weights."""

    model: Model
    batch: Floats  # B    samples on this device per iteration
    delta: float  # δ    bytes per element of an activation
    fed: float  #      of an activation that only linear layers want again
    gate: float  #      of an activation that only gates of MLPs want again
    summed: float  #      of a gradient where those of micro-batches are added up
    wire: float  #      of a gradient on its way
    gathered: float  #      of a weight that is gathered
    turned: float  #      of an activation that tensor parallelism gathers
    dispatched: float  #      of an activation that goes to experts
    combined: float  #      and that comes back
    channels: Floats  # C of each row's kernel, here
    filters: Floats  # F
    heads: Floats
    kv_heads: Floats
    given: Axes  # input extents
    made: Axes  # output extents
    x: Floats  # |x|  input elements held, per sample
    y: Floats  # |y|  output elements held, per sample
    w: Floats  # |w|  weight elements used
    kept: Floats  #      elements kept for the backward pass, per sample
    kept_bytes: Floats  #      further bytes kept, per sample: masks, indices, fp32 copies
    copied: Numbers = 0.0  #      elements of copies while a row runs back, per sample
    work: Numbers = 1.0  #      share of the row's serial work that is done here
    expert_cut: Numbers = 1.0  #      devices that a single expert is cut over
    visits: Numbers = 1.0  #      expert rows: distinct experts here, each a kernel of its own
    segments: Numbers = 1.0  # S    micro-batches an iteration is cut into
    zero: Numbers = 0.0  #      stage of sharding that replicas of the weights agree on
    whole: Numbers = 0.0  #      1 where sharded weights and gradients are whole until a step's end
    # shares of what replicas of a row's weights hold in common; experts have fewer replicas
    stored: Numbers = 1.0  #      of the weights, kept between uses (ZeRO-3: 1/p)
    graded: Numbers = 1.0  #      of the gradients, kept (ZeRO-2)
    stated: Numbers = 1.0  #      of the optimizer state, kept and updated (ZeRO-1)
    replicas: tuple[str, ...] = ()  # axes along which devices hold these same weights
    slices: Numbers = 1.0  #      what sharding inside has cut off the gradients others exchange
    parts: Numbers = 1.0  #      into how many the batch is dealt
    long: Numbers = 1.0  #      into how many the tokens of a sequence are dealt
    rounds: Numbers = 1.0  #      kernels an attention is cut into, each with one part's keys
    spread: Numbers = 1.0  #      along how many devices a border between stages is cut
    # whether these lie beside the device, in its host's memory or on its disks: 0 or 1
    weights_away: Numbers = 0.0
    state_away: Numbers = 0.0
    updated_away: Numbers = 0.0  #      and are updated there
    on_disk: Numbers = 0.0
    activations_away: Numbers = 0.0  #      those that the device has no room for
    slots: Numbers = 8.0  #      bytes of a weight's optimizer state and of its fp32 copy, if any
    beside: Numbers = 12.0  #      the same where the host renews it, which always has such a copy
    ideal: bool = False  # the published assumptions: everything divides, nothing is fixed
    software: Software = PLAIN  # that runs it

    def but(self, **changes: Any) -> Shard:
        """A copy with these fields changed; `dataclasses.replace` takes ten times as long."""
        if unknown := changes.keys() - self.__dict__.keys():
            raise TypeError(f"a shard has no {', '.join(sorted(unknown))}")
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **changes)
        return copy

    @property
    def learned(self) -> Floats:
        """|w| of what is trained."""
        return self.w * self.model.trained

    @property
    def micro(self) -> Floats:
        """B/S, samples that pass through a kernel at once."""
        return self.deal(self.batch, self.segments)

    @property
    def kept_sample(self) -> Floats:
        """Bytes that each row keeps of a sample for its backward pass."""
        return np.asarray(self.kept * self.kept_width + self.kept_bytes)

    @property
    def kept_width(self) -> Floats:
        """Bytes of an element of what each row keeps."""
        width = np.where(self.model.gated, self.gate, self.delta)
        return np.where(self.model.fed, self.fed, width)

    @property
    def kept_size(self) -> Floats:
        """Bytes that each row keeps of a micro-batch for its backward pass."""
        return np.asarray(self.micro * self.kept_sample)

    @property
    def context_tokens(self) -> Floats:
        """Tokens of a sequence on this device, before sequence parallelism cuts them further."""
        return self.deal(self.model.made[0], self.long)

    def deal(self, count: Numbers, p: Numbers) -> Floats:
        """The largest part when `count` things are dealt to p devices; ideally all are equal."""
        share: Floats = np.divide(count, p)
        return share if self.ideal else np.ceil(share - 1e-9)

    def where(self, mask: Flags, changed: Numbers, same: Numbers) -> Floats:
        """`changed` in the rows that a strategy cuts, `same` in those that stay whole."""
        return np.where(mask, changed, same)


def serial(model: Model, batch: Numbers, delta: float, ideal: bool = False) -> Shard:
    """The whole job on one device."""
    return Shard(
        model=model,
        batch=np.asarray(batch, float),
        delta=delta,
        fed=delta,
        gate=delta,
        summed=max(delta, 4.0),
        wire=delta,
        gathered=delta,
        turned=delta,
        dispatched=delta,
        combined=delta,
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


def product(extents: Sequence[Floats]) -> Floats:
    """Positions: the product of three extents."""
    return extents[0] * extents[1] * extents[2]

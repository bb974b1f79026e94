"""The parts of a training's state that each rank keeps; ranks with the same state share it out.

    bytes of all ranks = parameters · (width + 4 if it is below 4 + wide · slots of the optimizer)

Ranks that hold the same elements deal them out: replicas of the data each keep one part of the
flat buffers, and of tensors that tensor, filter or channel parallelism does not cut the first rank
keeps all.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from oracle.executor.checkpointing.folder import Section
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import deal
from oracle.executor.local.weights import Bundle, HeldWeight
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.steps.trainer import Trainer

CUTTING = ("tensor", "filter", "channel")  # axes whose ranks may hold different parts of a tensor


@dataclass(frozen=True)
class Piece:
    """Some elements of a tensor's part, and the values that they have here."""

    section: Section
    values: Tensor  # a view of the buffer that holds them


class TrainingState(Protocol):
    """What a checkpoint has to know of a training on one rank, whichever engine runs it."""

    @property
    def devices(self) -> int:
        """Ranks that take part."""

    @property
    def device(self) -> torch.device:
        """The device that holds the state."""

    @property
    def updates(self) -> int:
        """How many updates were made so far."""

    def resume(self, updates: int) -> None:
        """Go on after so many updates, with the state that was filled in."""

    def pieces_held(self) -> Iterator[Piece]:
        """All state of this rank, which it needs to go on."""

    def pieces_to_save(self) -> Iterator[Piece]:
        """The state that this rank saves, for all ranks that hold it too."""


@dataclass(frozen=True)
class NativeState:
    """The state of a training by the executor's own engine."""

    trainer: Trainer

    @property
    def devices(self) -> int:
        return self.trainer.local.mesh.size

    @property
    def device(self) -> torch.device:
        return self.trainer.local.device

    @property
    def updates(self) -> int:
        return self.trainer.steps

    def resume(self, updates: int) -> None:
        self.trainer.steps = updates

    def pieces_held(self) -> Iterator[Piece]:
        for bundle in self.trainer.local.bundles:
            for weight in bundle.held_weights:
                for kind, buffer, first in _buffers(bundle):
                    yield from _piece(weight, kind, buffer, first, first, first + buffer.numel())

    def pieces_to_save(self) -> Iterator[Piece]:
        local = self.trainer.local
        elsewhere = _held_before(local)
        for bundle in local.bundles:
            shard, (number, count) = bundle.shard_slice, _number(local.mesh, bundle.rest)
            begin, end = deal(shard.stop - shard.start, count, shard.start)[number]
            for weight in bundle.held_weights:
                if (weight.op.index, weight.name) in elsewhere:
                    continue
                for kind, buffer, first in _buffers(bundle):
                    yield from _piece(weight, kind, buffer, first, begin, end)


def _buffers(bundle: Bundle) -> Iterator[tuple[str, Tensor, int]]:
    """Flat buffers of a bundle, and which of its elements each begins with."""
    if bundle.has_weights:
        yield "weights", bundle.weights.detach(), 0
    else:
        yield "weights", bundle.shard, bundle.shard_slice.start
    if bundle.mixed:
        yield "masters", bundle.masters, bundle.shard_slice.start
    for number, slot in enumerate(bundle.slots):
        yield f"slot {number}", slot, bundle.shard_slice.start


def _piece(
    weight: HeldWeight, kind: str, buffer: Tensor, first: int, begin: int, end: int
) -> Iterator[Piece]:
    low, high = max(begin, weight.offset), min(end, weight.offset + math.prod(weight.shape))
    if low < high:
        section = Section(weight.op.index, weight.name, json.dumps(weight.intervals), kind,
                          low - weight.offset, high - weight.offset)  # fmt: skip
        yield Piece(section, buffer[low - first : high - first])


def _number(mesh: DeviceMesh, axes: Sequence[str]) -> tuple[int, int]:
    """The number of this rank among those along some axes, and how many there are."""
    number, count = 0, 1
    for axis in axes:
        number = number * mesh.degree(axis) + mesh.at.get(axis, 0)
        count *= mesh.degree(axis)
    return number, count


def _held_before(local: LocalModel) -> set[tuple[int, str]]:
    """Tensors of which an earlier rank, along axes that cut tensors, holds the same part."""
    mesh, duplicates = local.mesh, set()
    axes = [axis for axis in CUTTING if mesh.degree(axis) > 1]
    position = tuple(mesh.at[axis] for axis in axes)
    for earlier in itertools.product(*(range(mesh.degree(axis)) for axis in axes)):
        if earlier >= position:
            break
        rank = mesh.rank_at({**mesh.at, **dict(zip(axes, earlier, strict=True))})
        cuts = replace(local.cuts, mesh=DeviceMesh(local.plan, rank, mesh.ranks))
        for weight in local.held_weights:
            if cuts.weight_intervals(weight.op).get(weight.name) == weight.intervals:
                duplicates.add((weight.op.index, weight.name))
    return duplicates

"""The parts of a training's state that each rank keeps: of what several hold, each a part.

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
from oracle.executor.local_model import LocalModel
from oracle.executor.mesh import DeviceMesh
from oracle.executor.parts import deal
from oracle.executor.steps import Trainer
from oracle.executor.weights import Bundle, HeldWeight

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
        """What holds it."""

    @property
    def updates(self) -> int:
        """Updates so far."""

    def resume(self, updates: int) -> None:
        """Go on after so many updates, with what was filled in."""

    def held(self) -> Iterator[Piece]:
        """All that this rank holds: what it needs to go on."""

    def own(self) -> Iterator[Piece]:
        """What this rank keeps for all that hold it too."""


@dataclass(frozen=True)
class NativeState:
    """That of the executor's own engine."""

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

    def held(self) -> Iterator[Piece]:
        for bundle in self.trainer.local.bundles:
            for one in bundle.held_weights:
                for kind, buffer, first in _buffers(bundle):
                    yield from _piece(one, kind, buffer, first, first, first + buffer.numel())

    def own(self) -> Iterator[Piece]:
        local = self.trainer.local
        elsewhere = _held_before(local)
        for bundle in local.bundles:
            whole, (number, count) = bundle.own, _number(local.mesh, bundle.rest)
            begin, end = deal(whole.stop - whole.start, count, whole.start)[number]
            for one in bundle.held_weights:
                if (one.op.index, one.name) in elsewhere:
                    continue
                for kind, buffer, first in _buffers(bundle):
                    yield from _piece(one, kind, buffer, first, begin, end)


def _buffers(bundle: Bundle) -> Iterator[tuple[str, Tensor, int]]:
    """Flat buffers of a bundle, and which of its elements each begins with."""
    if bundle.here:
        yield "weights", bundle.weights.detach(), 0
    else:
        yield "weights", bundle.shard, bundle.own.start
    if bundle.mixed:
        yield "masters", bundle.masters, bundle.own.start
    for number, slot in enumerate(bundle.slots):
        yield f"slot {number}", slot, bundle.own.start


def _piece(
    one: HeldWeight, kind: str, buffer: Tensor, first: int, begin: int, end: int
) -> Iterator[Piece]:
    low, high = max(begin, one.at), min(end, one.at + math.prod(one.shape))
    if low < high:
        about = Section(one.op.index, one.name, json.dumps(one.kept), kind, low - one.at,
                        high - one.at)  # fmt: skip
        yield Piece(about, buffer[low - first : high - first])


def _number(mesh: DeviceMesh, axes: Sequence[str]) -> tuple[int, int]:
    """Which of the ranks along some axes this one is, and how many there are."""
    number, count = 0, 1
    for axis in axes:
        number = number * mesh.degree(axis) + mesh.at.get(axis, 0)
        count *= mesh.degree(axis)
    return number, count


def _held_before(local: LocalModel) -> set[tuple[int, str]]:
    """Tensors of which an earlier rank of those that cut tensors holds the same part."""
    mesh, found = local.mesh, set()
    axes = [axis for axis in CUTTING if mesh.degree(axis) > 1]
    mine = tuple(mesh.at[axis] for axis in axes)
    for there in itertools.product(*(range(mesh.degree(axis)) for axis in axes)):
        if there >= mine:
            break
        rank = mesh.rank_at({**mesh.at, **dict(zip(axes, there, strict=True))})
        cuts = replace(local.cuts, mesh=DeviceMesh(local.plan, rank, mesh.ranks))
        for one in local.held_weights:
            if cuts.kept(one.op).get(one.name) == one.kept:
                found.add((one.op.index, one.name))
    return found

"""Convolutions of a shard: seconds, bytes of workspace and pieces of each row's three parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.kernels.conv import menu
from oracle.kernels.divisions import Menu, Taken, division, fastest, named
from oracle.kernels.families import At, Family, families
from oracle.kernels.shared_room import limits
from oracle.kernels.stream import stream
from oracle.models import masks
from oracle.models.model import Flags, Floats
from oracle.models.shard import Shard
from oracle.spec.device import Device

KINDS = ("conv", "deconv")  # of rows
PARTS = ("forward", "data", "weight")
Pair = tuple[Floats, Floats]  # forward, backward


@dataclass(frozen=True, slots=True)
class Kernels:
    """One part of the rows that are priced together: what there is, and what is taken of it."""

    family: Family
    part: str
    menu: Menu
    live: Flags  # rows that have this part
    limit: Floats  # bytes of workspace
    taken: Taken

    def pieces(self, row: int, kind: int = 0) -> list[Piece]:
        """How a row's batch is run: its pieces, the largest first."""
        batch, limit = _at(self.menu.batch, kind, row), _at(self.limit, kind, row)
        if not _at(self.taken.divided, kind, row):
            return [Piece(1, batch, str(_at(named(self.menu.whole, limit), kind, row)))]
        levels = [int(_at(level, kind, row)) for level in self.taken.levels]
        return [
            Piece(count, size, str(_at(named(self.menu.powers[size.bit_length() - 1], limit),
                                       kind, row)))
            for count, size in division(int(np.ceil(batch)), levels)
        ]  # fmt: skip

    def whole(self, row: int, kind: int = 0) -> float:
        """Seconds of a row's batch in one piece, within the same limit."""
        seconds, _ = fastest(self.menu.whole, _at(self.limit, kind, row))
        return float(_at(seconds, kind, row))


@dataclass(frozen=True, slots=True)
class Piece:
    """So many pieces of so many samples, run by one algorithm."""

    count: int
    samples: float
    algorithm: str


def _at(values: Any, kind: int, row: int) -> Any:
    """One number of an array of (kinds of plans, rows), however it is spread."""
    found = np.atleast_2d(values)
    return found[min(kind, found.shape[0] - 1), min(row, found.shape[1] - 1)]


def convolved(
    shard: Shard, device: Device, precision: str, found: Mapping[str, Floats]
) -> tuple[Pair | None, Pair | None]:
    """Write the seconds of all convolutions; their workspace, and pieces beyond the first.

    Both by row, forward and backward: of two gradients that take turns the larger workspace, of
    those that keep theirs both.
    """
    every = chosen(shard, device, precision)
    if not every:
        return None, None
    size = found["forward"].shape
    rooms = {part: np.zeros(size) for part in PARTS}
    pieces = {part: np.zeros(size) for part in PARTS}
    for each in every:
        columns, taken = each.family.columns, each.taken
        added = _bias(At(shard, each.family), device, each.part)
        found[each.part][:, columns] = taken.seconds + added
        rooms[each.part][:, columns] = taken.room * each.live
        pieces[each.part][:, columns] = (taken.pieces - 1) * each.live
    together = np.add if shard.software.convolution.shared else np.maximum
    room = rooms["forward"], together(rooms["data"], rooms["weight"])
    return room, (pieces["forward"], pieces["data"] + pieces["weight"])


def chosen(shard: Shard, device: Device, precision: str) -> list[Kernels]:
    """What is taken of what there is, family by family and part by part."""
    said = shard.software.convolution
    every = [
        (family, part, _menu(At(shard, family), device, precision, part), _live(shard, part))
        for family in families(shard.model)
        if family.kind in KINDS
        for part in PARTS
    ]
    within = [np.full(1, said.limit)] * len(every)
    if said.shared and np.isfinite(said.limit):
        copies = shard.model.repeat
        within = limits([(one, (live * copies)[family.columns]) for family, _, one, live in every],
                        said.limit)  # fmt: skip
    return [
        Kernels(family, part, one, live[family.columns], limit, one.best(limit))
        for (family, part, one, live), limit in zip(every, within, strict=True)
    ]


def _live(shard: Shard, part: str) -> Flags:
    """Rows whose gradient somebody wants."""
    model = shard.model
    if part == "forward":
        return np.ones(len(model), bool)
    wanted = ~masks.entries(model) if part == "data" else np.asarray(model.trained) > 0
    return wanted & (not model.training.forward)


def _menu(at: At, device: Device, precision: str, part: str) -> Menu:
    shard = at.shard
    channels, filters, made = at(shard.channels), at(shard.filters), at.three(shard.made)
    if at.family.kind == "deconv":  # the forward pass of one is the data gradient of the other
        channels, filters, made = filters, channels, at.three(shard.given)
        part = {"forward": "data", "data": "forward"}.get(part, part)
    groups = np.minimum(at(shard.model.groups), np.minimum(channels, filters))
    family, rank = at.family.more
    said = shard.software.convolution
    own = shard.software.kernels.computed(precision, device, convolutions=True)
    micro = said.micro == "best"
    return menu(
        device, own, at(shard.micro), channels, filters, made, at.three(shard.model.window),
        at.three(shard.model.stride), groups, part, family=family,
        layout=said.stands(precision, rank), strided=said.strided_volumes, queued=True,
        limited=micro or bool(np.isfinite(said.limit)), micro=micro,
        every=said.algorithms == "all",
    )  # fmt: skip


def _bias(at: At, device: Device, part: str) -> Floats:
    """A bias is added by a kernel of its own, and its gradient summed by one."""
    shard = at.shard
    passes = {"forward": 2.0, "data": 0.0, "weight": 1.0}[part]
    if not passes or shard.software.kernels.biases != "apart" or not at.family.bias.any():
        return np.zeros(())
    moved = passes * shard.delta * at(shard.micro) * at(shard.y)
    return np.where(at.family.bias, stream(device, moved, queued=True), 0.0)

"""What each turn of a stage does with memory, row by row: which tensors come and go in what order.

Rows run one after the other. A unit that is made again has its tensors from then on until its rows
have run back. A row that runs back wants the gradient of what it made and makes that of what it was
given, which goes on to the row before it; a tensor that several rows read has a gradient that waits
for all of them. It names `recompute`, whose kinds choose what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from oracle.models import masks
from oracle.models.shard import Array
from oracle.plan.schedule import SCHEDULES
from oracle.predict import alive
from oracle.predict.carried import block_begins
from oracle.predict.memory import standing
from oracle.predict.row_bytes import forks, moving_rows
from oracle.predict.workload import Workload
from oracle.spec.options import Options

Gradient = tuple[str, int]  # of what a row made, was given, or of what waits at a fork: whose


class Tensor(NamedTuple):
    """What is allocated at once, of one micro-batch or of all."""

    kind: str  # of memory
    layer: str  # whose it is
    what: str
    nbytes: float


class Piece(NamedTuple):
    """A row of a stage as it is run: which copy of which row, in which unit."""

    row: int
    layer: str
    unit: int


@dataclass(eq=False)
class Script:
    """What one kind of turn does with memory, row by row: fractions of its time and slots."""

    at: list[float] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    comes: list[bool] = field(default_factory=list)
    clock: float = 0.0

    def add(self, slot: int | None, comes: bool) -> None:
        if slot is not None:
            self.at.append(self.clock)
            self.slot.append(slot)
            self.comes.append(comes)

    def every(self, slots: Iterable[int | None], comes: bool) -> None:
        for slot in slots:
            self.add(slot, comes)


class Stage:
    """A stage of one plan, and the tensors on it as they are met."""

    def __init__(self, load: Workload, stage: int, schedule: str, options: Options,
                 words: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.load, self.stage, self.schedule, self.options = load, stage, schedule, options
        self.words = words  # of the model's units, where each chose whether it is made again
        self.many = load.stages.devices
        shard, self.model = load.shard, load.shard.model
        mode = alive.FULL if "recompute" in words else int(load.plan.axis("recompute").mode[0, 0])
        self.mode = 0 if self.model.training.forward else mode
        self.whole = self.mode == alive.STAGE  # the stage is made again, from what it was given
        self.rows = alive.Rows.of(shard, 0 if self.whole else self.mode, load.times.workspace)
        # what kernels take beside the gradients while they run
        self.taken = self._one(self.rows.moving - moving_rows(shard))
        self.tensors: list[Tensor] = []
        self.loss, self.forks = masks.losses(self.model), forks(self.model)
        self.own = {name: self._one(getattr(load.times, name))
                    for name in ("forward", "data", "weight")}  # fmt: skip
        part = float(np.max(shard.micro)) * shard.delta * masks.moved(self.model)
        self.x, self.y = self._one(shard.x * part), self._one(shard.y * part)
        self.slots: dict[tuple[object, ...], int] = {}

    def _one(self, values: Array) -> Array:
        found: Array = np.broadcast_to(values, (1, len(self.model)))[0]
        return found

    def tensor(self, key: tuple[object, ...], kind: str, layer: str, what: str,
               nbytes: float) -> int | None:  # fmt: skip
        """The slot of a tensor; none for nothing."""
        if nbytes > 0 and key not in self.slots:
            self.slots[key] = len(self.tensors)
            self.tensors.append(Tensor(kind, layer, what, float(nbytes)))
        return self.slots[key] if nbytes > 0 else None

    def pieces(self, chunk: int) -> list[list[Piece]]:
        """The rows of a chunk, unit by unit, each copy of a repeated one by itself."""
        stages, found = self.load.stages, list[list[Piece]]()
        counts, segments = stages.counts, self.model.segments
        if stages.devices == 1:
            begin, end = 0, len(counts)
        else:
            place = self.place(chunk)
            if place >= stages.chunks:
                return []
            begin, end = (int(edge) for edge in stages.edges[0, place : place + 2])
        for unit in range(begin, end):
            met, pieces = counts[:unit].sum(axis=0), list[Piece]()
            for one in segments:
                mine = [i for i in range(one.start, one.stop) if counts[unit][i] > 0]
                for part in _alike(mine, counts[unit]):
                    for copy in range(int(counts[unit][part[0]])):
                        pieces += [Piece(i, self.name(i, int(met[i]) + copy), unit) for i in part]
            if found and self.joined[unit] and unit > begin:
                found[-1].extend(pieces)
            else:
                found.append(pieces)
        return found

    @cached_property
    def joined(self) -> Array:
        """(units,) whether each is made again with the one before it, as parts of a block are."""
        stages = self.load.stages
        if stages.plain or not self.rows.again:
            return np.zeros(len(stages.counts), bool)
        return np.asarray(block_begins(stages)[0] < np.arange(len(stages.counts)))

    def beside(self, chunk: int) -> list[int | None]:
        """Tensors that cross stages; what the chunk was given, where its stage is made again."""
        stages, place = self.load.stages, self.place(chunk)
        units = alive.Units.of(self.model, self.rows)
        crossed = alive.crossed(stages, self.rows, units)[1]
        given = np.atleast_2d(stages.first(self.rows.given[:, stages.begin])) * self.whole
        own = [float(each[0, place]) if place < each.shape[-1] else 0.0
               for each in (crossed, given)]  # fmt: skip
        return [self.tensor(("crossed", chunk), "activations", "other stages", "received", own[0]),
                self.tensor(("begun", chunk), "activations", "the stage", "what it was given",
                            own[1])]  # fmt: skip

    def handed_on(self, chunk: int) -> int | None:
        """What a chunk has sent on, where it stays until its gradient is there."""
        place, sent = self.place(chunk), alive.sent(self.load.stages, self.rows)
        stays = place < sent.shape[1] and (self.whole or self.rows.again)
        return self.tensor(("sent", chunk), "activations", "other stages", "sent",
                           float(sent[0, place]) if stays else 0.0)  # fmt: skip

    def place(self, chunk: int) -> int:
        """Where a chunk stands among those of all stages."""
        many = self.load.stages.devices
        return 0 if many == 1 else SCHEDULES[self.schedule].place(chunk, self.stage, many)

    def name(self, row: int, copy: int) -> str:
        word = self.model.names[row]
        return f"{word} {copy + 1}" if self.model.repeat[row] > 1 else word

    def again(self, unit: list[Piece]) -> bool:
        """Whether a unit is made again whole, from its input."""
        if self.words:
            return any(self.words[one.unit] == "recompute" for one in unit)
        return self.rows.again and any(self.model.blocks[one.row] for one in unit)

    def kept(self, one: Piece, again: bool, at: int) -> list[int | None]:
        """What a row keeps; apart what it made for those behind it alone."""
        rows = self.rows.rest if again or not self.rows.again else self.rows.kept
        nbytes, gone = self._one(rows)[one.row], self._one(self.rows.gone)[one.row]
        handed = max(min(gone - self._more(one) * again, nbytes), 0.0)
        key, kind = ("kept", one.unit, at), "activations"
        return [self.tensor((*key, "own"), kind, one.layer, "kept", nbytes - handed),
                self.tensor((*key, "handed"), kind, one.layer, "kept", handed)]  # fmt: skip

    def remade(self, one: Piece, at: int) -> list[int | None]:
        """The same of what is made again."""
        more = self._more(one)
        handed = min(self._one(self.rows.gone)[one.row], more)
        key, kind = ("made", one.unit, at), "activations"
        return [self.tensor((*key, "own"), kind, one.layer, "made again", more - handed),
                self.tensor((*key, "handed"), kind, one.layer, "made again", handed)]  # fmt: skip

    def _more(self, one: Piece) -> float:
        return float(self._one(np.maximum(self.rows.kept - self.rows.rest, 0))[one.row])

    def given(self, unit: list[Piece]) -> int | None:
        """What it was given, but for tensors that units before it were given too."""
        first = unit[0]
        nbytes = float(np.atleast_2d(self.inputs)[0, first.unit])
        return self.tensor(("given", first.unit), "activations", first.layer, "input of the unit",
                           nbytes)  # fmt: skip

    @cached_property
    def inputs(self) -> Array:
        return alive.inputs(self.load.stages, self.rows)

    @cached_property
    def stand(self) -> dict[str, float]:
        """Bytes that no micro-batch brings, beside those that stay."""
        found = standing(self.load, self.options)
        stage = self.stage
        return {name: float(np.broadcast_to(getattr(found, name), (1, self.many))[0, stage])
                for name in ("gathered", "buffers", "update", "waiting")}  # fmt: skip

    def standing(self, name: str) -> int | None:
        kind, layer, what = {
            "gathered": ("weights", "gathered units", "weights at work, and next"),
            "buffers": ("buffers", "gradients on their way", "buckets, units, copies"),
            "update": ("buffers", "update", "copies of gradients"),
            "waiting": ("buffers", "other stages", "waits for stages far ahead"),
        }[name]
        return self.tensor((name,), kind, layer, what, self.stand[name])

    def script(self, kind: str, chunk: int) -> Script:
        """What a turn of a kind does."""
        found, units = Script(), self.pieces(chunk)
        found.add(self.standing("gathered"), True)
        if kind in ("forward", "input"):
            found.add(self.standing("waiting"), True)
        if kind == "forward":
            found.every(self.beside(chunk), True)
            if self.whole:  # what it makes is made again when the stage runs back
                found.clock += sum(self.own["forward"][one.row] for unit in units for one in unit)
            else:
                self._forward(found, units)
        elif kind == "weight":
            self._weights(found, units)
        else:
            found.add(self.handed_on(chunk), False)
            if self.whole:
                self._forward(found, units)
            self._back(found, units, kind == "backward")
        if kind == "forward":
            found.add(self.handed_on(chunk), True)
        if kind in ("forward", "input"):
            found.add(self.standing("waiting"), False)
        if kind in ("backward", "weight"):
            found.every(self.beside(chunk), False)
        found.add(self.standing("gathered"), False)
        return found

    def _forward(self, found: Script, units: list[list[Piece]]) -> None:
        """The pass forward, after which rows hold what they keep."""
        for unit in units:
            again = self.again(unit)
            if again:
                found.add(self.given(unit), True)
            for at, one in enumerate(unit):
                found.every(self.kept(one, again, at), True)
                if self.model.training.forward:
                    moving = self._one(self.rows.moving)[one.row]
                    slot = self.tensor(("moving", one.unit, at), "workspace", one.layer,
                                       "tensors", moving)  # fmt: skip
                    found.add(slot, True)
                    found.clock += self.own["forward"][one.row]
                    found.add(slot, False)
                else:
                    found.clock += self.own["forward"][one.row]

    def _weights(self, found: Script, units: list[list[Piece]]) -> None:
        found.add(self.standing("buffers"), True)
        for unit in reversed(units):
            again = self.again(unit)
            for at, one in reversed(list(enumerate(unit))):
                found.clock += self.own["weight"][one.row]
                found.every(self.kept(one, again, at), False)
                if again:
                    found.every(self.remade(one, at), False)
        found.add(self.standing("buffers"), False)

    def _back(self, found: Script, units: list[list[Piece]], whole: bool) -> None:
        """Rows from the last to the first; `whole` where the weights' gradients come with them."""
        moving, on = dict[Gradient, int](), False
        for unit in reversed(units):
            again = self.again(unit)
            moving = self._carried(found, unit[-1], moving)
            if again:
                for at, one in enumerate(unit):
                    found.every(self.remade(one, at), True)
                    found.clock += self.own["forward"][one.row]
            for at, one in reversed(list(enumerate(unit))):
                if one is not unit[-1]:
                    moving = self._carried(found, one, moving)
                if whole:  # who wanted what it made has run back
                    found.add(self.kept(one, again, at)[1], False)
                    if again:
                        found.add(self.remade(one, at)[1], False)
                wants = whole and not self.loss[one.row]  # a loss has no weights
                if on and not wants:
                    found.add(self.standing("buffers"), False)
                moving |= self._fresh(found, one, at, moving)
                if wants and not on:
                    found.add(self.standing("buffers"), True)
                on = wants
                waits = None if wants or not whole else self.standing("waiting")
                found.add(waits, True)
                own = self._one(self.rows.own)[one.row]
                core = self.tensor(("own", one.unit, at), "activations", one.layer, "made again",
                                   own)  # fmt: skip
                taken = self.tensor(("taken", one.unit, at), "workspace", one.layer,
                                    "workspace of kernels", self.taken[one.row])  # fmt: skip
                found.add(core, True)
                found.add(taken, True)
                found.clock += self.own["data"][one.row] + whole * self.own["weight"][one.row]
                found.add(taken, False)
                found.add(core, False)
                found.add(waits, False)
                if whole:
                    found.add(self.kept(one, again, at)[0], False)
                    if again:
                        found.add(self.remade(one, at)[0], False)
            if again:
                found.add(self.given(unit), False)
        for slot in moving.values():
            found.add(slot, False)
        if on:
            found.add(self.standing("buffers"), False)

    def _wanted(self, one: Piece) -> Iterator[tuple[Gradient, float]]:
        """Gradients that a row wants while it runs back."""
        yield ("out", -1), self.y[one.row]
        for made in np.flatnonzero(self.forks[one.row]).tolist():
            yield ("fork", made), self.y[made]
        yield ("in", -1), self.x[one.row]

    def _carried(
        self, found: Script, one: Piece, before: dict[Gradient, int]
    ) -> dict[Gradient, int]:
        """What of the gradients of the row behind goes on to this one; the others are freed.

        What that row was given is what this one made, where they are as large.
        """
        kept = {}
        for key, nbytes in self._wanted(one):
            old = ("in", -1) if key[0] == "out" else key
            there = before.get(old) if key[0] != "in" and nbytes > 0 else None
            if there is not None and self.tensors[there].nbytes == nbytes:
                kept[key] = before.pop(old)
        for slot in before.values():
            found.add(slot, False)
        return kept

    def _fresh(
        self, found: Script, one: Piece, at: int, there: dict[Gradient, int]
    ) -> dict[Gradient, int]:
        """Gradients of a row that are not there yet."""
        fresh = {}
        for key, nbytes in self._wanted(one):
            name = "gradient", one.unit, at, key
            slot = self.tensor(name, "workspace", one.layer, GRADIENTS[key[0]], nbytes)
            if slot is not None and key not in there:
                found.add(slot, True)
                fresh[key] = slot
        return fresh

    def weights(self) -> Iterator[int | None]:
        """Tensors that stay: weights, their gradients and the optimizer's state, by row."""
        load, options = self.load, self.options
        found = standing(load, options)
        for kind, name in (("weights", "stored"), ("gradients", "graded"), ("optimizer", "stated")):
            whole = float(np.broadcast_to(found.fixed[kind], (1, self.many))[0, self.stage])
            each = np.zeros(len(self.model))
            for w, share in load.shares(name):
                slots = load.shard.slots if kind == "optimizer" else 1.0
                each = each + self._one(w * slots * np.max(share))
            held = np.array([load.stages.total(each * own)[0, self.stage]
                             for own in np.eye(len(self.model))])  # fmt: skip
            scale = whole / held.sum() if held.sum() > 0 else 0.0
            if kind == "optimizer" and options.optimizer == "kfac":
                scale = min(scale, 1.0)
            copies = np.array([load.stages.total(own)[0, self.stage]
                               for own in np.eye(len(self.model))])  # fmt: skip
            for row in np.flatnonzero(held):
                each = held[row] * scale / copies[row]
                slot = self.tensor((kind, row), kind, self.model.names[row], kind, each)
                yield from [slot] * round(copies[row])
            yield self.tensor((kind, "factors"), kind, "factors of K-FAC", kind,
                              whole - held.sum() * scale if scale == 1 else 0.0)  # fmt: skip
        for kind in found.fixed.keys() - {"weights", "gradients", "optimizer"}:
            whole = float(np.broadcast_to(found.fixed[kind], (1, self.many))[0, self.stage])
            yield self.tensor((kind,), kind, "all kernels", f"{kind}, shared", whole)


GRADIENTS = {"out": "gradient of what it made", "in": "gradient of what it was given",
             "fork": "gradient that waits at a fork"}  # fmt: skip


def _alike(rows: list[int], counts: Array) -> Iterator[list[int]]:
    """Runs of rows that recur equally often together; of rows that do not, each by itself."""
    run: list[int] = []
    for i in rows:
        if run and (counts[i] != counts[run[-1]] or counts[i] < 2 or i != run[-1] + 1):
            yield run
            run = []
        run.append(i)
    if run:
        yield run

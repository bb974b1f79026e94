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
from oracle.models.instances import equal_runs
from oracle.models.shard import Array
from oracle.plan.schedule import SCHEDULES
from oracle.plan.strategies.recompute import FULL, STAGE
from oracle.predict import alive
from oracle.predict.carried import block_begins
from oracle.predict.memory import standing
from oracle.predict.row_bytes import Rows, forks, moving_rows
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
                 words: tuple[str, ...] = (), lead: float = 1.0) -> None:  # fmt: skip
        self.load, self.stage, self.schedule, self.options = load, stage, schedule, options
        self.lead = lead
        self.words = words  # of the model's units, where each chose whether it is made again
        self.many = load.stages.devices
        shard, self.model = load.shard, load.shard.model
        mode = FULL if "recompute" in words else int(load.plan.axis("recompute").mode[0, 0])
        self.mode = 0 if self.model.training.forward else mode
        self.whole = self.mode == STAGE  # the stage is made again, from what it was given
        self.rows = Rows.of(shard, 0 if self.whole else self.mode, load.times.workspace)
        # what kernels take beside the gradients while they run
        self.taken = self._row(self.rows.moving - moving_rows(shard))
        self.tensors: list[Tensor] = []
        self.loss, self.forks = masks.losses(self.model), forks(self.model)
        self.own = {name: self._row(getattr(load.times, name))
                    for name in ("forward", "data", "weight")}  # fmt: skip
        part = float(np.max(shard.micro)) * shard.delta * masks.moved(self.model)
        self.x, self.y = self._row(shard.x * part), self._row(shard.y * part)
        self.slots: dict[tuple[object, ...], int] = {}

    def _row(self, values: Array) -> Array:
        return np.asarray(np.broadcast_to(values, (1, len(self.model)))[0])

    def tensor(self, key: tuple[object, ...], kind: str, layer: str, words: str,
               nbytes: float) -> int | None:  # fmt: skip
        """The slot of a tensor; none for nothing."""
        if nbytes > 0 and key not in self.slots:
            self.slots[key] = len(self.tensors)
            self.tensors.append(Tensor(kind, layer, words, float(nbytes)))
        return self.slots[key] if nbytes > 0 else None

    def pieces(self, chunk: int) -> list[list[Piece]]:
        """The rows of a chunk, unit by unit, each copy of a repeated one by itself."""
        stages, units = self.load.stages, list[list[Piece]]()
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
            for segment in segments:
                rows = [i for i in range(segment.start, segment.stop) if counts[unit][i] > 0]
                for part in equal_runs(rows, counts[unit]):
                    for copy in range(int(counts[unit][part[0]])):
                        pieces += [Piece(i, self.name(i, int(met[i]) + copy), unit) for i in part]
            if units and self.joined[unit] and unit > begin:
                units[-1].extend(pieces)
            else:
                units.append(pieces)
        return units

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
        given_bytes = np.atleast_2d(stages.first(self.rows.given[:, stages.begin])) * self.whole
        received, begun = (float(stage_bytes[0, place]) if place < stage_bytes.shape[-1] else 0.0
                           for stage_bytes in (crossed, given_bytes))  # fmt: skip
        kind = "activations"
        return [self.tensor(("crossed", chunk), kind, "other stages", "received", received),
                self.tensor(("begun", chunk), kind, "the stage", "what it was given",
                            begun)]  # fmt: skip

    def handed_on(self, chunk: int) -> int | None:
        """What a chunk has sent on, where it stays until its gradient is there."""
        place, sent = self.place(chunk), alive.sent(self.load.stages, self.rows)
        stays = place < sent.shape[1] and (self.whole or self.rows.again)
        return self.tensor(("sent", chunk), "activations", "other stages", "sent",
                           float(sent[0, place]) if stays else 0.0)  # fmt: skip

    def place(self, chunk: int) -> int:
        """Where a chunk stands among those of all stages."""
        stage_count = self.load.stages.devices
        if stage_count == 1:
            return 0
        return SCHEDULES[self.schedule].place(chunk, self.stage, stage_count)

    def name(self, row: int, copy: int) -> str:
        word = self.model.names[row]
        return f"{word} {copy + 1}" if self.model.repeat[row] > 1 else word

    def again(self, unit: list[Piece]) -> bool:
        """Whether a unit is made again whole, from its input."""
        if self.words:
            return any(self.words[piece.unit] == "recompute" for piece in unit)
        if not (self.rows.again and any(self.model.blocks[piece.row] for piece in unit)):
            return False
        rows = [piece.row for piece in unit]
        less = alive.saves(self.rows, rows[0], rows, np.ones(len(rows)))[0]
        return bool(less or not self.model.pieces.links.plain)

    def kept(self, piece: Piece, remade: bool, place: int) -> list[int | None]:
        """What a row keeps; apart what it made for those behind it alone."""
        rows = self.rows.rest if remade or not self.rows.again else self.rows.kept
        nbytes, gone = self._row(rows)[piece.row], self._row(self.rows.gone)[piece.row]
        handed = max(min(gone - self._more(piece) * remade, nbytes), 0.0)
        key, kind = ("kept", piece.unit, place), "activations"
        return [self.tensor((*key, "own"), kind, piece.layer, "kept", nbytes - handed),
                self.tensor((*key, "handed"), kind, piece.layer, "kept", handed)]  # fmt: skip

    def remade(self, piece: Piece, place: int) -> list[int | None]:
        """The same of what is made again."""
        more = self._more(piece)
        handed = min(self._row(self.rows.gone)[piece.row], more)
        key, kind = ("made", piece.unit, place), "activations"
        return [self.tensor((*key, "own"), kind, piece.layer, "made again", more - handed),
                self.tensor((*key, "handed"), kind, piece.layer, "made again", handed)]  # fmt: skip

    def _more(self, piece: Piece) -> float:
        return float(self._row(np.maximum(self.rows.kept - self.rows.rest, 0))[piece.row])

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
        stand = standing(self.load, self.options, self.lead)
        return {name: self._stage_bytes(getattr(stand, name))
                for name in ("gathered", "buffers", "update", "waiting")}  # fmt: skip

    def standing(self, name: str) -> int | None:
        kind, layer, words = {
            "gathered": ("weights", "gathered units", "weights at work, and next"),
            "buffers": ("buffers", "gradients on their way", "buckets, units, copies"),
            "update": ("buffers", "update", "copies of gradients"),
            "waiting": ("buffers", "other stages", "waits for stages far ahead"),
        }[name]
        return self.tensor((name,), kind, layer, words, self.stand[name])

    def script(self, kind: str, chunk: int) -> Script:
        """What a turn of a kind does."""
        turn_script, units = Script(), self.pieces(chunk)
        turn_script.add(self.standing("gathered"), True)
        if kind in ("forward", "input"):
            turn_script.add(self.standing("waiting"), True)
        if kind == "forward":
            turn_script.every(self.beside(chunk), True)
            if self.whole:  # what it makes is made again when the stage runs back
                turn_script.clock += sum(
                    self.own["forward"][piece.row] for unit in units for piece in unit
                )
            else:
                self._forward(turn_script, units)
        elif kind == "weight":
            self._weights(turn_script, units)
        else:
            turn_script.add(self.handed_on(chunk), False)
            if self.whole:
                self._forward(turn_script, units)
            self._back(turn_script, units, kind == "backward")
        if kind == "forward":
            turn_script.add(self.handed_on(chunk), True)
        if kind in ("forward", "input"):
            turn_script.add(self.standing("waiting"), False)
        if kind in ("backward", "weight"):
            turn_script.every(self.beside(chunk), False)
        turn_script.add(self.standing("gathered"), False)
        return turn_script

    def _forward(self, script: Script, units: list[list[Piece]]) -> None:
        """The pass forward, after which rows hold what they keep."""
        for unit in units:
            remade = self.again(unit)
            if remade:
                script.add(self.given(unit), True)
            for place, piece in enumerate(unit):
                script.every(self.kept(piece, remade, place), True)
                slot = None
                if self.model.training.forward:
                    moving = self._row(self.rows.moving)[piece.row]
                    slot = self.tensor(("moving", piece.unit, place), "workspace", piece.layer,
                                       "tensors", moving)  # fmt: skip
                script.add(slot, True)
                script.clock += self.own["forward"][piece.row]
                script.add(slot, False)

    def _weights(self, script: Script, units: list[list[Piece]]) -> None:
        script.add(self.standing("buffers"), True)
        for unit in reversed(units):
            remade = self.again(unit)
            for place, piece in reversed(list(enumerate(unit))):
                script.clock += self.own["weight"][piece.row]
                script.every(self.kept(piece, remade, place), False)
                if remade:
                    script.every(self.remade(piece, place), False)
        script.add(self.standing("buffers"), False)

    def _back(self, script: Script, units: list[list[Piece]], with_weights: bool) -> None:
        """Rows from the last to the first, `with_weights` or without their gradients."""
        moving, on = dict[Gradient, int](), False
        for unit in reversed(units):
            remade = self.again(unit)
            moving = self._carried(script, unit[-1], moving)
            if remade:
                for place, piece in enumerate(unit):
                    script.every(self.remade(piece, place), True)
                    script.clock += self.own["forward"][piece.row]
            for place, piece in reversed(list(enumerate(unit))):
                if piece is not unit[-1]:
                    moving = self._carried(script, piece, moving)
                if with_weights:  # who wanted what it made has run back
                    script.add(self.kept(piece, remade, place)[1], False)
                    if remade:
                        script.add(self.remade(piece, place)[1], False)
                wants = with_weights and not self.loss[piece.row]  # a loss has no weights
                if on and not wants:
                    script.add(self.standing("buffers"), False)
                moving |= self._fresh(script, piece, place, moving)
                if wants and not on:
                    script.add(self.standing("buffers"), True)
                on = wants
                waits = None if wants or not with_weights else self.standing("waiting")
                script.add(waits, True)
                extra_bytes = self._row(self.rows.own)[piece.row]
                core = self.tensor(("own", piece.unit, place), "activations", piece.layer,
                                   "made again", extra_bytes)  # fmt: skip
                workspace = self.tensor(("taken", piece.unit, place), "workspace", piece.layer,
                                    "workspace of kernels", self.taken[piece.row])  # fmt: skip
                script.add(core, True)
                script.add(workspace, True)
                script.clock += (
                    self.own["data"][piece.row] + with_weights * self.own["weight"][piece.row]
                )
                script.add(workspace, False)
                script.add(core, False)
                script.add(waits, False)
                if with_weights:
                    script.add(self.kept(piece, remade, place)[0], False)
                    if remade:
                        script.add(self.remade(piece, place)[0], False)
            if remade:
                script.add(self.given(unit), False)
        for slot in moving.values():
            script.add(slot, False)
        if on:
            script.add(self.standing("buffers"), False)

    def _gradients(self, piece: Piece) -> Iterator[tuple[Gradient, float]]:
        """Gradients that a row wants while it runs back."""
        yield ("out", -1), self.y[piece.row]
        for maker in np.flatnonzero(self.forks[piece.row]).tolist():
            yield ("fork", maker), self.y[maker]
        yield ("in", -1), self.x[piece.row]

    def _carried(
        self, script: Script, piece: Piece, before: dict[Gradient, int]
    ) -> dict[Gradient, int]:
        """What of the gradients of the row behind goes on to this one; the others are freed.

        What that row was given is what this one made, where they are as large.
        """
        carried = {}
        for key, nbytes in self._gradients(piece):
            old = ("in", -1) if key[0] == "out" else key
            slot_before = before.get(old) if key[0] != "in" and nbytes > 0 else None
            if slot_before is not None and self.tensors[slot_before].nbytes == nbytes:
                carried[key] = before.pop(old)
        for slot in before.values():
            script.add(slot, False)
        return carried

    def _fresh(
        self, script: Script, piece: Piece, place: int, present: dict[Gradient, int]
    ) -> dict[Gradient, int]:
        """Gradients of a row that are not there yet."""
        fresh = {}
        for key, nbytes in self._gradients(piece):
            name = "gradient", piece.unit, place, key
            slot = self.tensor(name, "workspace", piece.layer, GRADIENTS[key[0]], nbytes)
            if slot is not None and key not in present:
                script.add(slot, True)
                fresh[key] = slot
        return fresh

    def _stage_bytes(self, values: Array) -> float:
        return float(np.broadcast_to(values, (1, self.many))[0, self.stage])

    def weights(self) -> Iterator[int | None]:
        """Tensors that stay: weights, their gradients and the optimizer's state, by row."""
        load, options = self.load, self.options
        standing_bytes = standing(load, options)
        for kind, name in (("weights", "stored"), ("gradients", "graded"), ("optimizer", "stated")):
            stage_bytes = self._stage_bytes(standing_bytes.fixed[kind])
            row_bytes = np.zeros(len(self.model))
            for w, share in load.shares(name):
                slots = load.shard.slots if kind == "optimizer" else 1.0
                row_bytes = row_bytes + self._row(w * slots * np.max(share))
            on_stage = load.stages.total(np.diag(row_bytes))[:, self.stage]
            scale = stage_bytes / on_stage.sum() if on_stage.sum() > 0 else 0.0
            if kind == "optimizer" and options.optimizer == "kfac":
                scale = min(scale, 1.0)
            copies = load.stages.total(np.eye(len(self.model)))[:, self.stage]
            for row in np.flatnonzero(on_stage):
                row_bytes = on_stage[row] * scale / copies[row]
                slot = self.tensor((kind, row), kind, self.model.names[row], kind, row_bytes)
                yield from [slot] * round(copies[row])
            factors = stage_bytes - on_stage.sum() * scale if scale == 1 else 0.0
            yield self.tensor((kind, "factors"), kind, "factors of K-FAC", kind, factors)
        for kind in standing_bytes.fixed.keys() - {"weights", "gradients", "optimizer"}:
            stage_bytes = self._stage_bytes(standing_bytes.fixed[kind])
            yield self.tensor((kind,), kind, "all kernels", f"{kind}, shared", stage_bytes)


GRADIENTS = {"out": "gradient of what it made", "in": "gradient of what it was given",
             "fork": "gradient that waits at a fork"}  # fmt: skip

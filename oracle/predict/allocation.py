"""One iteration on a stage, tensor by tensor: what is allocated and freed when.

The schedule's turns are played with the seconds of the prediction (`oracle.predict.trace`); in each
the stage's rows run one after the other. What is allocated: weights, gradients and the optimizer's
state all along; units of weights that are gathered while a turn runs; what a row keeps, from its
pass forward until it runs back, or from when its unit is made again; gradients of activations while
rows run back that want them; gradients of weights on their way; what an update takes.
`oracle.predict.memory` has the most of it in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracle.models import masks
from oracle.models.shard import Array
from oracle.plan.schedule import SCHEDULES
from oracle.predict import alive
from oracle.predict.estimate import Estimate
from oracle.predict.memory import KINDS, standing
from oracle.predict.trace import Trace, trace
from oracle.predict.workload import Workload, rows_of, workload
from oracle.spec.document import refusal

MOST = 2**22  # allocations that are played
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


@dataclass(frozen=True, eq=False)
class Timeline:
    """The allocations of a stage in order: at each event one tensor comes or goes."""

    stage: int
    seconds: NDArray[np.float64]  # of each event
    slot: NDArray[np.int64]  # the tensor
    micro: NDArray[np.int64]  # and the micro-batch that it is of; -1 where it is of all
    comes: NDArray[np.bool_]
    turn: NDArray[np.int64]  # during which turn, in the stage's order; -1 before and after
    turns: tuple[tuple[str, int, int], ...]  # kind, micro-batch and chunk of each
    tensors: tuple[Tensor, ...]
    end: float  # seconds of the iteration

    @cached_property
    def change(self) -> Array:
        """Bytes by which each event changes what is allocated."""
        size = np.array([tensor.nbytes for tensor in self.tensors])
        return np.where(self.comes, size[self.slot], -size[self.slot])

    def level(self, kind: str) -> Array:
        """Bytes of a kind after each event."""
        mine = np.array([tensor.kind == kind for tensor in self.tensors])
        return np.cumsum(self.change * mine[self.slot])

    @cached_property
    def levels(self) -> dict[str, Array]:
        """The same of all kinds that there are."""
        present = {tensor.kind for tensor in self.tensors}
        return {kind: self.level(kind) for kind in KINDS if kind in present}

    @cached_property
    def total(self) -> Array:
        """Bytes after each event."""
        return np.sum(list(self.levels.values()), axis=0)  # type: ignore[no-any-return]

    @property
    def peak(self) -> int:
        """The first event after which most is allocated."""
        most = float(self.total.max())
        return int(np.argmax(self.total >= most * (1 - 1e-12)))

    def alive(self, event: int) -> list[tuple[Tensor, int]]:
        """Tensors that are there after an event, with how many of each: micro-batches, buffers."""
        upto = slice(0, event + 1)
        count = np.bincount(self.slot[upto], np.where(self.comes[upto], 1, -1), len(self.tensors))
        return [(self.tensors[i], round(count[i])) for i in np.flatnonzero(count > 0.5).tolist()]

    def during(self, event: int) -> str:
        """What the stage does at an event, in words."""
        number = int(self.turn[event])
        if number < 0:
            return "the update"
        kind, micro, _ = self.turns[number]
        chunks = len({chunk for _, _, chunk in self.turns})
        where = f", chunk {self.turns[number][2] + 1} of {chunks}" if chunks > 1 else ""
        return f"{WORDS[kind]} of micro-batch {micro + 1}{where}"


WORDS = {"forward": "the pass forward", "backward": "the pass back",
         "input": "the gradient of the input", "weight": "the gradient of the weights"}  # fmt: skip


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


def workload_of(shown: Estimate, row: int = 0) -> Workload:
    """The shard and stages of one plan, cut as the estimate has them."""
    work, options = shown.work[row], shown.options
    model = shown.model.under(options.software.kernels)
    stages = work.block.stages
    cuts = stages.cuts[min(work.at, len(stages.cuts) - 1)]
    options = replace(options, edges=tuple(int(edge) for edge in cuts))
    return workload(rows_of(model, shown.system, work.plan, options), options)


def timeline(shown: Estimate, row: int = 0, stage: int | None = None) -> Timeline:
    """One plan's allocations on a stage, the one that needs most if none is named."""
    if shown.options.ideal:
        what = "under ideal assumptions all is there all the time"
        raise refusal("memory", what, "leave `--ideal` out")
    load, found = workload_of(shown, row), trace(shown.work[row])
    mine = int(shown.stage[row]) if stage is None else stage
    if not 0 <= mine < found.stages:
        raise refusal("memory", f"there is no stage {mine}", f"0 to {found.stages - 1}")
    try:
        _ = found.spans
    except ValueError as error:
        raise refusal("memory", str(error)) from None
    return _Stage(shown, mine, load, found).timeline()


class _Stage:
    """A stage of one plan, and the tensors on it as they are met."""

    def __init__(self, shown: Estimate, stage: int, load: Workload, found: Trace) -> None:
        self.shown, self.stage, self.load, self.found = shown, stage, load, found
        shard, self.model = load.shard, load.shard.model
        mode = int(load.plan.axis("recompute").mode[0, 0])
        self.mode = 0 if self.model.training.forward else mode
        self.rows = alive.Rows.of(shard, self.mode)
        self.tensors: list[Tensor] = []
        self.loss = masks.losses(self.model)
        self.forks = alive.forks(self.model)
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
        if nbytes <= 0:
            return None
        if key not in self.slots:
            self.slots[key] = len(self.tensors)
            self.tensors.append(Tensor(kind, layer, what, float(nbytes)))
        return self.slots[key]

    def pieces(self, chunk: int) -> list[list[Piece]]:
        """The rows of a chunk, unit by unit, each copy of a repeated one by itself."""
        stages, found = self.load.stages, []
        counts, segments = stages.counts, self.model.segments
        if stages.p == 1:
            begin, end = 0, len(counts)
        else:
            place = SCHEDULES[self.found.schedule].place(chunk, self.stage, stages.p)
            if place >= stages.chunks:
                return []
            begin, end = (int(edge) for edge in stages.cuts[0][place : place + 2])
        for unit in range(begin, end):
            met = counts[:unit].sum(axis=0)
            pieces: list[Piece] = []
            for one in segments:
                mine = [i for i in range(one.start, one.stop) if counts[unit][i] > 0]
                for part in _alike(mine, counts[unit]):
                    for copy in range(int(counts[unit][part[0]])):
                        pieces += [Piece(i, self.name(i, int(met[i]) + copy), unit) for i in part]
            found.append(pieces)
        return found

    def name(self, row: int, copy: int) -> str:
        word = self.model.rows[row].name
        return f"{word} {copy + 1}" if self.model.repeat[row] > 1 else word

    def again(self, unit: list[Piece]) -> bool:
        """Whether a unit is made again whole, from its input."""
        return self.rows.again and any(self.model.blocks[one.row] for one in unit)

    def kept(self, one: Piece, again: bool, at: int) -> int | None:
        rows = self.rows.rest if again or not self.rows.again else self.rows.kept
        nbytes = self._one(rows)[one.row]
        return self.tensor(("kept", one.unit, at), "activations", one.layer, "kept", nbytes)

    def remade(self, one: Piece, at: int) -> int | None:
        more = self._one(np.maximum(self.rows.kept - self.rows.rest, 0))[one.row]
        key = "made", one.unit, at
        return self.tensor(key, "activations", one.layer, "made again", more)

    def given(self, unit: list[Piece]) -> int | None:
        first = unit[0]
        nbytes = self._one(self.rows.given)[min(one.row for one in unit)]
        return self.tensor(("given", first.unit), "activations", first.layer, "input of the unit",
                           nbytes)  # fmt: skip

    @cached_property
    def stand(self) -> dict[str, float]:
        """Bytes that no micro-batch brings, beside those that stay."""
        found = standing(self.load, self.shown.options)
        stage = self.stage
        return {name: float(np.broadcast_to(getattr(found, name), (1, self.found.stages))[0, stage])
                for name in ("gathered", "buffers", "update")}  # fmt: skip

    def standing(self, name: str) -> int | None:
        kind, layer, what = {
            "gathered": ("weights", "gathered units", "weights at work, and next"),
            "buffers": ("buffers", "gradients on their way", "buckets, units, copies"),
            "update": ("buffers", "update", "copies of gradients"),
        }[name]
        return self.tensor((name,), kind, layer, what, self.stand[name])

    def script(self, kind: str, chunk: int) -> Script:
        """What a turn of a kind does."""
        found, units = Script(), self.pieces(chunk)
        found.add(self.standing("gathered"), True)
        if kind == "forward":
            self._forward(found, units)
        elif kind == "weight":
            self._weights(found, units)
        else:
            self._back(found, units, kind == "backward")
        found.add(self.standing("gathered"), False)
        return found

    def _forward(self, found: Script, units: list[list[Piece]]) -> None:
        for unit in units:
            again = self.again(unit)
            if again:
                found.add(self.given(unit), True)
            for at, one in enumerate(unit):
                found.add(self.kept(one, again, at), True)
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
                found.add(self.kept(one, again, at), False)
                if again:
                    found.add(self.remade(one, at), False)
        found.add(self.standing("buffers"), False)

    def _back(self, found: Script, units: list[list[Piece]], whole: bool) -> None:
        """Rows from the last to the first; `whole` where the weights' gradients come with them."""
        moving: dict[Gradient, int] = {}
        on = False
        for unit in reversed(units):
            again = self.again(unit)
            moving = self._carried(found, unit[-1], moving)
            if again:
                for at, one in enumerate(unit):
                    found.add(self.remade(one, at), True)
                    found.clock += self.own["forward"][one.row]
            for at, one in reversed(list(enumerate(unit))):
                if one is not unit[-1]:
                    moving = self._carried(found, one, moving)
                wants = whole and not self.loss[one.row]  # a loss has no weights
                if on and not wants:
                    found.add(self.standing("buffers"), False)
                moving |= self._fresh(found, one, at, moving)
                if wants and not on:
                    found.add(self.standing("buffers"), True)
                on = wants
                own = self._one(self.rows.own)[one.row]
                core = self.tensor(("own", one.unit, at), "activations", one.layer, "made again",
                                   own)  # fmt: skip
                found.add(core, True)
                found.clock += self.own["data"][one.row] + whole * self.own["weight"][one.row]
                found.add(core, False)
                if whole:
                    found.add(self.kept(one, again, at), False)
                    if again:
                        found.add(self.remade(one, at), False)
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
        load, options = self.load, self.shown.options
        found = standing(load, options)
        for kind, name in (("weights", "stored"), ("gradients", "graded"), ("optimizer", "stated")):
            whole = float(np.broadcast_to(found.fixed[kind], (1, self.found.stages))[0, self.stage])
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
                slot = self.tensor((kind, row), kind, self.model.rows[row].name, kind, each)
                yield from [slot] * round(copies[row])
            yield self.tensor((kind, "factors"), kind, "factors of K-FAC", kind,
                              whole - held.sum() * scale if scale == 1 else 0.0)  # fmt: skip

    def timeline(self) -> Timeline:
        spans = [span for span in self.found.spans if span.stage == self.stage]
        scripts = {key: self.script(*key) for key in
                   dict.fromkeys((span.turn.kind, span.turn.chunk) for span in spans)}  # fmt: skip
        events = sum(len(scripts[span.turn.kind, span.turn.chunk].at) for span in spans)
        if events > MOST:
            raise refusal("memory", f"{events:,} allocations on a stage are too many to play",
                          "a plan with fewer micro-batches")  # fmt: skip
        stay = [slot for slot in self.weights() if slot is not None]
        parts: list[tuple[Array, ...]] = [_events(0.0, stay, True, -1, -1)]
        for number, span in enumerate(spans):
            one = scripts[span.turn.kind, span.turn.chunk]
            share = np.array(one.at) / (one.clock or 1.0)
            when = span.start + share * (span.end - span.start)
            parts.append(
                (
                    when,
                    np.array(one.slot, int),
                    np.array(one.comes, bool),
                    np.full(len(one.at), span.turn.micro),
                    np.full(len(one.at), number),
                )
            )
        sent = sum(one.exposed for one in self.found.sent["step"][self.stage])
        begin = float(self.found.done[self.stage]) + sent
        after = begin + float(self.found.update[self.stage])
        last = self.standing("update")
        if last is not None:
            parts += [_events(begin, [last], True, -1, -1), _events(after, [last], False, -1, -1)]
        seconds, slot, comes, micro, turn = (np.concatenate(each)
                                             for each in zip(*parts, strict=True))  # fmt: skip
        turns = tuple((span.turn.kind, span.turn.micro, span.turn.chunk) for span in spans)
        return Timeline(self.stage, seconds, slot, micro, comes, turn, turns, tuple(self.tensors),
                        max(after, self.found.end))  # fmt: skip


GRADIENTS = {"out": "gradient of what it made", "in": "gradient of what it was given",
             "fork": "gradient that waits at a fork"}  # fmt: skip


def _events(when: float, slots: list[int], comes: bool, micro: int, turn: int) -> tuple[Array, ...]:
    size = len(slots)
    return (np.full(size, when), np.array(slots, int), np.full(size, comes),
            np.full(size, micro), np.full(size, turn))  # fmt: skip


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

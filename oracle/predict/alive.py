"""Bytes of activations that a stage holds at the worst moment of its turns.

While a pass back runs through row r of unit u of a chunk there are

    Σ others in flight + Σ units before u, at rest + what is kept up to r, made again or not
                       + gradients of the two tensors of r, and of those that wait at a fork
                       + the workspace of its kernels

since a layer that runs back finds gone what those behind it kept (pytorch/pytorch,
torch/csrc/autograd/engine.cpp: `release_variables` after each node), and a unit whose tensors are
made again has them only while it runs back. A tensor that several rows read has a gradient from the
last of them on, which waits for those of the others. Where the gradient of the weights comes later,
all is kept until then. The last copy of a repeated row has least behind it.
It names `recompute`, whose kinds choose what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.plan.in_flight import OfStages, of_stages
from oracle.plan.plan import Plan
from oracle.plan.schedule import SCHEDULES
from oracle.plan.stages import Stages
from oracle.predict.carried import block_begins, given, received
from oracle.predict.played import Order, orders
from oracle.predict.row_bytes import (
    handed_rows,
    kept_by_operators,
    kept_rows,
    made_rows,
    working_rows,
)

# kinds of recomputation, as plans number them
NONE, SELECTIVE, FULL, OPERATORS, STAGE, BEST = range(6)
EARLY, LATE = ("forward", "loss", "input"), ("layers", "weight")  # before gradients, and with them
BACK = {"loss": "backward", "layers": "backward"}  # the turns that these are parts of


@dataclass(frozen=True, eq=False)
class Piece:
    """A kind of unit: a run of rows, and how often it has each."""

    rows: slice
    counts: Array
    last: Array  # of each of its rows, where its run of copies ends
    block: bool  # whether it is, or has, a block that can be made again


@lru_cache(masks.MODELS)
def pieces(model: Model) -> tuple[list[Piece], Array]:
    """The kinds of units, and which of them each unit is."""
    counts, _ = model.units
    kinds, unit = np.unique(counts, axis=0, return_inverse=True)
    segment = np.repeat(np.arange(len(model.segments)),
                        [one.stop - one.start for one in model.segments])  # fmt: skip
    found = []
    for one in kinds:
        rows = np.flatnonzero(one)
        mine = slice(int(rows[0]), int(rows[-1]) + 1)
        each, within = one[mine], segment[mine]
        ends = np.append((within[1:] != within[:-1]) | (each[1:] != each[:-1]) | (each[1:] < 2),
                         True)  # fmt: skip
        stops = np.flatnonzero(ends)
        last = stops[np.searchsorted(stops, np.arange(len(each)))]
        found.append(Piece(mine, each, last, bool(model.blocks[rows].any())))
    return found, unit.ravel()


@dataclass(frozen=True, eq=False)
class Rows:
    """Bytes of a micro-batch by row under a kind of recomputation, (kinds, rows) each."""

    kept: Array  # where nothing is made again
    rest: Array  # between the passes, in units that are made again
    own: Array  # more while the row itself runs back
    moving: Array  # gradients of its two tensors, and those that wait for others
    gone: Array  # what it made for those behind it alone
    given: Array  # its input
    output: Array  # what it makes
    again: bool  # units are made again, from their inputs
    held: Array  # share of what a stage has sent that stays there until its gradient comes

    @classmethod
    def of(cls, shard: Shard, mode: int, workspace: tuple[Array, Array] | None = None) -> Rows:
        model, micro = shard.model, shard.micro
        kept, none = kept_rows(shard), np.zeros((1, len(model)))
        core = masks.attention(model)
        outputs = micro * shard.y * shard.delta  # q, k, v in and the result stay
        given = micro * shard.x * shard.delta * np.ones(len(model))
        rest, own = kept, none
        if mode == SELECTIVE:
            own = np.maximum(kept - outputs, 0) * core
            rest = kept - own
        elif mode == FULL:
            rest = none
        elif mode == OPERATORS:
            rest = kept_by_operators(shard)
        again = mode in (FULL, OPERATORS)
        kept, rest, own, given = map(np.atleast_2d, (kept, rest, own, given))
        moving = working_rows(shard, workspace)
        handed, made = handed_rows(shard), made_rows(shard, model)
        borders = shard.software.borders
        held = borders.held / np.atleast_2d(shard.spread if borders.scattered else 1.0)
        return cls(kept, rest, own, moving, handed, given, made, again, held)


@dataclass(frozen=True, eq=False)
class Units:
    """The same by unit, (kinds, units) each.

    What is there while a pass runs through a unit, in it alone: real numbers are bytes of all,
    imaginary ones those of gradients among them, so that the larger is found with its parts.
    """

    rest: Array  # between the passes
    made: Array  # between the gradient of the input and that of the weights
    layers: Array  # a pass back, but for the loss
    loss: Array
    input: Array  # a pass back that gives nothing up

    @classmethod
    def of(cls, model: Model, rows: Rows) -> Units:
        kinds, unit = pieces(model)
        each = [_unit(model, rows, one) for one in kinds]
        width = max(len(part) for parts in each for part in parts)
        columns = [np.stack([np.broadcast_to(part, width) for part in parts], axis=-1)[:, unit]
                   for parts in zip(*each, strict=True)]  # fmt: skip
        return cls(*columns)


def _unit(model: Model, rows: Rows, one: Piece) -> tuple[Array, ...]:
    """Bytes of a kind of unit: at rest, made, and what layers, a loss and its input pass have."""
    again = rows.again and one.block
    kept, own, moving = (part[:, one.rows] for part in (rows.kept, rows.own, rows.moving))
    rest = rows.rest[:, one.rows] if again or not rows.again else kept
    given = rows.given[:, one.rows.start] if again else np.zeros(1)
    there = np.maximum(kept, rest) if again else rest
    made = (there * one.counts).sum(axis=-1)
    alone = np.cumsum(there, axis=-1)
    until = np.cumsum(there * one.counts, axis=-1)[:, one.last] - alone[:, one.last] + alone
    gone = np.minimum(rows.gone[:, one.rows], there)
    back = given[:, None] + until + own + moving - gone
    whole = given[:, None] + made[:, None] + own + moving
    loss, has = masks.losses(model)[one.rows], one.counts > 0
    return (
        given + (rest * one.counts).sum(axis=-1), made,
        _most(back, moving, has & ~loss), _most(back, moving, has & loss),
        _most(whole, moving, has),
    )  # fmt: skip


def _most(values: Array, moving: Array, some: Array) -> Array:
    """The largest of some rows, with its gradients."""
    if not some.any():
        return np.full(1, -np.inf + 0j)
    values, moving = np.broadcast_arrays(values[:, some], moving[:, some])
    at = values.argmax(axis=-1)[:, None]
    take = np.take_along_axis
    return np.asarray(take(values, at, -1)[:, 0] + 1j * take(moving, at, -1)[:, 0])


@dataclass(frozen=True, eq=False)
class Chunks:
    """What turns of a stage's chunks hold, (kinds, chunks of a stage, stages) each.

    At rest and `made` bytes; during turns of a kind of their own micro-batch, as in `Units`.
    """

    rest: Array
    made: Array
    turns: dict[str, Array]

    @classmethod
    def of(cls, stages: Stages, rows: Rows) -> Chunks:
        units, more = crossed(stages, rows, Units.of(stages.model, rows))
        through = np.cumsum(units.rest, axis=-1)
        before, behind = through - units.rest, np.cumsum(units.made, axis=-1)
        begin = stages.first(before)
        end = stages.closing(behind)

        def most(values: Array) -> Array:
            return stages.chunk(before + values, np.maximum, -np.inf) - begin

        rest, made = (stages.chunk(part) + more for part in (units.rest, units.made))
        rest = rest + (sent(stages, rows) if rows.again else 0.0)
        turns = {"forward": rest, "loss": most(units.loss) + more,
                 "layers": most(units.layers) + more,
                 "input": most(units.input - behind) + end + more, "weight": made}  # fmt: skip
        placed = {kind: stages.seated(part) for kind, part in turns.items()}
        return cls(stages.seated(rest), stages.seated(made), placed)

    @classmethod
    def under(
        cls, mode: int, shard: Shard, stages: Stages, workspace: tuple[Array, Array] | None
    ) -> Chunks:  # fmt: skip
        """Under a kind of recomputation; of units that choose for themselves, if all keep.

        A stage that is made again keeps what each chunk was given, and runs back as if all of it
        had been kept.
        """
        rows = Rows.of(shard, NONE if mode in (STAGE, BEST) else mode, workspace)
        found = cls.of(stages, rows)
        if mode != STAGE:
            return found
        first = stages.seated(stages.first(rows.given[:, stages.begin]))
        rest = first + stages.seated(sent(stages, rows))
        turns = {kind: rest if kind == "forward" else first + held
                 for kind, held in found.turns.items()}  # fmt: skip
        return cls(rest, found.made + first, turns)


def crossed(stages: Stages, rows: Rows, units: Units) -> tuple[Units, Array]:
    """Units, and what each chunk holds beside them of tensors that cross; of a chain nothing.

    Of a block that is cut into several units all are made again together, from what the first of a
    stage was given; a tensor that blocks are given is there once, until none of them wants it. A
    chunk that begins with such a block has received what the unit before would keep anyway.
    """
    none = np.zeros((1, stages.chunks))
    if not rows.again:
        if stages.chunks <= 1 or (stages.plain and not rows.held.any()):
            return units, none
        if stages.plain:  # the last chunk has sent nothing that stands in its place
            behind = np.minimum(rows.kept, rows.output)[:, stages.stop - 1]
            return units, np.pad(stages.handed(behind), [(0, 0), (1, 0)])
        return units, received(rows.output, stages)
    if stages.plain:
        twice = _twice(stages, rows)
        once = {name: getattr(units, name) - twice for name in ("rest", "layers", "loss", "input")}
        return replace(units, **once), stages.first(twice)
    remade = stages.counts @ stages.model.blocks > 0
    own = _begun(stages, rows)
    more = inputs(stages, rows) - own
    anew = units.made - (units.rest - own)  # what is made again beside what stayed
    running = np.cumsum(anew, axis=-1) - anew
    begins = np.broadcast_to(block_begins(stages), (max(len(running), len(stages)), anew.shape[1]))
    earlier = (running - np.take_along_axis(running + 0.0 * begins, begins, -1)) * remade
    return replace(
        units, rest=units.rest + more, layers=units.layers + earlier + more,
        loss=units.loss + earlier + more, input=units.input + earlier + more,
    ), none  # fmt: skip


def sent(stages: Stages, rows: Rows) -> Array:
    """(kinds, chunks) bytes of a micro-batch in flight that were sent on and not kept else.

    Of what is made again nothing is kept but what was sent, until its gradient is there.
    """
    if not rows.held.any() or stages.chunks <= 1:
        return np.zeros((1, stages.chunks))
    made = rows.output * rows.held * (stages.model.blocks if rows.again else 1.0)
    if stages.plain:
        return np.pad(stages.handed(made[:, stages.stop - 1]), [(0, 0), (0, 1)])
    crossed = stages.crossed
    return crossed.added(made, crossed.source, crossed.sent & crossed.next, stages.chunks)


def inputs(stages: Stages, rows: Rows) -> Array:
    """(kinds, units) bytes that units which are made again were given, each tensor once."""
    own = _begun(stages, rows)
    if stages.plain:
        return own - _twice(stages, rows)
    return given(rows.output, rows.kept, own[:, 0], stages)


def _twice(stages: Stages, rows: Rows) -> Array:
    """(kinds, units) bytes of those that the unit before keeps too, which is not made again."""
    remade = stages.counts @ stages.model.blocks > 0
    kept = np.minimum(rows.kept, rows.output)[:, stages.stop - 1] * ~remade
    return np.pad(kept[:, :-1], [(0, 0), (1, 0)]) * remade


def _begun(stages: Stages, rows: Rows) -> Array:
    """(kinds, units) bytes of the first tensor that each unit which is made again is given."""
    return rows.given[:, stages.begin] * (stages.counts @ stages.model.blocks > 0)


def peaks(
    shard: Shard, plan: Plan, alike: Array, stages: Stages,
    workspace: tuple[Array, Array] | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """(plans, p) each: before gradients of weights are on their way, and while they are.

    `workspace` are bytes that each row's kernels take while they run, forward and backward. Real
    numbers are bytes of activations, of their gradients and of workspace, imaginary ones of the
    latter two.
    """
    trains = not shard.model.training.forward  # else nothing is kept, nor made again
    mode = plan.axis("recompute").mode[:, 0].astype(int) * trains
    present, mine = np.unique(mode, return_inverse=True)
    parts = [Chunks.under(each, shard, stages, workspace) for each in present.tolist()]
    width = max(len(one.rest) for one in parts)
    where = mine.ravel() * width + (alike if width > 1 else 0)
    every, kind = orders(plan)
    # alone a device runs one back after the other, whatever its order is called
    every = [one if one.stages > 1 else Order("1f1b", 1, 1, one.chunks) for one in every]
    beside, in_turn = np.zeros((len(every), stages.devices)), np.zeros(len(every), bool)
    for number, order in enumerate(every):
        if order.chunks == 1 and SCHEDULES[order.schedule].ahead is not None:
            in_turn[number], beside[number, : order.stages] = True, _beside(order)
    found = _in_turn(parts, where, width, beside[kind])
    if not in_turn.all():
        _by_state(parts, where, width, every, np.where(in_turn[kind], -1, kind), found)
    return found[0], found[1]


def _by_state(
    parts: Sequence[Chunks], where: Array, width: int, every: Sequence[Order], kind: Array,
    found: Array,
) -> None:  # fmt: skip
    """Of stages with several chunks, or whose passes back are apart: the most of all states that
    their turns begin in.
    """
    held = {turn: _columns([one.turns[turn] for one in parts], width) for turn in (*EARLY, *LATE)}
    rest, made = (_columns(each, width) for each in ([one.rest for one in parts],
                                                     [one.made for one in parts]))  # fmt: skip
    for number in np.unique(kind[kind >= 0]).tolist():
        rows, order = np.flatnonzero(kind == number), every[number]
        few, back = np.unique(where[rows], return_inverse=True)
        chunks, stages = slice(order.chunks), slice(order.stages)
        others = rest[few][:, chunks, stages], made[few][:, chunks, stages]
        states = of_stages(*order)
        for moment, turns in enumerate((EARLY, LATE)):
            each = [_during(others, held[turn][few], states[of])
                    for turn in turns if (of := BACK.get(turn, turn)) in states]  # fmt: skip
            found[moment, rows, stages] = np.maximum.reduce(each)[back.ravel()]


def _beside(order: Order) -> list[int]:
    """Micro-batches in flight beside the one that runs back, at most, by stage.

    Where each has a chunk, and passes forward and back in turn.
    """
    _, p, S, _ = order
    ahead = SCHEDULES[order.schedule].ahead
    return [min(S - 1, ahead(stage, p, S, 1)) for stage in range(p)] if ahead else []


def _in_turn(parts: Sequence[Chunks], where: Array, width: int, beside: Array) -> Array:
    """(2, plans, devices) of stages with a chunk each that run forward and back in turn."""
    rest = _columns([one.rest for one in parts], width)[where, 0]
    each = [_columns([one.turns[turn] for one in parts], width)[where, 0]
            for turn in ("loss", "layers")]  # fmt: skip
    return np.asarray(beside * rest + np.stack(each))


def _columns(parts: Sequence[Array], width: int) -> Array:
    """Arrays of several kinds of recomputation, one below the other."""
    return np.concatenate([np.broadcast_to(one, (width, *one.shape[1:])) for one in parts])


def _during(others: tuple[Array, Array], own: Array, states: OfStages) -> Array:
    """(plans, stages) the most that is there during turns of a kind."""
    rest, made = (each.transpose(2, 0, 1) for each in others)  # (stages, plans, chunks)
    stage = np.arange(len(states.chunk))[:, None]
    held = rest @ states.kept + own[:, states.chunk, stage].swapaxes(0, 1)
    if states.made.any():
        held = held + made @ states.made
    return np.asarray(np.where(states.some, held.max(axis=-1).T, -np.inf))

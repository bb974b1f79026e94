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
from oracle.plan.strategies.recompute import BEST, NONE, STAGE
from oracle.predict.carried import block_begins, given, received
from oracle.predict.played import Order, orders
from oracle.predict.row_bytes import Rows

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
                        [run.stop - run.start for run in model.segments])  # fmt: skip
    unit_kinds = []
    for counts_of_kind in kinds:
        rows = np.flatnonzero(counts_of_kind)
        columns = slice(int(rows[0]), int(rows[-1]) + 1)
        repeats, within = counts_of_kind[columns], segment[columns]
        unlike = (within[1:] != within[:-1]) | (repeats[1:] != repeats[:-1])
        ends = np.append(unlike | (repeats[1:] < 2), True)
        stops = np.flatnonzero(ends)
        last = stops[np.searchsorted(stops, np.arange(len(repeats)))]
        unit_kinds.append(Piece(columns, repeats, last, bool(model.blocks[rows].any())))
    return unit_kinds, unit.ravel()


@dataclass(frozen=True, eq=False)
class Units:
    """Bytes of a micro-batch by unit, (kinds, units) each.

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
        bytes_by_kind = [_unit(model, rows, piece) for piece in kinds]
        width = max(len(part) for parts in bytes_by_kind for part in parts)
        columns = [np.stack([np.broadcast_to(part, width) for part in parts], axis=-1)[:, unit]
                   for parts in zip(*bytes_by_kind, strict=True)]  # fmt: skip
        return cls(*columns)


def _unit(model: Model, rows: Rows, piece: Piece) -> tuple[Array, ...]:
    """Bytes of a kind of unit: at rest, made, and what layers, a loss and its input pass have.

    In a chain a unit whose input is no smaller than what it keeps is not made again.
    """
    remakes = rows.again and piece.block
    kept_bytes, own_bytes, moving = (
        part[:, piece.rows] for part in (rows.kept, rows.own, rows.moving)
    )
    rest = rows.rest[:, piece.rows] if remakes or not rows.again else kept_bytes
    input_bytes = rows.given[:, piece.rows.start] if remakes else np.zeros(1)
    if remakes and model.pieces.links.plain:
        less = saves(rows, piece.rows.start, piece.rows, piece.counts)
        rest = np.where(less[:, None], rest, kept_bytes)
        input_bytes = np.where(less, input_bytes, 0.0)
    present = np.maximum(kept_bytes, rest) if remakes else rest
    made_bytes = (present * piece.counts).sum(axis=-1)
    alone = np.cumsum(present, axis=-1)
    until = np.cumsum(present * piece.counts, axis=-1)[:, piece.last] - alone[:, piece.last] + alone
    gone = np.minimum(rows.gone[:, piece.rows], present)
    back = input_bytes[:, None] + until + own_bytes + moving - gone
    all_kept = input_bytes[:, None] + made_bytes[:, None] + own_bytes + moving
    loss, has = masks.losses(model)[piece.rows], piece.counts > 0
    return (
        input_bytes + (rest * piece.counts).sum(axis=-1), made_bytes,
        _largest(back, moving, has & ~loss), _largest(back, moving, has & loss),
        _largest(all_kept, moving, has),
    )  # fmt: skip


def saves(rows: Rows, first: int, unit: slice | Sequence[int], counts: Array) -> Array:
    """(kinds,) whether a unit that is made again from the input of its first row holds less."""
    rest, kept = ((part[:, unit] * counts).sum(axis=-1) for part in (rows.rest, rows.kept))
    return np.asarray(rows.given[:, first] + rest < kept)


def _largest(values: Array, moving: Array, rows: Array) -> Array:
    """The largest of some rows with its gradients; of rows that tie, that with more of them."""
    if not rows.any():
        return np.full(1, -np.inf + 0j)
    return np.asarray(np.max(values[:, rows] + 1j * moving[:, rows], axis=-1))


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

        def most_within(values: Array) -> Array:
            return stages.chunk(before + values, np.maximum, -np.inf) - begin

        rest, made_bytes = (stages.chunk(part) + more for part in (units.rest, units.made))
        rest = rest + (sent(stages, rows) if rows.again else 0.0)
        turns = {"forward": rest, "loss": most_within(units.loss) + more,
                 "layers": most_within(units.layers) + more,
                 "input": most_within(units.input - behind) + end + more,
                 "weight": made_bytes}  # fmt: skip
        placed = {kind: stages.seated(part) for kind, part in turns.items()}
        return cls(stages.seated(rest), stages.seated(made_bytes), placed)

    @classmethod
    def under(
        cls, modes: Sequence[int], shard: Shard, stages: Stages,
        workspace: tuple[Array, Array] | None,
    ) -> list[Chunks]:  # fmt: skip
        """Under each kind of recomputation; of units that choose for themselves, if all keep."""
        rows = Rows.of(shard, NONE, workspace)
        usual = cls.of(stages, rows) if {*modes} & {NONE, STAGE, BEST} else None
        by_mode = []
        for mode in modes:
            if mode == STAGE:
                assert usual is not None
                by_mode.append(usual.made_again(stages, rows))
            else:
                other = rows.under(shard, mode)
                by_mode.append(usual if other is rows and usual else cls.of(stages, other))
        return by_mode

    def made_again(self, stages: Stages, rows: Rows) -> Chunks:
        """Of stages that are made again: they keep what each chunk was given, and run back as if
        all of it had been kept.
        """
        first = stages.seated(stages.first(rows.given[:, stages.begin]))
        rest = first + stages.seated(sent(stages, rows))
        turns = {kind: rest if kind == "forward" else first + chunk_bytes
                 for kind, chunk_bytes in self.turns.items()}  # fmt: skip
        return Chunks(rest, self.made + first, turns)


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
    first_input = _begun(stages, rows)
    more = inputs(stages, rows) - first_input
    anew = units.made - (units.rest - first_input)  # what is made again beside what stayed
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
    sent_bytes = rows.output * rows.held * (stages.model.blocks if rows.again else 1.0)
    if stages.plain:
        return np.pad(stages.handed(sent_bytes[:, stages.stop - 1]), [(0, 0), (0, 1)])
    crossed = stages.crossed
    return crossed.added(sent_bytes, crossed.source, crossed.sent & crossed.next, stages.chunks)


def inputs(stages: Stages, rows: Rows) -> Array:
    """(kinds, units) bytes that units which are made again were given, each tensor once."""
    first_input = _begun(stages, rows)
    if stages.plain:
        return first_input - _twice(stages, rows)
    return given(rows.output, rows.kept, first_input[:, 0], stages)


def _twice(stages: Stages, rows: Rows) -> Array:
    """(kinds, units) bytes of those that the unit before keeps too, which is not made again."""
    remade = stages.counts @ stages.model.blocks > 0
    kept_before = np.minimum(rows.kept, rows.output)[:, stages.stop - 1] * ~remade
    return np.pad(kept_before[:, :-1], [(0, 0), (1, 0)]) * remade


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
    present, mode_number = np.unique(mode, return_inverse=True)
    parts = Chunks.under(present.tolist(), shard, stages, workspace)
    width = max(len(part.rest) for part in parts)
    shard_row = mode_number.ravel() * width + (alike if width > 1 else 0)
    every, kind = orders(plan)
    # alone a device runs one back after the other, whatever its order is called
    every = [part if part.stages > 1 else Order("1f1b", 1, 1, part.chunks) for part in every]
    flights, in_turn = np.zeros((len(every), stages.devices)), np.zeros(len(every), bool)
    for number, order in enumerate(every):
        if order.chunks == 1 and SCHEDULES[order.schedule].ahead is not None:
            in_turn[number], flights[number, : order.stages] = True, _flights(order)
    peak_bytes = _in_turn(parts, shard_row, width, flights[kind])
    if not in_turn.all():
        _by_state(parts, shard_row, width, every, np.where(in_turn[kind], -1, kind), peak_bytes)
    return peak_bytes[0], peak_bytes[1]


def _by_state(
    parts: Sequence[Chunks], shard_row: Array, width: int, every: Sequence[Order], kind: Array,
    peak_bytes: Array,
) -> None:  # fmt: skip
    """Of stages with several chunks, or whose passes back are apart: the most of all states that
    their turns begin in.
    """
    turn_bytes = {
        turn: _columns([part.turns[turn] for part in parts], width) for turn in (*EARLY, *LATE)
    }
    rest, made_bytes = (_columns(by_turn, width) for by_turn in ([part.rest for part in parts],
                                                     [part.made for part in parts]))  # fmt: skip
    for number in np.unique(kind[kind >= 0]).tolist():
        rows, order = np.flatnonzero(kind == number), every[number]
        shard_rows, back = np.unique(shard_row[rows], return_inverse=True)
        chunks, stages = slice(order.chunks), slice(order.stages)
        in_flight_bytes = (
            rest[shard_rows][:, chunks, stages],
            made_bytes[shard_rows][:, chunks, stages],
        )
        states = of_stages(*order)
        for moment, turns in enumerate((EARLY, LATE)):
            by_turn = [_during(in_flight_bytes, turn_bytes[turn][shard_rows], states[back_turn])
                    for turn in turns if (back_turn := BACK.get(turn, turn)) in states]  # fmt: skip
            peak_bytes[moment, rows, stages] = np.maximum.reduce(by_turn)[back.ravel()]


def _flights(order: Order) -> list[int]:
    """Micro-batches in flight beside the one that runs back, at most, by stage.

    Where each has a chunk, and passes forward and back in turn.
    """
    _, p, S, _ = order
    ahead = SCHEDULES[order.schedule].ahead
    return [min(S - 1, ahead(stage, p, S, 1)) for stage in range(p)] if ahead else []


def _in_turn(parts: Sequence[Chunks], shard_row: Array, width: int, flights: Array) -> Array:
    """(2, plans, devices) of stages with a chunk each that run forward and back in turn."""
    rest = _columns([part.rest for part in parts], width)[shard_row, 0]
    turn_bytes = [_columns([part.turns[turn] for part in parts], width)[shard_row, 0]
            for turn in ("loss", "layers")]  # fmt: skip
    return np.asarray(flights * rest + np.stack(turn_bytes))


def _columns(parts: Sequence[Array], width: int) -> Array:
    """Arrays of several kinds of recomputation, one below the other."""
    return np.concatenate([np.broadcast_to(part, (width, *part.shape[1:])) for part in parts])


def _during(in_flight_bytes: tuple[Array, Array], turn_bytes: Array, states: OfStages) -> Array:
    """(plans, stages) the most that is there during turns of a kind."""
    rest, made_bytes = (
        in_flight.transpose(2, 0, 1) for in_flight in in_flight_bytes
    )  # (stages, plans, chunks)
    stage = np.arange(len(states.chunk))[:, None]
    state_bytes = rest @ states.kept + turn_bytes[:, states.chunk, stage].swapaxes(0, 1)
    if states.made.any():
        state_bytes = state_bytes + made_bytes @ states.made
    return np.asarray(np.where(states.some, state_bytes.max(axis=-1).T, -np.inf))

"""What each unit does with its activations where the room on a device decides, and what it costs.

It names `recompute` and `offload`: of plans with `recompute:best`, or with activations beside the
device, each stage's units keep theirs, send them out or make them again (`oracle.plan.unit_choice`)
under the room that all else leaves. Their copies are priced by the passes as they are then played,
made longer by all messages that are looked at before them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from oracle.models import masks
from oracle.models.shard import Array
from oracle.network.collectives import Message
from oracle.network.host import link_line
from oracle.plan.in_flight import beside
from oracle.plan.mesh import Slice
from oracle.plan.out_of_core import Chain, Flags, Played, loads, needed, play, resident
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.plan.strategies.offload import FAULTS
from oracle.plan.strategies.recompute import (
    BEST,
    FULL,
    NONE,
    OPERATORS,
    SELECTIVE,
    Recompute,
    recomputed,
)
from oracle.plan.unit_choice import choose, same, words
from oracle.predict import alive, memory
from oracle.predict.exchange import Priced
from oracle.predict.offers import NOTHING, menu_of, senders
from oracle.predict.overlap import Cover
from oracle.predict.played import orders
from oracle.predict.row_bytes import Rows, kept_by_operators, kept_rows
from oracle.predict.taken_apart import finer
from oracle.predict.workload import Workload, chooses
from oracle.spec.options import Options
from oracle.spec.system import System


@dataclass(frozen=True)
class Choice:
    """What the units of plans that choose do, c of them: chains of (c · p, units of a stage)."""

    at: Array  # (c,) which of the distinct workloads they are
    size: int  # how many workloads there are
    stages: int
    unit: Array  # (c, p, units) the model's unit that each is; -1 of none
    chain: Chain
    away: Flags  # (c · p, units)
    made: Flags
    played: Played

    def spread(self, values: Array) -> Array:
        """(c · p,) → (u, p): nothing of plans that do not choose."""
        stage_values = np.zeros((self.size, self.stages))
        stage_values[self.at] = values.reshape(len(self.at), self.stages)
        return stage_values

    def remade(self, workload: int) -> Array | None:
        """The share of each unit's pass forward that is made again, where it chooses."""
        rows_of_choice = np.flatnonzero(self.at == workload)
        if not len(rows_of_choice):
            return None
        units = self.unit[rows_of_choice[0]].ravel()
        rows = slice(rows_of_choice[0] * self.stages, (rows_of_choice[0] + 1) * self.stages)
        number = int(units.max()) + 1
        whole_seconds, remade_seconds = (
            np.bincount(units[units >= 0], seconds[rows].ravel()[units >= 0], number)
            for seconds in (self.chain.forward * np.ones_like(self.made),
                         self.chain.remake * self.made)
        )  # fmt: skip
        return np.divide(
            remade_seconds, whole_seconds, out=np.zeros(number), where=whole_seconds > 0
        )

    @cached_property
    def again(self) -> Array:
        """(u, p) seconds that units are made again in a micro-batch, where each chooses."""
        return self.spread(self.played.again)

    @cached_property
    def left(self) -> memory.Left:
        """What lies on the device and beside it."""
        chain, peak = self.chain, self.played.most
        flight = np.broadcast_to(chain.flight[:, 0], peak.shape)
        moved = np.asarray((self.away | self.made).any(axis=-1))
        ahead, back = loads(chain, self.away, self.made)
        busiest = np.argmax(np.maximum(ahead, back), axis=-1)[:, None]
        work = np.take_along_axis(np.where(back > ahead, chain.work, 0.0), busiest, -1)[:, 0]
        return memory.Left(
            self.spread(moved) > 0, self.spread(peak) + 1j * self.spread(work),
            self.spread(self.played.away * flight),
        )  # fmt: skip

    def words(self, workload: int) -> tuple[str, ...]:
        """The word of each of the model's units under one workload; () if it does not choose.

        `parts` of one that is taken apart, whose parts do not all do the same.
        """
        rows_of_choice = np.flatnonzero(self.at == workload)
        if not len(rows_of_choice):
            return ()
        units = self.unit[rows_of_choice[0]].ravel()
        rows = slice(rows_of_choice[0] * self.stages, (rows_of_choice[0] + 1) * self.stages)
        part_words = words(self.away[rows].ravel(), self.made[rows].ravel())
        unit_words: dict[int, set[str]] = {}
        for unit, word in zip(units.tolist(), part_words, strict=True):
            unit_words.setdefault(unit, set()).add(word)
        return tuple(unit_set.pop() if len(unit_set) == 1 else "parts"
                     for unit, unit_set in sorted(unit_words.items()) if unit >= 0)  # fmt: skip


def choice_of(
    load: Workload, plan: Plan, shard_row: Array, passes: tuple[Array, Array], system: System,
    options: Options,
) -> Choice | None:  # fmt: skip
    """The choice of plans that have any; `passes` are seconds of each stage's forward and backward
    pass, (u, p), and `shard_row` says which workload each plan has.
    """
    choosing = chooses(plan)[:, 0]
    if load.shard.ideal or not choosing.any() or load.shard.model.training.forward:
        return None
    workloads, first = np.unique(shard_row[choosing], return_index=True)
    choosing_plans = plan[np.flatnonzero(choosing)[first]]
    unit = units_of(load, workloads)
    chain = chain_of(load, choosing_plans, workloads, unit, passes, system, options)
    if options.units:  # as they ran, with no more room than that takes
        unit_words = np.array([*options.units, "keep"])[unit].reshape(-1, unit.shape[-1])
        away, remade = unit_words == "offload", unit_words == "recompute"
        chain = replace(chain, room=needed(chain, away, remade)[:, None])
    else:
        if options.software.offload.units == "whole":
            chain = replace(chain, fixed=np.ones((1, 1)))
        else:
            says = choosing_plans.axis("recompute").says
            plain = says("mode", "none") | says("mode", "best")
            unit, chain = finer(chain, unit, load, workloads, plain[:, 0])
        away, remade = choose(chain, load.stages.devices)
    return Choice(workloads, len(load.kinds.row), load.stages.devices, unit, chain, away, remade,
                  play(chain, away, remade))  # fmt: skip


def units_of(load: Workload, workloads: Array) -> Array:
    """(c, p, most) the units that sit on each stage, in their order; -1 where there are no more."""
    owner, kind = load.stages.owner, load.kinds.row[workloads]
    sits = owner[:, None, :] == np.arange(load.stages.devices)[:, None]
    unit_count = int(sits.sum(axis=-1).max())
    order = np.argsort(~sits, axis=-1, kind="stable")[..., :unit_count]
    return np.where(np.take_along_axis(sits, order, -1), order, -1)[kind]


@dataclass(frozen=True)
class _Units:
    """Brings what is of all units, or of stages, into the rows of chains: (c · p, …)."""

    kind: Array  # (c,) of rows
    kinds: int
    unit: Array
    p: int

    def own(self, units: Array) -> Array:
        """(kinds, c or one, units) → (c · p, units of a stage)."""
        if len(units) == self.kinds != len(self.kind):
            units = units[self.kind]
        units = np.broadcast_to(units, (len(self.kind), units.shape[-1]))
        of_stage = np.take_along_axis(units[:, None, :], np.maximum(self.unit, 0), -1)
        return np.where(self.unit >= 0, of_stage, 0.0).reshape(len(self.kind) * self.p, -1)

    def column(self, values: Any) -> Array:
        """(c, p or 1) → (c · p, 1)."""
        return np.broadcast_to(values, (len(self.kind), self.p)).reshape(-1, 1).astype(float)


def chain_of(
    load: Workload, choosing_plans: Plan, workloads: Array, unit: Array,
    passes: tuple[Array, Array], system: System, options: Options,
) -> Chain:  # fmt: skip
    """The units of each stage of plans that choose, and what there is for them."""
    shard, stages, times, model = load.shard, load.stages, load.times, load.shard.model
    to = _Units(load.kinds.row[workloads], len(load.kinds.first), unit, stages.devices)
    in_chains, column = to.own, to.column
    says = choosing_plans.axis("recompute").says
    block = stages.counts @ model.blocks > 0
    units = stages.units(kept_rows(shard))
    given_bytes = (shard.micro * shard.x * shard.delta * np.ones(len(model)))[:, stages.begin]
    kept_bytes = in_chains(units)
    small = np.minimum(in_chains(given_bytes), kept_bytes)
    is_block = in_chains(1.0 * block[None]) > 0
    remake_seconds = {kind: stages.units(times.forward * part)
                      for kind, part in recomputed(model).items()}  # fmt: skip
    forward, backward = (stages.units(seconds)
                         for seconds in (times.forward, times.data + times.weight))  # fmt: skip
    # a pass has more to do than its rows: what ZeRO-3 gathers is put in its place
    scale = []
    for pass_seconds, seconds in zip(passes, (forward, backward), strict=True):
        rows = load.kinds.spread(stages.gather(seconds))[workloads]
        scale.append(np.divide(pass_seconds[workloads], rows, out=np.ones(rows.shape),
                               where=rows > 0))  # fmt: skip
    added, less, work = np.zeros_like(kept_bytes), kept_bytes, in_chains(_lives(load))
    for kind, part in (("selective", SELECTIVE), ("operators", OPERATORS), ("full", FULL)):
        if (asked_for := column(says("mode", kind)) > 0).any():
            added = np.where(asked_for, in_chains(remake_seconds[part]), added)
            stays = small if kind == "full" else in_chains(_kept_under(kind, load))
            less = np.where(asked_for, np.where(is_block, stays, kept_bytes), less)
            if kind != "selective":
                work = np.where(asked_for, work + kept_bytes * is_block, work)
    chain = Chain(
        in_chains(forward) * column(scale[0]), in_chains(backward) * column(scale[1]) + added,
        less, small, work, in_chains(remake_seconds[BEST]), is_block,
        is_block & (column(says("mode", "best")) > 0),
        *(column(np.zeros((1, 1))) for _ in range(6)),
    )  # fmt: skip
    flight = in_flight(choosing_plans, stages)
    chain = replace(chain, flight=column(flight), **_links(chain, choosing_plans, column, system))
    room, over = memory.room(load, keeping(choosing_plans), workloads, system, options)
    # nothing is sent out or made again: rows that run back give room to those before them
    fits = (column(over) >= 0) & (less == kept_bytes).all(axis=-1, keepdims=True)
    room = np.where(fits, np.inf, column(room))
    return replace(chain, room=room, **_may(chain, choosing_plans, load, to))


def in_flight(plan: Plan, stages: Stages) -> Array:
    """(plans, p) micro-batches that lie on each stage at once, the one that runs included."""
    every, kind = orders(plan)
    flights = np.ones((len(every), stages.devices))
    for flight, order in zip(flights, every, strict=True):
        if order.stages > 1:
            chunks = [max((states.kept + states.made).sum(axis=-1).max()
                          for states in turns.values()) for turns in beside(*order)]  # fmt: skip
            flight[: order.stages] = (np.array(chunks) + 1) / order.chunks
    return flights[kind]


def keeping(plan: Plan) -> Plan:
    """The same plans with nothing made again."""
    recompute: Recompute = plan.axis("recompute")
    keeps_all = replace(recompute, mode=0 * recompute.mode)
    axes = (keeps_all if axis is recompute else axis for axis in plan.axes)
    return Plan(plan.batch, tuple(axes))


def _lives(load: Workload) -> Array:
    """(kinds, units) bytes that live only while each unit runs back, at most."""
    rows = Rows.of(load.shard, NONE, load.times.workspace)
    units = alive.Units.of(load.shard.model, rows)
    live_bytes = np.maximum(units.layers.real, units.loss.real)
    return np.asarray(np.maximum(live_bytes - units.rest, 0.0))


def _may(chain: Chain, choosing_plans: Plan, load: Workload, to: _Units) -> dict[str, Flags]:
    """Units that may leave or be made again: blocks; where blocks are unlike, all but the loss."""
    away = to.column(choosing_plans.axis("offload").of("activations")) > 0
    blocks, may_remake = chain.free, chain.able.any(axis=-1, keepdims=True)
    alike = same(replace(chain, ahead=chain.ahead + np.inf)) & blocks.any(axis=-1)
    losses = load.stages.counts @ masks.losses(load.shard.model) > 0
    every = (chain.kept > 0) & ~(to.own(1.0 * losses[None]) > 0)
    full = to.column(choosing_plans.axis("recompute").says("mode", "full")) > 0
    may = np.where(alike[:, None] | full, blocks, every)
    return {"free": may & away, "able": may & may_remake}


def _kept_under(kind: str, load: Workload) -> Array:
    """Bytes that each unit keeps where recomputation leaves it parts of them."""
    shard, stages, model = load.shard, load.stages, load.shard.model
    kept_bytes, core = kept_rows(shard), masks.attention(model)
    outputs = shard.micro * shard.y * shard.delta
    if kind == "selective":
        return stages.units(np.where(core, np.minimum(kept_bytes, outputs), kept_bytes))
    given_bytes = (shard.micro * shard.x * shard.delta * np.ones(len(model)))[:, stages.begin]
    return np.asarray(stages.units(kept_by_operators(shard)) + given_bytes)


def _links(chain: Chain, choosing_plans: Plan, column: Any, system: System) -> dict[str, Array]:
    """Seconds that a byte takes either way, each copy's start included, and how far ahead."""
    offload = choosing_plans.axis("offload")
    host, disk = (link_line(system, over, "activations") for over in ("host", "disk"))
    per_byte = np.where(offload.says("to", "disk"), max(host.per_byte, disk.per_byte),
                        host.per_byte)  # fmt: skip
    managed = offload.says("how", "managed")
    per_byte = column(np.where(managed, per_byte / FAULTS, per_byte))
    total = np.maximum(chain.kept.sum(axis=-1, keepdims=True), 1.0)
    seconds_per_byte = per_byte + host.start * (chain.kept > 0).sum(axis=-1, keepdims=True) / total
    prefetch = offload.prefetch
    return {"out": seconds_per_byte, "back": seconds_per_byte, "managed": column(managed),
            "ahead": column(np.where(prefetch > 0, prefetch, np.inf))}  # fmt: skip


def price_chosen(
    message: Message, axis: str, load: Workload, choice: Choice, cover: Cover, system: System,
    options: Options,
) -> Priced:  # fmt: skip
    """Copies of activations: those of units that send out, and what the passes wait for them."""
    when = message.when.removeprefix("unit ")
    sender_groups = senders(message, load.groups)
    menu = menu_of(message, sender_groups, system, options, lambda *_: NOTHING)
    spread, link = load.kinds.spread, menu[0][0]
    sends = np.broadcast_to(spread(np.atleast_2d(message.calls)), (choice.size, 1)) > 0
    chain = stretched(choice, load, cover)
    played = play(chain, choice.away, choice.made)
    waits = played.forward if when == "forward" else played.backward - played.again
    plain = chain.forward if when == "forward" else chain.backward
    seconds_per_byte = chain.out if when == "forward" else chain.back
    sent = resident(choice.chain, choice.away, choice.made)[1]
    seconds = choice.spread(sent.sum(axis=-1) * seconds_per_byte[:, 0]) * sends
    slower = choice.spread(sent.sum(axis=-1)) * _crowded(when, load, choice, system)
    exposed = (choice.spread(np.maximum(waits - plain.sum(axis=-1), 0.0)) + slower) * sends
    count = choice.spread((sent > 0).sum(axis=-1) * 1.0) * sends
    exposed = np.minimum(exposed, seconds)
    cover.took(when, exposed, seconds, over=message.over)
    launches = count * options.software.host.sending(system)
    cover.show(when, exposed, launches, message.over)
    if when == "backward":
        cover.show("input", exposed, launches, message.over)
    every = np.zeros(choice.size, int)
    alone = Slice(sender_groups.patterns, every, np.ones((choice.size, 1)))
    return Priced(
        message, axis, alone, menu, when, np.ones(choice.size),
        lambda: choice.spread(sent.max(axis=-1)) * sends, count, launches, seconds, exposed, {},
        np.ones(choice.size), every, (link.algorithm,), (link.full,),
        np.full(choice.size, link.uncertainty), seconds * link.short * (exposed > 0),
        (link.origin,), np.ones(choice.size, bool), logged=every > 0, between=every > 0,
    )  # fmt: skip


def _crowded(when: str, load: Workload, choice: Choice, system: System) -> Array:
    """(u, p) seconds by which a byte that is copied beside a pass makes that longer.

    It is read from or written to the device's own memory: kernels that memory bounds wait as long.
    """
    stages, times, device = load.stages, load.times, system.device
    pass_seconds = times.forward if when == "forward" else times.data + times.weight
    bound = pass_seconds * masks.streams(load.shard.model)
    bound_seconds, every = (
        load.kinds.spread(stages.gather(stages.units(part))) for part in (bound, pass_seconds)
    )
    share = np.divide(bound_seconds, every, out=np.zeros_like(every), where=every > 0)
    return np.asarray(share / device.memory_bandwidth * np.ones((choice.size, choice.stages)))


def stretched(choice: Choice, load: Workload, cover: Cover) -> Chain:
    """The chain with passes as long as all messages make them that were looked at before."""
    chain, stages = choice.chain, choice.stages

    def longer(name: str) -> Array:
        shape = (choice.size, stages)
        work, shown_seconds = (np.broadcast_to(by_pass[name], shape)[choice.at].reshape(-1, 1)
                       for by_pass in (cover.work, cover.shown))  # fmt: skip
        host_seconds = cover.own.get(("host", name), np.zeros(shape))
        host_seconds = np.broadcast_to(host_seconds, shape)[choice.at].reshape(-1, 1)
        times_longer = np.divide(
            work + shown_seconds - host_seconds, work, out=np.ones_like(work), where=work > 0
        )
        return np.asarray(times_longer)

    return replace(chain, forward=chain.forward * longer("forward"),
                   backward=chain.backward * longer("backward"))  # fmt: skip

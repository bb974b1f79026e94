"""Plans in, estimate out: the one path every prediction takes, for one plan or ten million.

    split   every axis cuts the shard                 oracle.plan.strategies
    price   the machine prices what is left           oracle.kernels
    talk    every axis says what it must exchange     oracle.plan.strategies
    price   the network prices the messages           oracle.network, oracle.predict.exchange
    add up  over layers, micro-batches and stages     oracle.predict.step, oracle.predict.memory

Rows of a table that differ only in *when* things happen share the same prices: each distinct
shard is priced once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.kernels.passes import Passes
from oracle.kernels.provenance import provenance
from oracle.kernels.rows import passes
from oracle.kernels.slowest import in_step
from oracle.models.model import Model
from oracle.models.shard import Array, Shard, serial
from oracle.plan.mesh import Groups, distinct
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.plan.strategies import Rule
from oracle.predict import memory
from oracle.predict.exchange import Exchange, Lines, Priced, price
from oracle.predict.limits import limits
from oracle.predict.overlap import Cover
from oracle.predict.step import Step, step, work_of
from oracle.predict.uncertainty import Sources
from oracle.spec.options import Options
from oracle.spec.system import System

BLOCK = 8192  # plans at a time, so that memory stays flat and temporaries in cache
SPAN = 2**18  # plans among which those that share a pipeline's shape are looked for


@dataclass(frozen=True)
class Block:
    """The estimate of some plans, before it is joined to a whole."""

    plan: Plan
    shard: Shard  # what a device of each distinct plan is left with
    stages: Stages
    step: Step
    held: memory.Held
    rules: list[Rule]

    @property
    def seconds(self) -> Array:
        return self.step.seconds

    @property
    def deviation(self) -> Array:
        return self.step.uncertainty.deviation

    @property
    def exchange(self) -> list[Exchange]:
        return self.step.exchange

    @property
    def feasible(self) -> Array:
        return np.logical_and.reduce([rule.wanted <= rule.allowed for rule in self.rules])

    def broken(self, row: int) -> tuple[str, ...]:
        """Every limit that one plan breaks, in words."""
        pairs = ((rule, float(rule.wanted[row]), float(rule.allowed[row])) for rule in self.rules)
        return tuple(rule.says(wanted, most) for rule, wanted, most in pairs if not wanted <= most)

    def origin(self, row: int) -> dict[str, dict[str, Any]]:
        """Where each part of one plan comes from, and whether it lies outside what was measured.

        Bytes are `counted` from shapes, but for what libraries and allocators keep: assumed.
        """
        at, parts = int(self.step.same[row]), ("forward", "backward", "update")
        found = {
            name: each.to_dict(at)
            for name, each in zip(parts, self.step.uncertainty.known, strict=True)
        }
        held = {kind: float(values[row]) for kind, values in self.held.kinds.items()}
        kept = sum(held[kind] for kind in memory.ASSUMED) / max(sum(held.values()), 1.0)
        shares = {"counted": 1 - kept, "assumed": kept}
        kind = "counted" if kept < 0.5 else "assumed"
        return {**found, "memory": {"origin": kind, "outside": False, "shares": shares}}


@dataclass(frozen=True)
class Work:
    """What one plan of a block was priced from: its shard, stages, messages and prices."""

    block: Block
    row: int

    @property
    def plan(self) -> Plan:
        return self.block.plan[[self.row]]

    @property
    def at(self) -> int:
        """Its number among the distinct shards of its block."""
        return int(self.block.step.same[self.row])

    @property
    def messages(self) -> list[tuple[Priced, Exchange]]:
        """What is really sent: the price on each stage, and what it comes to in an iteration."""
        step, row = self.block.step, self.row
        return [
            (priced, whole)
            for priced, whole in zip(step.talk, step.exchange, strict=True)
            if whole.group[row] > 1 and whole.calls[row] > 0
        ]


def blocks(
    model: Model, system: System, plan: Plan, options: Options, lines: Lines | None = None
) -> Iterator[tuple[Array, Block]]:
    """(row numbers, estimate) of at most BLOCK plans at a time that share a pipeline's shape."""
    if lines is None:
        from oracle.network import contention

        lines = contention.alone if options.ideal else contention.lines
    for rows in _alike(plan):
        yield rows, block(model, system, plan[rows], options, lines)


def _alike(plan: Plan) -> Iterator[Array]:
    """Rows of plans that share a pipeline's shape, fewest stages first."""
    pipeline = plan.axis("pipeline")
    columns = (pipeline.degree, pipeline.interleave, pipeline.cuts, pipeline.vee)
    for begin in range(0, len(plan), SPAN):
        shape = np.hstack([column[begin : begin + SPAN] for column in columns])
        first, kind = distinct(shape)
        for number in np.lexsort(shape[first].T[::-1]):
            rows = begin + np.flatnonzero(kind == number)
            yield from (rows[i : i + BLOCK] for i in range(0, len(rows), BLOCK))


def block(model: Model, system: System, plan: Plan, options: Options, lines: Lines) -> Block:
    """Estimate plans that share degree, interleave, cuts and placement of their pipeline."""
    timing = {axis.name: axis.timing for axis in plan.axes}
    first, same = distinct(plan.columns(lambda axis, knob: knob not in timing[axis.name]))
    few = plan[first]
    shard = split(model, few, options)
    times = passes(shard, system.device, options.precision, options.profile)
    if not options.ideal:
        times = in_step(times, model, system.device, few.devices)
    stages = _stages(model, few, times)
    groups, work = Groups(few), work_of(shard, stages, times, system, options)
    cover = Cover({"forward": work.forward, "backward": work.backward},
                  dict(zip(("forward", "backward"), work.host, strict=True)))  # fmt: skip
    said = [
        (message, axis)
        for axis in few.lean
        if axis.speaks_for_all or np.any(axis.degree > 1)
        for message in axis.talk(shard)
        if groups.of(message).talk and np.any(message.calls)
    ]
    talk: list[Any] = [None] * len(said)
    # gradients hide under what the passes take with all their messages: they come last
    for at in sorted(range(len(said)), key=lambda at: said[at][0].when == "step"):
        talk[at] = price(*said[at], shard, groups, stages, times, cover, system, options, lines)

    def sources() -> Sources:  # prices once more what nobody keeps: few ask for it
        again = split(model, few, options)
        seconds = passes(again, system.device, options.precision, options.profile)
        return provenance(again, seconds, stages, system.device, options)

    taken = step(plan, same, stages, work, talk, system, options, sources)
    held = memory.held(shard, few, plan, same, stages, system.device, options)
    return Block(plan, shard, stages, taken, held, limits(plan, model, system, held, options))


def split(model: Model, plan: Plan, options: Options) -> Shard:
    """What one device of each plan is left with."""
    shard = serial(model, plan.batch, options.width, options.ideal)
    for axis in sorted(plan.lean, key=lambda axis: axis.nearness):
        shard = axis.split(shard)
    return shard


def cuts(model: Model, system: System, plan: Plan, options: Options) -> tuple[int, ...]:
    """Where one plan's pipeline is cut, in units of the model: 0, the ends of chunks, the end."""
    shard = split(model, plan[:1], options)
    times = passes(shard, system.device, options.precision, options.profile)
    return tuple(int(unit) for unit in _stages(model, plan[:1], times).cuts[0])


def _stages(model: Model, plan: Plan, times: Passes) -> Stages:
    pipeline = plan.axis("pipeline")
    p, v = int(pipeline.degree[0, 0]), int(pipeline.interleave[0, 0])
    load = times.forward + times.data + times.weight
    return Stages(model, p, v, not pipeline.cuts[0, 0], load, bool(pipeline.vee[0, 0]))


__all__ = ["Block", "Exchange", "Options", "block", "blocks", "cuts", "split"]

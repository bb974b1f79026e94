"""The estimate of a table of plans, and what each was priced from.

It names `recompute`, which says what is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oracle.kernels.provenance import provenance
from oracle.kernels.rows import passes
from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.plan.strategies import Rule
from oracle.plan.strategies.recompute import inside, parted
from oracle.predict import memory
from oracle.predict.exchange import Exchange, Priced, price
from oracle.predict.limits import limits
from oracle.predict.offers import Lines, leaves
from oracle.predict.reading import Loads, Read
from oracle.predict.resident import Choice, choice_of, price_chosen
from oracle.predict.sides import Side
from oracle.predict.stage_work import StageWork, chosen, cover_of, work_of
from oracle.predict.step import Step, step
from oracle.predict.uncertainty import Sources, fed
from oracle.predict.workload import Workload, split
from oracle.spec.options import Options
from oracle.spec.system import System


@dataclass(frozen=True)
class Block:
    """The estimate of a table of plans, before it is joined to a whole."""

    plan: Plan
    step: Step
    stages: Stages
    kind: Array  # of each distinct shard, which of the stages are its own
    keep: Callable[[], tuple[memory.Held, list[Rule]]]
    take: Callable[[Array], Block]  # the same of some of these plans
    model: Model
    read: Read | None = None  # how samples are got, where that is counted
    choice: Choice | None = None  # what units do with their activations, where room decides
    sides: Callable[[int], tuple[Side, ...]] = lambda row: ()  # partitions of one plan, if several

    @cached_property
    def _kept(self) -> tuple[memory.Held, list[Rule]]:
        return self.keep()

    @property
    def held(self) -> memory.Held:
        """What devices hold; worked out where anybody asks."""
        return self._kept[0]

    @property
    def rules(self) -> list[Rule]:
        """What plans must satisfy, room in memory last."""
        return self._kept[1]

    @property
    def seconds(self) -> Array:
        return self.step.seconds if self.read is None else self.read.seconds

    @cached_property
    def doubted(self) -> tuple[Array, Array]:
        """1σ either way, and of what can only slow a step down."""
        deviations = self.step.uncertainty.deviation, self.step.uncertainty.more
        return deviations if self.read is None else self.read.doubted(*deviations)

    @property
    def exchange(self) -> list[Exchange]:
        return self.step.exchange

    @property
    def lawful(self) -> Array:
        """Whether each plan breaks no rule, memory aside."""
        obeyed = [rule.wanted <= rule.allowed for rule in self.rules[:-1]]
        return np.asarray(np.logical_and.reduce([np.ones(len(self.seconds), bool), *obeyed]))

    @property
    def fits(self) -> Array:
        """Whether each plan has room in memory."""
        room = self.rules[-1]
        return np.asarray(room.wanted <= room.allowed)

    @property
    def feasible(self) -> Array:
        return np.asarray(
            np.logical_and.reduce([rule.wanted <= rule.allowed for rule in self.rules])
        )

    def broken(self, row: int) -> tuple[str, ...]:
        """Every limit that one plan breaks, in words."""
        pairs = ((rule, float(rule.wanted[row]), float(rule.allowed[row])) for rule in self.rules)
        return tuple(
            rule.says(needed, allowed) for rule, needed, allowed in pairs if not needed <= allowed
        )

    def origin(self, row: int) -> dict[str, dict[str, Any]]:
        """Where each part of one plan comes from, and whether it lies outside what was measured.

        Bytes are `counted` from shapes, but for what libraries and allocators keep: assumed.
        """
        shard, parts = int(self.step.same[row]), ("forward", "backward", "update")
        origins = {
            name: source.to_dict(shard)
            for name, source in zip(parts, self.step.uncertainty.known, strict=True)
        }
        kind_bytes = {kind: float(values[row]) for kind, values in self.held.kinds.items()}
        assumed_share = sum(kind_bytes[kind] for kind in memory.ASSUMED) / max(
            sum(kind_bytes.values()), 1.0
        )
        shares = {"counted": 1 - assumed_share, "assumed": assumed_share}
        kind = "counted" if assumed_share < 0.5 else "assumed"
        return {**origins, "memory": {"origin": kind, "outside": False, "shares": shares}}


@dataclass(frozen=True)
class Work:
    """What one plan of a block was priced from: its shard, stages, messages and prices."""

    block: Block
    row: int

    @property
    def plan(self) -> Plan:
        return self.block.plan[[self.row]]

    @property
    def first_stage_bytes(self) -> float:
        """What the allocator of the first stage's device holds, as logs of rank 0 say."""
        return float(np.broadcast_to(self.block.held.first, len(self.block.plan))[self.row])

    @property
    def words(self) -> tuple[str, ...]:
        """What each of the model's units does with its activations, by the room there is where
        that decides: words of `unit_choice`, or `parts` that do not all do the same.
        """
        choice = self.block.choice
        chosen = () if choice is None else choice.words(self.at)
        model, mode = self.block.model, self.plan.axis("recompute").word("mode")
        counts = model.units[0]
        remakes = np.full(len(counts), mode == "stage") | (
            (counts @ inside(model) > 0) & (mode == "full"))  # fmt: skip
        mode_words = tuple("recompute" if remade else "keep" for remade in remakes)
        pairs = zip(mode_words, chosen or mode_words, strict=True)
        return tuple(usual if word == "keep" else word for usual, word in pairs)

    @property
    def at(self) -> int:
        """Its number among the distinct shards of its block."""
        return int(self.block.step.same[self.row])

    @property
    def cuts(self) -> tuple[int, ...]:
        """Where its pipeline is cut, in units of the model: 0, the ends of chunks, the end."""
        return self.block.stages.cuts(self.kind)

    @property
    def kind(self) -> int:
        """Its number among the distinct rows of its block, and among their stages."""
        return int(self.block.kind[self.at])

    @property
    def edges(self) -> Array:
        """The same as a table of one plan."""
        return np.array([self.cuts])

    @property
    def sides(self) -> tuple[Side, ...]:
        """What each partition does and waits for, where the plan has several."""
        return self.block.sides(self.row)

    @property
    def room(self) -> float:
        """Bytes that a device has, where the plan is most short of them."""
        return float(self.block.rules[-1].allowed[self.row])

    @property
    def messages(self) -> list[tuple[Priced, Exchange]]:
        """What is really sent: the price on each stage, and what it comes to in an iteration."""
        step, row = self.block.step, self.row
        return [
            (priced, exchange)
            for priced, exchange in zip(step.talk, step.exchange, strict=True)
            if (exchange.group[row] > 1 or not priced.meshed) and exchange.calls[row] > 0
        ]


def messages(work: Work) -> Iterable[dict[str, Any]]:
    """The exchanges of one plan that really happen, as data."""
    row = work.row
    for _, exchange in work.messages:
        best = int(exchange.algorithm[row])
        numbers = {"calls": exchange.calls, "bytes": exchange.nbytes, "seconds": exchange.seconds,
                   "exposed": exchange.exposed, "deviation": exchange.deviation,  # 1σ of `exposed`
                   "phi": exchange.phi}  # fmt: skip
        yield {
            "what": exchange.what, "op": exchange.op,
            "algorithm": exchange.names[best] if exchange.names else "",
            "group": int(exchange.group[row]),
            **{name: float(column[row]) for name, column in numbers.items()},
            "full": list(exchange.full[best]) if exchange.full else [],
            "origin": exchange.origins[best] if exchange.origins else "assumed",
            "outside": bool(exchange.outside[row]),
        }  # fmt: skip


@dataclass(frozen=True)
class Prices:
    """What each stage's own work and messages come to, (u, p) each."""

    work: StageWork
    talk: list[Priced]
    choice: Choice | None


def prices_of(
    load: Workload, plan: Plan, same: Array, system: System, options: Options, lines: Lines
) -> Prices:
    """The work of stages, and what is left of each message beside it."""
    model = load.shard.model
    work = work_of(load, system, options, parted(plan.axis("recompute").mode))
    choice = choice_of(load, plan, same, (work.forward, work.backward), system, options)
    work = chosen(work, choice)
    cover = cover_of(work, plan, model)
    spoken = load.said
    talk: list[Any] = [None] * len(spoken)
    # copies to the host hide under what messages make the passes longer too, gradients under what
    # these take with all of them: they come last
    # these take; copies of activations come before others over the same links
    for number in sorted(range(len(spoken)), key=lambda number: (spoken[number][0].when == "step",
                                                       spoken[number][0].over != "mesh",
                                                       not spoken[number][0].chosen)):  # fmt: skip
        message, axis = spoken[number]
        if message.chosen and choice is not None:
            talk[number] = price_chosen(message, axis.name, load, choice, cover, system, options)
        else:
            talk[number] = price(message, axis, load, cover, system, options, lines)
    return Prices(work, talk, choice)


def sources_of(load: Workload, system: System, options: Options) -> Sources:
    """Where the seconds of either pass and of the update come from.

    Prices once more what nobody keeps: few ask for it.
    """
    shards, spread = split(load.shard.model, load.plan, options), load.kinds.spread
    seconds = passes(shards, system.device, options.precision, options.profile)
    weights = load.weights_of("stated")
    ahead, back, update = provenance(shards, seconds, weights, system.device, options)
    return ahead.spread(spread), back.spread(spread), update


@dataclass(frozen=True)
class Table:
    """Plans whose steps were timed together, of which blocks are taken."""

    load: Workload
    plan: Plan
    same: Array
    rules: list[Rule]
    system: System
    options: Options
    loads: Loads | None
    prices: Prices
    step: Step

    def block(self, rows: Array | None = None) -> Block:
        """The estimate of all plans, or of some."""
        plan, same, step, loads, rules = self.plan, self.same, self.step, self.loads, self.rules
        if rows is not None:
            plan, same, step = plan[rows], same[rows], step.take(rows)
            loads = None if loads is None else loads.take(rows)
            rules = [rule.take(rows) for rule in rules]
        read = None
        if loads is not None:
            read = loads.beside(step.seconds, lambda: between(step, self.system))
        load, choice = self.load, self.prices.choice

        def keep() -> tuple[memory.Held, list[Rule]]:
            left = None if choice is None else choice.left
            part, part_row = (load, same) if rows is None or choice is not None else load.part(same)
            held_bytes = memory.held_bytes(
                part, plan, part_row, self.system.device, self.options, left, lead=step.lead
            )
            reads = [] if read is None else read.rules
            return held_bytes, limits([*rules, *reads], plan, self.system, held_bytes, self.options)

        return Block(plan, step, load.stages, load.kinds.row, keep, self.block, load.shard.model,
                     read, choice)  # fmt: skip


def block(
    load: Workload, plan: Plan, same: Array, rules: Iterable[Rule], system: System,
    options: Options, lines: Lines, loads: Loads | None = None,
) -> Block:  # fmt: skip
    """Estimate plans from what their shards are left with."""
    prices = prices_of(load, plan, same, system, options, lines)
    timed_step = step(plan, same, prices.work, prices.talk, options,
                 lambda: sources_of(load, system, options),
                 fed(load.shard.model, plan, options.software))  # fmt: skip
    return Table(load, plan, same, list(rules), system, options, loads, prices, timed_step).block()


def between(timed_step: Step, system: System) -> tuple[Array, Array]:
    """Seconds that each plan's step waits for messages between nodes, and that these take."""
    waited, talked = np.zeros((2, len(timed_step.seconds)))
    for priced, exchange in zip(timed_step.talk, timed_step.exchange, strict=True):
        sent = priced.groups
        out = np.array([leaves(pattern, system.node) for pattern, _ in sent.patterns], bool)
        crosses = (out[sent.row] & priced.meshed)[timed_step.same]
        waited, talked = waited + crosses * exchange.exposed, talked + crosses * exchange.seconds
    return np.minimum(waited, timed_step.seconds), np.minimum(talked, timed_step.seconds)

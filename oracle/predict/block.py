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
from oracle.plan.strategies.recompute import inside
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
        own = self.step.uncertainty.deviation, self.step.uncertainty.more
        return own if self.read is None else self.read.doubted(*own)

    @property
    def exchange(self) -> list[Exchange]:
        return self.step.exchange

    @property
    def lawful(self) -> Array:
        """Whether each plan breaks no rule, memory aside."""
        kept = [rule.wanted <= rule.allowed for rule in self.rules[:-1]]
        return np.asarray(np.logical_and.reduce([np.ones(len(self.seconds), bool), *kept]))

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
    def words(self) -> tuple[str, ...]:
        """What each of the model's units does with its activations, by the room there is where
        that decides: words of `unit_choice`, or `parts` that do not all do the same.
        """
        choice = self.block.choice
        chosen = () if choice is None else choice.words(self.at)
        model, mode = self.block.model, self.plan.axis("recompute").word("mode")
        counts = model.units[0]
        again = np.full(len(counts), mode == "stage") | (
            (counts @ inside(model) > 0) & (mode == "full"))  # fmt: skip
        found = tuple("recompute" if made else "keep" for made in again)
        return tuple(own if word == "keep" else word
                     for own, word in zip(found, chosen or found, strict=True))  # fmt: skip

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
            (priced, whole)
            for priced, whole in zip(step.talk, step.exchange, strict=True)
            if (whole.group[row] > 1 or not priced.meshed) and whole.calls[row] > 0
        ]


def messages(work: Work) -> Iterable[dict[str, Any]]:
    """The exchanges of one plan that really happen, as data."""
    row = work.row
    for _, one in work.messages:
        best = int(one.algorithm[row])
        numbers = {"calls": one.calls, "bytes": one.nbytes, "seconds": one.seconds,
                   "exposed": one.exposed, "deviation": one.deviation,  # 1σ of `exposed`
                   "phi": one.phi}  # fmt: skip
        yield {
            "what": one.what, "op": one.op,
            "algorithm": one.names[best] if one.names else "", "group": int(one.group[row]),
            **{name: float(column[row]) for name, column in numbers.items()},
            "full": list(one.full[best]) if one.full else [],
            "origin": one.origins[best] if one.origins else "assumed",
            "outside": bool(one.outside[row]),
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
    work = work_of(load, system, options)
    choice = choice_of(load, plan, same, (work.forward, work.backward), system, options)
    work = chosen(work, choice)
    cover = cover_of(work, plan, model)
    said = load.said
    talk: list[Any] = [None] * len(said)
    # copies to the host hide under what messages make the passes longer too, gradients under what
    # these take with all of them: they come last
    # these take; copies of activations come before others over the same links
    for at in sorted(range(len(said)), key=lambda at: (said[at][0].when == "step",
                                                       said[at][0].over != "mesh",
                                                       not said[at][0].chosen)):  # fmt: skip
        message, axis = said[at]
        if message.chosen and choice is not None:
            talk[at] = price_chosen(message, axis.name, load, choice, cover, system, options)
        else:
            talk[at] = price(message, axis, load, cover, system, options, lines)
    return Prices(work, talk, choice)


def sources_of(load: Workload, system: System, options: Options) -> Sources:
    """Where the seconds of either pass and of the update come from.

    Prices once more what nobody keeps: few ask for it.
    """
    again, spread = split(load.shard.model, load.plan, options), load.kinds.spread
    seconds = passes(again, system.device, options.precision, options.profile)
    weights = load.held("stated")
    ahead, back, update = provenance(again, seconds, weights, system.device, options)
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
            part, own = (load, same) if rows is None or choice is not None else load.part(same)
            held = memory.held(part, plan, own, self.system.device, self.options, left)
            reads = [] if read is None else read.rules
            return held, limits([*rules, *reads], plan, self.system, held, self.options)

        return Block(plan, step, load.stages, load.kinds.row, keep, self.block, load.shard.model,
                     read, choice)  # fmt: skip


def block(
    load: Workload, plan: Plan, same: Array, rules: Iterable[Rule], system: System,
    options: Options, lines: Lines, loads: Loads | None = None,
) -> Block:  # fmt: skip
    """Estimate plans from what their shards are left with."""
    prices = prices_of(load, plan, same, system, options, lines)
    taken = step(plan, same, prices.work, prices.talk, options,
                 lambda: sources_of(load, system, options),
                 fed(load.shard.model, plan, options.software))  # fmt: skip
    return Table(load, plan, same, list(rules), system, options, loads, prices, taken).block()


def between(taken: Step, system: System) -> tuple[Array, Array]:
    """Seconds that each plan's step waits for messages between nodes, and that these take."""
    waited, talked = np.zeros((2, len(taken.seconds)))
    for priced, whole in zip(taken.talk, taken.exchange, strict=True):
        sent = priced.groups
        out = np.array([leaves(pattern, system.node) for pattern, _ in sent.patterns], bool)
        crosses = (out[sent.row] & priced.meshed)[taken.same]
        waited, talked = waited + crosses * whole.exposed, talked + crosses * whole.seconds
    return np.minimum(waited, taken.seconds), np.minimum(talked, taken.seconds)

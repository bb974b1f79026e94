"""Plans in, estimate out: the one path every prediction takes, for one plan or ten million.

    split   every axis cuts the shard                 oracle.plan.strategies
    price   the machine prices what is left           oracle.kernels
    talk    every axis says what it must exchange     oracle.plan.strategies
    price   the network prices the messages           oracle.network, oracle.predict.exchange
    add up  over layers, micro-batches and stages     oracle.predict.step, oracle.predict.memory

It names the `pipeline`, since rows are added up over its stages, and `recompute`, which says what
is not kept.

Plans that differ only in *when* things happen share the same prices, and those of which a device
has the same rows share the rows' (`oracle.predict.workload`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from oracle.kernels.provenance import provenance
from oracle.kernels.rows import passes
from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.mesh import Kinds, distinct
from oracle.plan.plan import Plan
from oracle.plan.schedule import NAMES
from oracle.plan.stages import Stages, device_of
from oracle.plan.strategies import Rule
from oracle.plan.strategies.recompute import inside
from oracle.predict import memory
from oracle.predict.exchange import Exchange, Priced, price
from oracle.predict.fastest import TIE, fastest, fullest, leanest
from oracle.predict.limits import limits, rules_of
from oracle.predict.offers import Lines, leaves
from oracle.predict.played import CLOSED
from oracle.predict.reading import Loads, Read
from oracle.predict.resident import Choice, choice_of, price_chosen
from oracle.predict.stage_work import chosen, cover_of, work_of
from oracle.predict.step import Step, step
from oracle.predict.uncertainty import Sources, fed
from oracle.predict.workload import Rows, Workload, columns, rows_of, split, ways, workload
from oracle.spec.options import Options
from oracle.spec.system import System

BLOCK = 2**15  # plans at a time, so that memory stays flat
ROWS = 2**12  # and of them plans whose rows may differ, so that temporaries stay in cache
SPAN = 2**18  # plans among which those that share a pipeline's shape are looked for


@dataclass(frozen=True)
class Block:
    """The estimate of some plans, before it is joined to a whole."""

    plan: Plan
    step: Step
    stages: Stages
    keep: Callable[[], tuple[memory.Held, list[Rule]]]
    model: Model
    read: Read | None = None  # how samples are got, where that is counted
    choice: Choice | None = None  # what units do with their activations, where room decides

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
        """What each of the model's units does with its activations: `keep`, `offload`, `recompute`.

        By the room there is where that decides; parts of a unit that are made again are not told.
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
    def messages(self) -> list[tuple[Priced, Exchange]]:
        """What is really sent: the price on each stage, and what it comes to in an iteration."""
        step, row = self.block.step, self.row
        return [
            (priced, whole)
            for priced, whole in zip(step.talk, step.exchange, strict=True)
            if (whole.group[row] > 1 or not priced.meshed) and whole.calls[row] > 0
        ]


def blocks(
    model: Model, system: System, plan: Plan, options: Options, lines: Lines | None = None,
    most: float = np.inf,
) -> Iterator[tuple[Array, Block]]:  # fmt: skip
    """(row numbers, estimate) of at most BLOCK plans at a time that share a pipeline's shape.

    Plans whose own work alone takes more than `most` seconds are left out.
    """
    model = model.under(options.software.kernels)
    lines = lines or _network(options)
    for shapes in _together(_alike(plan)):
        some = plan[np.concatenate(shapes)]
        shared = Shared.of(model, system, some, options, lines)
        ends = np.cumsum([0, *map(len, shapes)])
        for mine, begin in zip(shapes, ends, strict=False):
            if most < np.inf:
                near = np.flatnonzero(shared.least[begin : begin + len(mine)] <= most * (1 + TIE))
            else:
                near = np.arange(len(mine))
            if len(near):
                dealt = ways(model, plan[mine[near[:1]]], options)
                cut = partial(shared.block, near + begin)
                bound = partial(shared.bound, near + begin)
                lean = _lean(model, dealt)
                for at, found in fastest(len(near), dealt, cut, bound, lean):
                    yield mine[near[at]], found


def _lean(model: Model, dealt: Sequence[tuple[int, ...]]) -> list[int]:
    """Of the ways to cut a model that is no chain, those that may need least memory."""
    if len(dealt) == 1 or model.pieces.links.plain:
        return []
    counts = model.pieces.counts
    return leanest(counts @ model.kept, counts @ model.w, np.array(dealt))


def _network(options: Options) -> Lines:
    """What the network charges: with everybody's traffic, or as published alone."""
    from oracle.network import contention

    return contention.alone if options.ideal else contention.lines


@dataclass(frozen=True)
class Shared:
    """Plans whose rows were split and priced together, whatever the shape of their pipelines."""

    plan: Plan
    kinds: Kinds
    rows: Rows
    rules: list[Rule]
    system: System
    options: Options
    lines: Lines
    loads: Loads | None

    @classmethod
    def of(cls, model: Model, system: System, plan: Plan, options: Options, lines: Lines) -> Shared:
        kinds = Kinds.of(columns(plan))
        rows = rows_of(model, system, kinds.one_of_each(plan), options)
        rules, loads = rules_of(plan, model, options), Loads.of(model, system, plan, options)
        return cls(plan, kinds, rows, rules, system, options, lines, loads)

    @cached_property
    def share(self) -> Array:
        """Seconds of each plan's own passes, shared evenly by its stages.

        Nothing is sent, nothing waits but for samples, nothing is made again.
        """
        times, segments = self.rows.times, self.rows.state.segments
        whole = self._through(times.forward + times.data + times.weight) * segments
        work = self.kinds.spread(whole)[:, 0] / self.plan.axis("pipeline").degree[:, 0]
        return np.asarray(work if self.loads is None else np.maximum(work, self.loads.least))

    @cached_property
    def least(self) -> Array:
        """Seconds that no plan is faster than: its share, or one micro-batch's way there and back.

        Gradients of weights may be made later, on all stages at once.
        """
        times = self.rows.times
        way = self.kinds.spread(self._through(times.forward + times.data))
        return np.asarray(np.maximum(self.share, np.broadcast_to(way, (len(self.plan), 1))[:, 0]))

    def _through(self, each: Array) -> Array:
        """(kinds, rows) → (plans, 1): the sum over all units."""
        units = self.rows.shard.model.units[0].sum(axis=0)[:, None]
        return self.rows.kinds.spread(each @ units)

    def bound(self, rows: Array, ways: Sequence[tuple[int, ...]]) -> Array:
        """(plans, ways) seconds that some of these plans take at least, cut each way."""
        times, state, pipeline = self.rows.times, self.rows.state, self.plan.axis("pipeline")
        p, v = (int(knob[rows[0], 0]) for knob in (pipeline.degree, pipeline.interleave))
        model, vee = self.rows.shard.model, bool(pipeline.vee[rows[0], 0])
        each = (times.forward + times.data + times.weight) @ model.units[0].T
        most, all_ = fullest(each, np.array(ways), device_of(len(ways[0]) - 1, p, vee))
        most, all_ = (self.kinds.spread(self.rows.kinds.spread(x))[rows] for x in (most, all_))
        S = np.broadcast_to(self.kinds.spread(state.segments * np.ones((1, 1))),
                            (len(self.plan), 1))[rows]  # fmt: skip
        closed = np.isin(pipeline.schedule[rows], [NAMES.index(name) for name in CLOSED])
        return np.asarray(S * most + closed * (all_ - most) / v)

    def block(self, rows: Array, at: Array, edges: tuple[int, ...]) -> Block:
        """The estimate of some of these rows, their stages cut at these edges."""
        at = rows[at]
        few, same = self.kinds.take(at)
        options = replace(self.options, edges=edges)
        load = workload(self.rows.take(few), options)
        own = [rule.take(at) for rule in self.rules]
        loads = None if self.loads is None else self.loads.take(at)
        return block(load, self.plan[at], same.row, own, self.system, options, self.lines, loads)


def _together(shapes: Iterable[Array]) -> Iterator[list[Array]]:
    """Few plans of several shapes are split and priced together."""
    held: list[Array] = []
    for rows in shapes:
        if held and sum(map(len, held)) + len(rows) > ROWS:
            yield held
            held = []
        held.append(rows)
    if held:
        yield held


def _alike(plan: Plan) -> Iterator[Array]:
    """Rows of plans that share a pipeline's shape, fewest stages first."""
    pipeline = plan.axis("pipeline")
    columns = (pipeline.degree, pipeline.interleave, pipeline.cuts, pipeline.vee)
    for begin in range(0, len(plan), SPAN):
        shape = np.hstack([column[begin : begin + SPAN] for column in columns])
        first, kind = distinct(shape)
        for number in np.lexsort(shape[first].T[::-1]):
            rows = begin + np.flatnonzero(kind == number)
            yield from _cut(plan, rows) if len(rows) > min(BLOCK, ROWS) else [rows]


def _cut(plan: Plan, rows: Array) -> Iterator[Array]:
    """Plans of the same rows side by side, cut into blocks."""
    some = plan[rows]
    kind = distinct(some.columns(lambda axis, knob: knob not in axis.timing + axis.state_knobs))[1]
    order = np.argsort(kind, kind="stable")
    begin, ordered = 0, kind[order]
    while begin < len(rows):
        end = min(begin + BLOCK, int(np.searchsorted(ordered, ordered[begin] + ROWS)))
        yield rows[order[begin:end]]
        begin = end


def least(model: Model, system: System, plan: Plan, options: Options) -> Array:
    """Seconds that no plan of the same degrees is faster than, whatever its knobs."""
    model = model.under(options.software.kernels)
    return Shared.of(model, system, plan, options, _network(options)).share


def block(
    load: Workload, plan: Plan, same: Array, rules: Iterable[Rule], system: System,
    options: Options, lines: Lines, loads: Loads | None = None,
) -> Block:  # fmt: skip
    """Estimate plans that share degree, interleave, cuts and placement of their pipeline."""
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

    def sources() -> Sources:  # prices once more what nobody keeps: few ask for it
        again, spread = split(model, load.plan, options), load.kinds.spread
        seconds = passes(again, system.device, options.precision, options.profile)
        weights = load.held("stated")
        ahead, back, update = provenance(again, seconds, weights, system.device, options)
        return ahead.spread(spread), back.spread(spread), update

    eats = fed(model, plan, options.software)
    taken = step(plan, same, load.stages, work, talk, system, options, sources, eats)

    def keep() -> tuple[memory.Held, list[Rule]]:
        left = None if choice is None else choice.left
        held = memory.held(load, plan, same, system.device, options, left)
        reads = [] if read is None else read.rules
        return held, limits([*rules, *reads], plan, system, held, options)

    read = None if loads is None else loads.beside(taken.seconds, lambda: _between(taken, system))
    return Block(plan, taken, load.stages, keep, model, read, choice)


def _between(taken: Step, system: System) -> tuple[Array, Array]:
    """Seconds that each plan's step waits for messages between nodes, and that these take."""
    waited, talked = np.zeros((2, len(taken.seconds)))
    for priced, whole in zip(taken.talk, taken.exchange, strict=True):
        sent = priced.groups
        out = np.array([leaves(pattern, system.node) for pattern, _ in sent.patterns], bool)
        crosses = (out[sent.row] & priced.meshed)[taken.same]
        waited, talked = waited + crosses * whole.exposed, talked + crosses * whole.seconds
    return np.minimum(waited, taken.seconds), np.minimum(talked, taken.seconds)


def unit_words(model: Model, system: System, plan: Plan, options: Options) -> tuple[str, ...]:
    """What each unit does with its activations under one plan: `Work.words`."""
    ((_, found),) = blocks(model, system, plan[:1], options)
    return Work(found, 0).words


def cuts(model: Model, system: System, plan: Plan, options: Options) -> tuple[int, ...]:
    """Where one plan's pipeline is cut, in units of the model: 0, the ends of chunks, the end."""
    ((_, found),) = blocks(model, system, plan[:1], options)
    return tuple(int(unit) for unit in found.stages.cuts[0])


__all__ = ["Block", "Exchange", "Options", "block", "blocks", "cuts", "split"]

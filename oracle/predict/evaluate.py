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
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan, table
from oracle.predict.block import Block, Work, block
from oracle.predict.exchange import Exchange
from oracle.predict.fastest import TIE, fastest, leanest
from oracle.predict.offers import Lines
from oracle.predict.shared import Shared
from oracle.predict.sides import jobs
from oracle.predict.unlike import Unlike
from oracle.predict.workload import split
from oracle.spec.options import Options
from oracle.spec.system import System

BLOCK = 2**15  # plans at a time, so that memory stays flat
ROWS = 2**12  # and of them plans whose rows may differ, so that temporaries stay in cache
SPAN = 2**18  # plans among which those that share a pipeline's shape are looked for
Pool: TypeAlias = Shared | Unlike


def blocks(
    model: Model, system: System, plan: Plan, options: Options, lines: Lines | None = None,
    most: float = np.inf,
) -> Iterator[tuple[Array, Block]]:  # fmt: skip
    """(row numbers, estimate) of at most BLOCK plans at a time that share a pipeline's shape.

    Plans whose own work alone takes more than `most` seconds are left out.
    """
    model = model.under(options.software.kernels)
    lines = lines or _network(options)
    for rows, of in _shared(model, system, plan, options, lines):
        for at, found in _blocks(model, plan if rows is None else plan[rows], of, most):
            yield at if rows is None else rows[at], found


def _shared(
    model: Model, system: System, plan: Plan, options: Options, lines: Lines
) -> Iterator[tuple[Array | None, Callable[[Plan], Pool]]]:
    """Rows that run on the same devices (None: all do), and how some of them are priced."""
    if not system.partitions:
        yield None, lambda some: Shared.of(model, system, some, options, lines)
        return
    for rows, job in jobs(system, plan):
        if len(job) == 1:
            yield rows, partial(_on_one, model, system, job[0].view, options, lines)
        else:
            yield rows, partial(_on_several, model, system, job, options, lines)


def _on_one(
    model: Model, system: System, view: System, options: Options, lines: Lines, plan: Plan
) -> Pool:
    return Shared.of(model, view, plan, options, lines, system)


def _on_several(
    model: Model, system: System, job: Any, options: Options, lines: Lines, plan: Plan
) -> Pool:
    return Unlike.of(model, system, job, plan, options, lines)


def _blocks(
    model: Model, plan: Plan, of: Callable[[Plan], Pool], most: float
) -> Iterator[tuple[Array, Block]]:
    """The same of plans that run on the same devices."""
    for shapes in _together(_alike(plan)):
        shared = of(plan[np.concatenate(shapes)])
        ends = np.cumsum([0, *map(len, shapes)])
        for mine, begin in zip(shapes, ends, strict=False):
            if most < np.inf:
                near = np.flatnonzero(shared.least[begin : begin + len(mine)] <= most * (1 + TIE))
            else:
                near = np.arange(len(mine))
            if len(near):
                dealt = shared.ways(begin + near[0])
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


def seconds(
    model: Model,
    system: System,
    plans: Sequence[Plan],
    options: Options,
    lines: Lines | None = None,
) -> Array:
    """Seconds of a step of each plan, and nothing else of it."""
    found = np.empty(len(plans))
    for plan, rows in table(plans, [float(one.batch[0, 0]) for one in plans]):
        for at, part in blocks(model, system, plan, options, lines):
            found[np.array(rows)[at]] = part.seconds
    return found


def least(model: Model, system: System, plan: Plan, options: Options) -> Array:
    """Seconds that no plan of the same degrees is faster than, whatever its knobs."""
    return _of_each(model, system, plan, options, lambda pool: pool.share)


def lightest(model: Model, system: System, plan: Plan, options: Options) -> Array:
    """Share of a device's memory that no plan of the same rows and micro-batches needs less than.

    Whatever is made again or lies beside the device.
    """
    return _of_each(model, system, plan, options, lambda pool: pool.lightest)


def _of_each(
    model: Model, system: System, plan: Plan, options: Options, what: Callable[[Pool], Array]
) -> Array:
    """What pools of plans on the same devices say of each plan."""
    model = model.under(options.software.kernels)
    found = np.empty(len(plan))
    for rows, of in _shared(model, system, plan, options, _network(options)):
        if rows is None:
            return what(of(plan))
        found[rows] = what(of(plan[rows]))
    return found


def unit_words(model: Model, system: System, plan: Plan, options: Options) -> tuple[str, ...]:
    """What each unit does with its activations under one plan: `Work.words`."""
    ((_, found),) = blocks(model, system, plan[:1], options)
    return Work(found, 0).words


def cuts(model: Model, system: System, plan: Plan, options: Options) -> tuple[int, ...]:
    """Where one plan's pipeline is cut, in units of the model: 0, the ends of chunks, the end."""
    ((_, found),) = blocks(model, system, plan[:1], options)
    return tuple(int(unit) for unit in found.stages.cuts[0])


__all__ = ["Block", "Exchange", "Options", "block", "blocks", "cuts", "split"]

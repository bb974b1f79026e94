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

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.laid import laid
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan, table
from oracle.predict.block import Block, Work, block
from oracle.predict.exchange import Exchange
from oracle.predict.offers import Lines
from oracle.predict.shared import Shared
from oracle.predict.sides import jobs
from oracle.predict.unlike import Unlike
from oracle.predict.ways import TIE, Cuts, first_fastest
from oracle.predict.workload import split
from oracle.spec.options import Options
from oracle.spec.system import System

BLOCK = 2**18  # stages of a table, in all ways to cut them, so that memory stays flat
ROWS = 2**16  # stages or layers of plans whose rows differ, so that temporaries stay in cache
SPAN = 2**17  # plans among which those that are alike are looked for
LEAST = 2**7  # plans of a table, as long as there are so many
Pool: TypeAlias = Shared | Unlike


def blocks(
    model: Model, system: System, plan: Plan, options: Options, lines: Lines | None = None,
    most_seconds: float = np.inf,
) -> Iterator[tuple[Array, Block]]:  # fmt: skip
    """Yield the estimate of one table of plans after the other, with the rows that it is of.

    Plans whose own work alone takes more than `most_seconds` are left out.
    """
    model = model.under(options.software.kernels)
    lines = lines or _network(options)
    for rows, pool_of in _shared(model, system, plan, options, lines):
        alike = plan if rows is None else plan[rows]
        for table_rows in tables(model, alike, options):
            pool, near = pool_of(alike[table_rows]), np.arange(len(table_rows))
            if most_seconds < np.inf:
                near = np.flatnonzero(pool.least <= most_seconds * (1 + TIE))
            if len(near):
                row_numbers = table_rows[near]
                yield row_numbers if rows is None else rows[row_numbers], _cut(pool, near)


def _shared(
    model: Model, system: System, plan: Plan, options: Options, lines: Lines
) -> Iterator[tuple[Array | None, Callable[[Plan], Pool]]]:
    """Rows that run on the same devices (None: all do), and how some of them are priced."""
    if not system.partitions:
        for rows, used in laid(system, plan):
            yield rows, partial(_on_one, model, system, used, options, lines)
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


def _cut(shared: Pool, plans: Array) -> Block:
    """Each plan cut the way in which it is fastest.

    Of a model that is no chain a plan that does not fit so is cut the fastest way in which it does.
    """
    cuts = shared.cuts
    which, way = cuts.fastest(plans, lambda *pairs: shared.block(*pairs).seconds, shared.bound)
    block = shared.block(plans[which], way)
    if len(which) > len(plans):
        block = block.take(first_fastest(which, block.seconds))
    if not cuts.lean.any() or block.fits.all():
        return block
    short = np.flatnonzero(~block.fits)
    plan, lean = cuts.pairs(plans[short])
    plan, lean = plan[cuts.lean[lean]], lean[cuts.lean[lean]]
    if not len(plan):
        return block
    trial = shared.block(plans[short[plan]], lean)
    seconds = np.where(trial.fits, trial.seconds, np.inf)
    best = np.lexsort((lean, seconds, plan))[np.unique(np.sort(plan), return_index=True)[1]]
    best = best[np.isfinite(seconds[best])]
    way[short[plan[best]]] = lean[best]
    return shared.block(plans, way)


def _network(options: Options) -> Lines:
    """What the network charges: with everybody's traffic, or as published alone."""
    from oracle.network import contention

    return contention.alone if options.ideal else contention.lines


def tables(model: Model, plan: Plan, options: Options) -> Iterator[Array]:
    """Rows of plans that are priced together: few enough for their stages to stay in cache.

    Of many those with few stages and ways to cut them go apart from those with many.
    """
    for begin in range(0, len(plan), SPAN):
        rows = np.arange(begin, min(begin + SPAN, len(plan)))
        some = plan[rows] if len(rows) < len(plan) else plan
        stages = some.axis("pipeline").degree[:, 0] * Cuts.of(model, some, options).count
        if stages.sum() <= BLOCK:
            yield rows
            continue
        power = np.ceil(np.log2(stages)).astype(int)
        for exponent in np.unique(power).tolist():
            yield from _pieces(plan, rows[power == exponent], 2**exponent, len(model))


def _pieces(plan: Plan, rows: Array, stages: int, layers: int) -> Iterator[Array]:
    """Plans of so many stages and layers, those of the same rows side by side, cut into tables."""
    numbers = plan[rows].columns(lambda axis, knob: knob not in axis.timing + axis.state_knobs)
    kind = distinct(numbers)[1]
    order = np.argsort(kind, kind="stable")
    begin, ordered = 0, kind[order]
    plans, kinds = max(BLOCK // stages, LEAST), max(ROWS // max(stages, layers), LEAST)
    while begin < len(rows):
        end = min(begin + plans, int(np.searchsorted(ordered, ordered[begin] + kinds)))
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
    plan_seconds = np.empty(len(plans))
    for plan, rows in table(plans, [float(each_plan.batch[0, 0]) for each_plan in plans]):
        for row_numbers, part in blocks(model, system, plan, options, lines):
            plan_seconds[np.array(rows)[row_numbers]] = part.seconds
    return plan_seconds


def least(model: Model, system: System, plan: Plan, options: Options) -> Array:
    """Seconds that no plan of the same degrees is faster than, whatever its knobs."""
    return _of_each(model, system, plan, options, lambda pool: pool.share)


def lightest(model: Model, system: System, plan: Plan, options: Options) -> Array:
    """Share of a device's memory that no plan of the same rows and micro-batches needs less than.

    Whatever is made again or lies beside the device.
    """
    return _of_each(model, system, plan, options, lambda pool: pool.lightest)


def _of_each(
    model: Model, system: System, plan: Plan, options: Options, bound_of: Callable[[Pool], Array]
) -> Array:
    """What pools of plans on the same devices say of each plan."""
    model = model.under(options.software.kernels)
    bounds = np.empty(len(plan))
    for rows, pool_of in _shared(model, system, plan, options, _network(options)):
        if rows is None:
            return bound_of(pool_of(plan))
        bounds[rows] = bound_of(pool_of(plan[rows]))
    return bounds


def unit_words(model: Model, system: System, plan: Plan, options: Options) -> tuple[str, ...]:
    """What each unit does with its activations under one plan: `Work.words`."""
    ((_, block),) = blocks(model, system, plan[:1], options)
    return Work(block, 0).words


def cuts(model: Model, system: System, plan: Plan, options: Options) -> tuple[int, ...]:
    """Where one plan's pipeline is cut, in units of the model: 0, the ends of chunks, the end."""
    ((_, block),) = blocks(model, system, plan[:1], options)
    return Work(block, 0).cuts


__all__ = ["Block", "Exchange", "Options", "block", "blocks", "cuts", "split"]

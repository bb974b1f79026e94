"""Ways to cut the pipelines of a table of plans, and the one in which each plan is fastest.

It names the `pipeline`, whose degree, chunks and cuts say which ways there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from oracle.models.model import Flags, Model
from oracle.models.shard import Array
from oracle.plan.cuts import cuts_by_cost, even_cuts, ways_to_cut
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.spec.options import Options

TIE = 1e-10  # relative, of plans cut in two ways that are as fast
MANY = 9  # ways from which it pays to ask first which of them a plan may be fastest by
LOOKS = (1, 4)  # ways that are tried first of so many: those that may be fastest
LEAN = 3  # ways to try of each kind where the fastest does not fit


@dataclass(frozen=True, eq=False)
class Cuts:
    """Ways to cut: the units where chunks begin and end, and which of them each plan may take.

    Ways of all shapes of pipelines lie one below the other, those of a shape side by side; one that
    begins at -1 balances compute alone, as published.
    """

    edges: Array  # (ways, chunks + 1), of fewer chunks the end again and again
    lean: Flags  # (ways,) that may need least memory, of a model that is no chain
    begin: Array  # (plans,) the first of each plan's ways
    count: Array  # (plans,)

    @classmethod
    def of(cls, model: Model, plan: Plan, options: Options) -> Cuts:
        first, shape = shapes_of(plan)
        return cls.joined(model, [ways_of(model, plan[[row]], options) for row in first], shape)

    @classmethod
    def joined(cls, model: Model, ways: Sequence[Sequence[tuple[int, ...]]], shape: Array) -> Cuts:
        """Of the ways of each shape, and the shape of each plan."""
        every, units = [edges for shape_ways in ways for edges in shape_ways], len(model.units[1])
        table = np.full((len(every), max(map(len, every))), units)
        for row, edges in zip(table, every, strict=True):
            row[: len(edges)] = edges
        count = np.array([len(shape_ways) for shape_ways in ways])
        begin, lean = np.cumsum(count) - count, np.zeros(len(every), bool)
        for first_way, shape_ways in zip(begin.tolist(), ways, strict=True):
            if len(shape_ways) > 1 and not model.pieces.links.plain:
                lean[first_way + leanest(model, np.array(shape_ways))] = True
        return cls(table, lean, begin[shape], count[shape])

    def pairs(self, plans: Array) -> tuple[Array, Array]:
        """(which of some plans, a way) of all ways of each, one after the other."""
        count = self.count[plans]
        which = np.repeat(np.arange(len(plans)), count)
        rank = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        return which, self.begin[plans[which]] + rank

    def fastest(
        self, plans: Array, seconds: Callable[[Array, Array], Array],
        bound: Callable[[Array, Array], Array],
    ) -> tuple[Array, Array]:  # fmt: skip
        """Pairs of plans and ways among which the fastest way of each plan is; where any has many,
        that way alone, and none is looked at of which `bound` says that it cannot win.

        `seconds` says what plans take that are cut each its way, `bound` what they take at least.
        """
        which, way = self.pairs(plans)
        if (self.count[plans] <= MANY).all():
            return which, way
        least_seconds, priced_seconds = bound(plans[which], way), np.full(len(which), np.inf)
        best, rank = np.full(len(plans), np.inf), np.empty(len(which), int)
        by_bound = np.lexsort((least_seconds, which))
        rank[by_bound] = way - self.begin[plans[which]]  # among a plan's ways
        for begin, end in pairwise([0, *LOOKS, np.inf]):
            hopeful = least_seconds < best[which] * (1 - TIE)
            looked_at = np.flatnonzero((rank >= begin) & (rank < end) & hopeful)
            if len(looked_at):
                priced_seconds[looked_at] = seconds(plans[which[looked_at]], way[looked_at])
                np.minimum.at(best, which[looked_at], priced_seconds[looked_at])
        rows = first_fastest(which, priced_seconds)
        return which[rows], way[rows]


def first_fastest(which: Array, seconds: Array) -> Array:
    """The row of the fastest way of each plan, the first of those that tie."""
    best = np.full(which[-1] + 1, np.inf)
    np.minimum.at(best, which, seconds)
    good = np.flatnonzero(seconds <= best[which] * (1 + TIE))
    fastest_row = np.empty(len(best), int)
    fastest_row[which[good[::-1]]] = good[::-1]  # the first is written last
    return fastest_row


def shapes_of(plan: Plan) -> tuple[Array, Array]:
    """(the first plan of each shape of pipelines, the shape of each plan)."""
    pipeline = plan.axis("pipeline")
    columns = pipeline.degree, pipeline.interleave, pipeline.cuts, pipeline.vee
    return distinct(np.hstack(columns).astype(float))


def ways_of(model: Model, plan: Plan, options: Options) -> Sequence[tuple[int, ...]]:
    """Edges to choose from for the pipeline of one plan."""
    pipeline, units = plan.axis("pipeline"), len(model.units[1])
    p, v = int(pipeline.degree[0, 0]), int(pipeline.interleave[0, 0])
    chunks = min(p * v, units)
    given_edges = options.edges
    if (edges := pipeline.edges(model)) and len(edges) == 1 + p * v:
        given_edges = given_edges or edges
    if chunks <= 1:
        return [(0, units)]
    if len(given_edges) == chunks + 1:
        return [tuple(given_edges)]
    deal = cuts_by_cost if options.software.borders.cuts == "cost" else even_cuts
    if not pipeline.cuts[0, 0] and (dealt := deal(model, chunks)) is not None:
        return [tuple(dealt.tolist())]
    if given_edges or options.ideal:
        return [(-1,) * (chunks + 1)]
    return ways_to_cut(model, p, v, bool(pipeline.vee[0, 0]))


def leanest(model: Model, ways: Array) -> Array:
    """Ways that are worth trying for memory: by what micro-batches keep, and by weights.

    Micro-batches in flight are all on each stage, or fewer the later it is.
    """
    stages, counts = ways.shape[1] - 1, model.pieces.counts
    lean_ways: dict[int, None] = {}
    for unit_bytes in (counts @ model.kept, counts @ model.w):
        running = np.append(0.0, np.cumsum(unit_bytes))
        chunks = running[ways[:, 1:]] - running[ways[:, :-1]]
        for flight in (np.ones(stages), np.arange(stages, 0, -1)):
            order = np.argsort((chunks * flight).max(axis=1), kind="stable")
            lean_ways.update(dict.fromkeys(order[:LEAN].tolist()))
    return np.array(list(lean_ways))

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
from oracle.plan.cuts import even_cuts, ways_to_cut
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
        every, units = [edges for some in ways for edges in some], len(model.units[1])
        table = np.full((len(every), max(map(len, every))), units)
        for row, edges in zip(table, every, strict=True):
            row[: len(edges)] = edges
        count = np.array([len(some) for some in ways])
        begin, lean = np.cumsum(count) - count, np.zeros(len(every), bool)
        for at, some in zip(begin.tolist(), ways, strict=True):
            if len(some) > 1 and not model.pieces.links.plain:
                lean[at + leanest(model, np.array(some))] = True
        return cls(table, lean, begin[shape], count[shape])

    def fastest(
        self, plans: Array, seconds: Callable[[Array, Array], Array],
        bound: Callable[[Array, Array], Array],
    ) -> Array:  # fmt: skip
        """The way in which each of some plans is fastest, the first of those that tie.

        `seconds` says what plans take that are cut each its way, `bound` what they take at least:
        where ways are many, none is looked at that this says cannot win.
        """
        way, count = self.begin[plans].copy(), self.count[plans]
        several = np.flatnonzero(count > 1)
        if not len(several):
            return way
        number = count[several]
        mine = np.repeat(several, number)  # of each pair of a plan and a way, which plan
        rank = np.arange(len(mine)) - np.repeat(np.cumsum(number) - number, number)
        pair = self.begin[plans[mine]] + rank
        least, taken = np.zeros(len(mine)), np.full(len(mine), np.inf)
        looks = [np.arange(len(mine))]
        many = np.flatnonzero(number[np.searchsorted(several, mine)] > MANY)
        if len(many):
            least[many] = bound(plans[mine[many]], pair[many])
            order = np.lexsort((least, mine))
            place = np.empty(len(mine), int)  # of a pair among those of its plan, by its bound
            place[order] = rank
            place = np.where(count[mine] > MANY, place, 0)
            between = pairwise([0, *LOOKS, np.inf])
            looks = [np.flatnonzero((place >= a) & (place < b)) for a, b in between]
        best = np.full(len(plans), np.inf)
        for look in looks:
            some = look[least[look] < best[mine[look]] * (1 - TIE)]
            if len(some):
                taken[some] = seconds(plans[mine[some]], pair[some])
                np.minimum.at(best, mine[some], taken[some])
        good = np.flatnonzero(taken <= best[mine] * (1 + TIE))
        way[mine[good][::-1]] = pair[good][::-1]  # the first is written last
        return way

    def leaner(self, plans: Array) -> tuple[Array, Array]:
        """(which of some plans, the way) of all ways that may need less memory."""
        number = self.count[plans]
        mine = np.repeat(np.arange(len(plans)), number)
        rank = np.arange(len(mine)) - np.repeat(np.cumsum(number) - number, number)
        way = self.begin[plans[mine]] + rank
        return mine[self.lean[way]], way[self.lean[way]]


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
    said = options.edges
    if (edges := pipeline.edges(model)) and len(edges) == 1 + p * v:
        said = said or edges
    if chunks <= 1:
        return [(0, units)]
    if len(said) == chunks + 1:
        return [tuple(said)]
    if not pipeline.cuts[0, 0] and (dealt := even_cuts(model, chunks)) is not None:
        return [tuple(dealt.tolist())]
    if said or options.ideal:
        return [(-1,) * (chunks + 1)]
    return ways_to_cut(model, p, v, bool(pipeline.vee[0, 0]))


def leanest(model: Model, ways: Array) -> Array:
    """Ways that are worth trying for memory: by what micro-batches keep, and by weights.

    Micro-batches in flight are all on each stage, or fewer the later it is.
    """
    stages, counts = ways.shape[1] - 1, model.pieces.counts
    found: dict[int, None] = {}
    for each in (counts @ model.kept, counts @ model.w):
        running = np.append(0.0, np.cumsum(each))
        chunks = running[ways[:, 1:]] - running[ways[:, :-1]]
        for flight in (np.ones(stages), np.arange(stages, 0, -1)):
            order = np.argsort((chunks * flight).max(axis=1), kind="stable")
            found.update(dict.fromkeys(order[:LEAN].tolist()))
    return np.array(list(found))

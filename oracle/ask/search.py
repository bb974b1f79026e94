"""The best plans for so many devices: every product of strategies, every knob that they want tried.

1. Every product of degrees is evaluated as usual, and sparing memory where it does not fit: first
   those whose work alone takes the least, then those that it does not make slower than any rival.
2. Products that could still beat the best that fits (by their seconds, whatever they hold) are
   evaluated over what spares memory and over the sizes of micro-batches.
3. Numbers that a knob may take (chunks of a stage, say) are scanned for the best products.
4. The best climb: any one knob is changed, any two, or a degree moved from one axis to another,
   until nothing is better. What takes long to price is tried of the few best that have its axis.

Whatever can be neither shown nor a rival, since its own work alone takes too long, is not priced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from oracle.ask import spending
from oracle.ask.bad_moments import steadiest_first
from oracle.ask.candidates import CLEARLY, NO_RIVAL, TIE, Candidates, Representative
from oracle.ask.climb import changed, climb
from oracle.ask.partitions import balanced, places
from oracle.ask.progress import counted, parts
from oracle.ask.ranking import Ranking
from oracle.ask.space import Floats, Space
from oracle.ask.spending import PAID
from oracle.models.model import Model
from oracle.plan import curvature, launchable
from oracle.plan.mesh import distinct
from oracle.plan.plan import Plan
from oracle.plan.strategies import strategies
from oracle.predict.estimate import estimate
from oracle.spec.document import refusal, suggest
from oracle.spec.options import Options
from oracle.spec.system import System

FIRST = 64  # products that are looked at before any is left out
KEPT = 48  # products whose knobs are turned, the most promising
BRIEFLY = 10  # likewise, in a brief search
STAGED = 5  # products with a pipeline, in a brief search: those of the least work
HOPELESS = 0.95  # in a brief search, of the best: whose work alone takes as long is left out
SCANNED = 12  # products whose numbers are scanned, of each axis that has some
FEW = (1.0, 4.0)  # samples of a micro-batch that are tried of every product
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0)  # and of the promising
NEAR = 0.5  # of a limit that may be missing where knobs have not been turned
SHARED = 4  # products whose replicas' shares are balanced
NEAREST = 5  # misses to show when nothing fits
STAGES = (2, 3, 1, 1, 5, 10)  # how long parts of a search take beside each other, roughly
RIVALS = 40  # products that may be the best, beside those that are shown


def recommend(
    model: Model, system: System, devices: int, batch: int, options: Options, *,
    only: Iterable[str] = (), without: Iterable[str] = (), top: int = 10,
    objective: str = "time", fastest: bool = False, risk: float = 0.05, lines: Any = None,
    brief: bool = False,
) -> Ranking:  # fmt: skip
    """Rank every product of strategies that uses the devices at this global batch.

    A plan fits if it does with a probability of 1 - `risk`. Of plans within 1 % of the best the
    simplest comes first, unless the `fastest` is wanted. A `brief` search turns no knobs beyond
    those that make a product fit: for questions that compare many machines.
    """
    if objective in PAID:
        spending.known(system, objective)
        ranking = recommend(
            model, system, devices, batch, options, only=only, without=without,
            top=max(top, spending.LOOKED_AT), objective="cost", risk=risk, lines=lines, brief=brief,
        )  # fmt: skip
        return spending.ranked(ranking, objective, top)
    options = replace(options, risk=risk)
    model = model.under(options.software.kernels)
    told_software = None if options.any_plan or options.ideal else options.software
    if told_software is not None and launchable.unshipped(told_software, model):
        hint = f"{launchable.instead(told_software)}, or --any"
        raise refusal("software", f"{told_software.name} ships no {model.name}", hint)
    known_strategies = (
        strategies() if told_software is None else launchable.strategies_of(told_software.launch)
    )
    if options.optimizer == "kfac":
        without = [*without, *curvature.undefined()]
    allowed = tuple(name for name in allowed_names(only, without) if name in known_strategies)
    counts = [devices]
    if objective == "cost":  # fewer devices may be cheaper for the same work
        counts = [d for d in range(1, devices + 1) if devices % d == 0]
    only = list(only)
    usual = tuple(name for name in allowed if name in only or not strategies()[name].resort)
    # what is slow is tried where nothing else fits
    resorts_asked = any(strategies()[name].resort for name in only)
    for names, last in ((usual, resorts_asked), (allowed, True)):
        pools: list[Candidates] = []
        seats = [
            (count, partitions_used)
            for count in counts
            for partitions_used in places(
                model, system, count, options, told_software, "on" not in without
            )
        ]
        for count, partitions_used in counted(seats):
            space = Space(
                model, count, batch, names, options.ideal, told_software, last, partitions_used
            )
            pool = Candidates(space, system, options, objective, lines, top,
                              HOPELESS if brief else None,
                              _others(pools, objective))  # fmt: skip
            explore(pool, max(FIRST, top), brief or partitions_used.several)
            pools.append(pool)
        _on_several(pools, brief)
        if any(pool.fits.any() for pool in pools):
            break
    if not any(len(pool.rows) for pool in pools):
        hint = "allow more with --only, or drop --without"
        raise refusal("plans", "no strategy is left to choose from", hint, "E112")
    every = [candidate for pool in pools for candidate in pool.settings()]
    fitting = sorted(
        (candidate for candidate in every if candidate.fits), key=lambda candidate: candidate.value
    )
    if fastest:
        fitting.sort(key=lambda candidate: candidate.least)
    elif objective == "time":
        fitting = _simplest_first(fitting)
    misses = sorted(
        (candidate for candidate in every if not candidate.fits),
        key=lambda candidate: candidate.short,
    )
    quickest = min(fitting, key=lambda candidate: candidate.least, default=None)
    best_value = np.inf if quickest is None else quickest.least
    rivals = [candidate for candidate in fitting[top : 0 if brief else RIVALS]
              if candidate.value < NO_RIVAL * best_value]  # fmt: skip
    risky = min((pool.riskier() for pool in pools), key=lambda candidate: candidate.value)
    dared = np.isfinite(risky.value) and risky.value < best_value * (1 - TIE)
    setting = "fastest" if fastest else "row"
    chosen = [
        _plans(fitting[:top], setting), _plans([] if brief and fitting else misses[:NEAREST]),
        _plans([quickest] if quickest else [], "fastest"), _plans(rivals, setting),
        _plans([risky] if dared else []),
    ]  # fmt: skip
    ends = np.cumsum([0, *map(len, chosen)]).tolist()
    plans = [plan for names in chosen for plan in names]
    table = estimate(model, system, plans, batch, options, lines)
    shown_plans, missed, first, rival_plans, riskier = (
        table.take(range(*span)) for span in pairwise(ends)
    )
    slower, given_up = (
        sum(getattr(pool, name) for pool in pools) for name in ("slower", "given_up")
    )
    ranking = Ranking(
        shown_plans, missed, len(every) + given_up, len(fitting), objective, devices, batch, first,
        rival_plans, riskier, slower, wanted=_wanted(pools),
    )  # fmt: skip
    return ranking if brief or fastest else steadiest_first(ranking, lines)


def _wanted(pools: Sequence[Candidates]) -> float | None:
    """Share of a device's memory that all products want at least, where none has any hope."""
    shares = [share for pool in pools for share in pool.hopeless.values()]
    every = sum(len(pool.space.products()) for pool in pools)
    return min(shares) if len(shares) == every > 0 else None


def _plans(chosen: Sequence[Representative], rows: str = "row") -> list[Plan]:
    return [candidate.pool.plan(getattr(candidate, rows)) for candidate in chosen]


def _simplest_first(fitting: list[Representative]) -> list[Representative]:
    """First the one of fewest axes, devices, bytes, of those that are as fast as the fastest.

    One that nobody runs comes first only where it wins clearly.
    """
    best_value = min((candidate.least for candidate in fitting), default=np.inf)
    near = [candidate for candidate in fitting if candidate.value <= best_value * (1 + TIE)]
    if not near:
        return fitting
    first = min(near, key=lambda candidate: candidate.simplicity)
    if first.unusual:
        clearly = best_value * (1 + CLEARLY)
        first = next((candidate for candidate in fitting
                      if candidate.value <= clearly and not candidate.unusual), first)  # fmt: skip
    return [first, *(candidate for candidate in fitting if candidate is not first)]


def explore(pool: Candidates, first: int, brief: bool = False) -> None:
    """Fill a pool with the candidates that are worth looking at, the `first` of least work."""
    with parts(*STAGES[: 4 if brief else None]) as done:
        _explore(pool, first, brief, done)


def _explore(pool: Candidates, first: int, brief: bool, done: Callable[[], None]) -> None:
    space = pool.space
    usual = space.usual(space.products())
    if not len(usual):  # no plan spans partitions so
        return
    if space.plain:
        _look(pool, usual)
        return
    order = np.argsort(pool.bound(usual), kind="stable")
    waits = _pipelined(space, usual)  # takes long to price, and is mostly slower: second
    if brief:
        order = np.array([*order[~waits[order]], *order[waits[order]][:STAGED]])
        usual, waits = usual[order], waits[order]
        order = np.arange(len(usual))
    quick = np.isin(np.arange(len(usual)), order[:first])
    _look(pool, usual[quick])
    if not pool.fits.any():
        pool.give_up(usual[:, : space.micro])
    done()
    _look(pool, pool.rivals(usual[~quick]))
    done()
    promising = _promising(pool, BRIEFLY if brief else KEPT)
    if len(promising):
        pool.add(_spared(space, space.usual(promising)))
    done()
    if brief:
        return
    _scan(pool)
    done()
    climb(pool)
    done()


def _others(pools: Sequence[Candidates], objective: str) -> Floats | None:
    """The least values of pools on other partitions; plans on fewer devices are told apart."""
    if objective != "time" or not pools:
        return None
    return np.concatenate([pool.leasts() for pool in pools])


def _on_several(pools: Sequence[Candidates], brief: bool) -> None:
    """Climb on from the best plan over several partitions; share the batch of replicas out."""
    several = [pool for pool in pools if pool.space.where.several and pool.fits.any()]
    if several and not brief:
        climb(min(several, key=lambda pool: pool.best()))
    for pool in several:
        _share_out(pool)


def _share_out(pool: Candidates) -> None:
    """Shares of the batch by which unlike replicas take as long, of the best plans."""
    space = pool.space
    if not space.where.shares or not len(pool.rows):
        return
    column = space.columns.index(("on", "shares"))
    best = pool.leading(SHARED)
    rows, plans = pool.rows[best], [pool.plan(number) for number in best]
    every = balanced(space.model, pool.system, plans, pool.options)
    shared_rows = [changed(row[None], column, value)
             for row, shares in zip(rows, every, strict=True) for value in shares]  # fmt: skip
    if shared_rows:
        pool.add(np.concatenate(shared_rows))


def _look(pool: Candidates, usual: Floats) -> None:
    """Evaluate candidates as usual, and sparing memory where they do not fit so."""
    space = pool.space
    if len(usual):
        cut = _cut(space, usual[_pipelined(space, usual)], FEW)
        pool.add(np.concatenate([usual, *cut]), lawful=False)
    if space.plain:
        return
    fitting = {*pool.degrees(pool.rows[pool.fits])}
    missed = usual[[name not in fitting for name in pool.degrees(usual)]]
    if len(missed):
        pool.add(space.sparing(missed))


def _cut(space: Space, rows: Floats, sizes: Sequence[float]) -> Iterator[Floats]:
    """The candidates with smaller micro-batches."""
    for size in sizes:
        yield changed(rows[space.share(rows) > size], space.micro, size)


def _pipelined(space: Space, rows: Floats) -> Any:
    """Whose batch is usually cut into micro-batches: an axis wants several in flight."""
    cuts_batch = np.zeros(len(rows), bool)
    for i, name in enumerate(space.limits):
        new = space.known[name]
        if any(not new.knobs()[knob].metadata.get("alone") for knob in new.batch_knobs()):
            cuts_batch |= rows[:, i] > 1
    return cuts_batch


def _promising(pool: Candidates, count: int) -> Floats:
    """Degrees that could beat the best that fits, by the least of their values whatever they hold.

    What lacks half its memory or more is left out: no knob that spares memory brought it near.
    """
    space, best = pool.space, pool.best()
    first, product = distinct(pool.rows[:, : space.micro])
    product_value, short = (np.full(len(first), np.inf) for _ in range(2))
    np.minimum.at(product_value, product, pool.value)
    np.minimum.at(short, product, pool.short)
    able = np.flatnonzero((short < NEAR) & (product_value < best * (1 + TIE)))
    able = able[np.argsort(product_value[able], kind="stable")][:count]
    return pool.rows[first[able], : space.micro]


def _spared(space: Space, rows: Floats) -> Floats:
    """Every setting of what spares memory, at every usual size of micro-batches."""
    table = np.concatenate([rows, *_cut(space, rows, SIZES)])
    for (name, knob), values in space.knobs.items():
        if knob in space.known[name].spares(space.model) or knob == "degree":
            column = space.columns.index((name, knob))
            table = np.concatenate([changed(table, column, value) for value in values])
    return table


def _scan(pool: Candidates) -> None:
    """Every number that a knob may take, for the best products of the axis that it is of."""
    space, tried = pool.space, []
    for column, (name, knob) in enumerate(space.columns):
        if name not in space.limits or knob == "degree" or not space.counted(column):
            continue
        wide = pool.rows[:, list(space.limits).index(name)] > 1
        best = pool.rows[pool.leading(SCANNED, wide & pool.hopeful)]
        rows = np.concatenate([best, *_cut(space, best, FEW)])
        tried += [changed(rows, column, value) for value in space.knobs[name, knob]]
    if tried:
        pool.add(np.concatenate(tried))


def allowed_names(only: Iterable[str], without: Iterable[str]) -> list[str]:
    """The strategies that are left to choose from; an unknown one is refused."""
    known_strategies = strategies()
    only, without = list(only), list(without)
    for word in (*only, *without):
        if word not in known_strategies:
            hint = suggest(word, known_strategies, "strategies")
            raise refusal("plans", f"no strategy is called `{word}`", hint, "E110")
    return [name for name in known_strategies if (not only or name in only) and name not in without]

"""Searches: a published one predicted from its rows of few nodes, closed forms against play."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.published import CARRIED, rows
from benchmarks.table import Table, figure
from oracle.run.searches import searches
from oracle.run.searches.genetic import Genetic
from oracle.run.searches.halving import Halving
from oracle.run.waves import makespan

PUBLISHED = Path(CARRIED).parent / "genetic_search.csv"
FITTED = 16  # nodes; rows beyond are predicted
RANDOM = 500  # runs of the random search that is one in the published table
BASE = 13_496 * 6.3 / RANDOM  # seconds of one run on one node, by the same author
# of one model on four nodes, data and model parallelism alone; and the table of all together
DATA, MODEL, TABLE = 3.5, 1.5, (11.0, 16.0, 38.0, 56.0)
CASES = [  # trials and workers
    (16, 16), (40, 16), (64, 16), (272, 64), (272, 128), (5, 4), (100, 7), (81, 9),
]  # fmt: skip
SPREADS = (0.1, 0.3, 0.5)  # of trials' times
PLAYED = 2000


def published() -> list[tuple[float, ...]]:
    """Nodes, generations, runs, seconds."""
    return [tuple(float(row[name]) for name in ("nodes", "generations", "runs", "seconds"))
            for row in rows(PUBLISHED)]  # fmt: skip


def law(found: Sequence[tuple[float, ...]]) -> tuple[float, float, float]:
    """m, g₁ and γ: a worker's trials, and g₁ (m N)^(-γ) ⌈m⌉ T_run through the seconds of rows.

    One run takes T_run whatever the search, so that seconds tell generations of whole waves.
    """
    nodes, generations, runs, seconds = (np.array(column) for column in zip(*found, strict=True))
    each = float(np.exp(np.mean(np.log(runs / generations / nodes))))
    whole = seconds / (math.ceil(each) * BASE)
    slope, level = np.polyfit(np.log(each * nodes), np.log(whole), 1)
    return each, float(np.exp(level)), float(-slope)


def predicted(nodes: float, each: float, first: float, shrink: float) -> float:
    """T = g(P) ⌈P/c⌉ T_run, with P = m N"""
    return first * (each * nodes) ** -shrink * makespan(math.ceil(each), 1) * BASE


def generations(found: Sequence[tuple[float, ...]]) -> tuple[float, float]:
    """g₁ and γ through the generations of rows, by their own populations."""
    _, count, runs, _ = (np.array(column) for column in zip(*found, strict=True))
    slope, level = np.polyfit(np.log(runs / count), np.log(count), 1)
    return float(np.exp(level)), float(-slope)


def played(
    stages: Sequence[Any], workers: int, spread: float, runs: int, draw: np.random.Generator
) -> float:
    """The mean time of stages whose trials are dealt out one by one to workers that are free."""
    sigma, total = math.sqrt(math.log1p(spread**2)), 0.0
    for stage in stages:
        times = np.exp(draw.normal(-(sigma**2) / 2, sigma, (runs, stage.trials)))
        ends = 0.0
        for one in times:
            free = list(one[:workers])
            heapq.heapify(free)
            for time in one[workers:]:
                heapq.heapreplace(free, free[0] + time)
            ends += max(free)
        total += stage.times * stage.share * ends / runs
    return total


def simulated(quick: bool) -> tuple[list[dict[str, Any]], float]:
    """Closed forms of every kind of search against trials that are played; the worst is off by."""
    draw, lines, worst = np.random.default_rng(0), [], 0.0
    for kind, search in searches().items():
        off = []
        for trials, workers in CASES[::3] if quick else CASES:
            one = search(population=trials) if kind == "genetic" else search()
            stages = one.stages(None if kind == "genetic" else trials, workers)
            for spread in SPREADS:
                closed = sum(each.times * each.share * makespan(each.trials, workers, spread)
                             for each in stages)  # fmt: skip
                runs = max(PLAYED // (10 if quick else 1), 100)
                off.append(closed / played(stages, workers, spread, runs, draw) - 1)
        far = max(off, key=abs)
        worst = max(worst, abs(far))
        lines.append(
            {
                "what": f"{kind}, closed form against play",
                "nodes": "",
                "off": f"{float(np.mean(np.abs(off))):.1%} on average, {far:+.1%} at most",
            }
        )
    return lines, worst


def stated() -> list[str]:
    """What is published of halving, in closed form."""
    alone = Halving(eta=4.0, fresh=True).stages(4096, 4096)
    longest = sum(each.share for each in alone)
    regrouped = Halving(eta=2.0, regroup=True).stages(8, 8)
    doubled = sum(each.share * each.trials / 8 for each in regrouped)
    return [
        f"ASHA within twice the time of one training (hpo.001): rungs of η = 4 take {longest:.2f}",
        f"RASDA up to 1.9 times as fast as ASHA (hpo.003): 8 trials whose devices go to those "
        f"left are {1 / doubled:.1f} times as fast if all scales perfectly; neither rungs nor "
        f"trials are stated",
        "ASHA in half of Vizier's time, linear in workers (hpo.000, hpo.002): of 500 workers "
        "nothing else is stated, and rungs here wait for each other: not compared",
    ]


def table(quick: bool = False) -> Table:
    """The published search, its combined table, and closed forms against play."""
    found = published()
    few = [row for row in found if row[0] <= FITTED]
    each, first, shrink = law(few)
    by_count = generations(few)
    lines, beyond, apart = [], [], []
    for nodes, count, _, seconds in found:
        took = predicted(nodes, each, first, shrink)
        other = predicted(nodes, each, *by_count)
        if nodes > FITTED:
            beyond.append(abs(took / seconds - 1))
            apart.append(abs(other / seconds - 1))
        lines.append({
            "what": "genetic search", "nodes": f"{nodes:g}", "generations": f"{count:g}",
            "seconds": f"{seconds:,.0f}", "predicted": f"{took:,.0f}",
            "off": f"{took / seconds - 1:+.1%}{'' if nodes > FITTED else ' (fitted)'}",
        })  # fmt: skip
    shipped = Genetic()
    ours = [predicted(nodes, 1.69, shipped.first, shipped.shrink) / seconds - 1
            for nodes, _, _, seconds in found]  # fmt: skip
    alone = RANDOM * BASE / next(row[3] for row in found if row[0] == 8)
    products = [alone, alone * MODEL, alone * DATA, alone * MODEL * DATA]
    for name, product, printed in zip(("search", "with model", "with data", "with both"), products,
                                      TABLE, strict=True):  # fmt: skip
        lines.append(
            {
                "what": f"product on 8 × 4 × 4 nodes: {name}",
                "seconds": f"{printed:g} ×",
                "predicted": f"{product:.3g} ×",
                "off": f"{product / printed - 1:+.1%}",
            }
        )
    more, worst = simulated(quick)
    off = [abs(product / printed - 1) for product, printed in zip(products, TABLE, strict=True)]
    return {
        "title": f"searches: g₁ = {first:.1f}, γ = {shrink:.3f}, m = {each:.2f} by rows of 1 to "
                 f"{FITTED} nodes", "rows": [*lines, *more],
        "figures": {
            "genetic.beyond": figure(max(beyond), "", "≤ 0.15"),
            "genetic.beyond_by_generations": figure(max(apart), "", ""),
            "genetic.shipped": figure(max(map(abs, ours)), "", ""),
            "genetic.shipped_mean": figure(float(np.mean(np.abs(ours))), "", "≤ 0.1"),
            "combined.product": figure(max(off), "", "≤ 0.05"),
            "closed_form.worst": figure(worst, "", "≤ 0.05"),
        },
        "notes": stated(),
    }  # fmt: skip

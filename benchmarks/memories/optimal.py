"""Optimal: what units do with their activations, against every other way of doing it.

Chains of random units, up to 14 of them, unlike or alike, under random room, links, micro-batches
in flight and prefetch; every choice of each unit is played, but for those that begin with what
takes longer already. The chains that estimates choose for are longer: what choosing takes is of
these.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from benchmarks.table import Table, figure
from oracle.plan.out_of_core import Chain, play
from oracle.plan.unit_choice import of_alike
from oracle.plan.unit_program import chosen
from oracle.plan.unit_search import Ways

CHAINS, UNITS, LONG = 200, 14, (24, 48, 96)
AT_ONCE = 2**15
NEAR = 1e-7  # relative, of two times that are the same


def chain(rng: np.random.Generator, units: int, alike: bool) -> Chain:
    """A random chain."""
    shape = (1, 1) if alike else (1, units)
    one = np.ones((1, units))
    forward, kept = rng.uniform(0.5, 2, shape) * one, rng.uniform(0.5, 2, shape) * one
    backward = forward * rng.uniform(1.6, 2.4, shape)
    given = kept * rng.uniform(0.05, 0.3, shape)
    copy = rng.uniform(0.2, 3) * forward.sum() / kept.sum()
    ahead = np.inf if alike or rng.random() < 0.7 else float(rng.integers(0, 3))

    def column(value: float) -> Any:
        return np.array([[value]])

    any_, work = one > 0, kept * rng.uniform(0, 0.3, shape)
    return Chain(
        forward, backward, kept, given, work, forward * one, any_, any_,
        column(rng.uniform(0.25, 0.95) * kept.sum()), column(float(rng.choice([1, 1, 2]))),
        column(copy), column(copy * float(rng.choice([0.7, 1.0]))), column(ahead), column(0.0),
    )  # fmt: skip


def every(one: Chain, depth: int, ways: Ways | None = None) -> Ways:
    """All words of the first units, each way of those before followed by each word that may be."""
    free, able = (bool(each.any()) for each in (one.free, one.able))
    words = [(out, made) for out in range(1 + free) for made in range(1 + able)]
    away, again = np.zeros((2, 1, 0), bool) if ways is None else ways
    for _ in range(depth - away.shape[1]):
        away, again = (
            np.concatenate([np.insert(each, each.shape[1], word[at], axis=1) for word in words])
            for at, each in enumerate((away, again))
        )
    return away, again


def best(one: Chain, known: float = np.inf) -> float:
    """The least seconds of all choices that fit, or what is known of one if none is better.

    Units are told what to do one after the other, and what cannot become better is left out: all
    units that were not told yet keep nothing, and are as one.
    """
    units, ways = one.forward.shape[1], every(one, 0)
    for depth in range(1, units + 1):
        ways = every(one, depth, ways)
        some = begun(one, depth)
        pad = [(0, 0), (0, some.forward.shape[1] - depth)]
        found = []
        for begin in range(0, len(ways[0]), AT_ONCE):
            part = [np.pad(each[begin : begin + AT_ONCE], pad) for each in ways]
            taken = play(some, part[0], part[1])
            found.append(np.where(taken.fits, taken.seconds, np.inf))
        seconds = np.concatenate(found)
        may = np.isfinite(seconds) & (seconds < known * (1 - NEAR))
        ways = ways[0][may], ways[1][may]
        if not may.any():
            return known
    return float(seconds[may].min())


def begun(one: Chain, depth: int) -> Chain:
    """The first units of a chain, and all others as one that keeps nothing."""
    units = one.forward.shape[1]
    if depth == units:
        return one
    few = {}
    for each in fields(one):
        value = getattr(one, each.name)
        if value.shape[1] == units > 1:
            rest = value[:, depth:].sum(axis=1, keepdims=True)
            if each.name not in ("forward", "backward"):
                rest = rest & False if rest.dtype == bool else 0.0 * rest
            few[each.name] = np.concatenate([value[:, :depth], rest], axis=1)
    return replace(one, **few)


def seconds(one: Chain, choose: Callable[[Chain], Any]) -> tuple[float, float]:
    """Of both passes with a choice, and CPU seconds that choosing took."""
    begin = time.process_time()
    picked = choose(one)
    took = time.process_time() - begin
    taken = play(one, *picked)
    return float(taken.seconds[0]) if taken.fits[0] else np.inf, took


def kinds(one: Chain) -> list[Chain]:
    """The same where units may leave or be made again, may do only the latter, only the former."""
    return [one, replace(one, free=one.free & False), replace(one, able=one.able & False)]


def table(quick: bool = False) -> Table:
    """How often the choice is the best there is, and how far from it at most."""
    rng, rows, figures = np.random.default_rng(0), [], {}
    chains, units = (CHAINS, UNITS) if not quick else (20, 8)
    for alike in (False, True):
        equal, off, asked = 0, 0.0, 0
        for number in range(chains):
            one = chain(rng, int(rng.integers(3, units + 1)), alike)
            one = kinds(one)[0 if number % 4 < 2 else number % 4 - 1]
            mine, _ = seconds(one, of_alike if alike else chosen)
            least = best(one, mine)
            asked += 1
            same = mine <= least * (1 + NEAR) or (np.isinf(mine) and np.isinf(least))
            equal += bool(same)
            off = max(off, 0.0 if same else mine / least - 1)
        name = "folded" if alike else "chains"
        rows.append({"units": "alike" if alike else "unlike", "chains": asked,
                     "as brute force": equal, "off at most": f"{off:.2%}"})  # fmt: skip
        figures[f"{name}.equal"] = figure(equal / asked, "", "1")
        figures[f"{name}.off"] = figure(off, "", "0")
    for count in LONG[: 1 if quick else None]:
        times = {False: [], True: []}  # type: dict[bool, list[float]]
        ratio = []
        for _ in range(3 if quick else 8):
            times[False].append(seconds(chain(rng, count, False), chosen)[1])
            one = chain(rng, count, True)
            mine, took = seconds(one, of_alike)
            times[True].append(took)
            other, _ = seconds(one, chosen)
            ratio.append(mine / other if np.isfinite(other) else 1.0)
        rows.append({"units": f"{count}", "program s": f"{np.median(times[False]):.3f}",
                     "at most s": f"{max(times[False]):.3f}",
                     "folded s": f"{np.median(times[True]):.4f}",
                     "folded / program": f"{max(ratio):.4f}"})  # fmt: skip
        figures[f"program.{count}.seconds"] = figure(np.median(times[False]), "s", "≤ 1")
        figures[f"folded.{count}.ratio"] = figure(max(ratio), "", "1")
    notes = ["a program stops after so many nodes, with the best that it has found by then"]
    return {"title": "optimal: choices of units against all there are", "rows": rows,
            "figures": figures, "notes": notes}  # fmt: skip

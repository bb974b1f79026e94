"""Fits the widths of `oracle.spec.doubt` to all published tables: `benchmarks.doubt --fit`.

`SOFTWARE`, `HIDES` and `LAYOUT` are how far predictions move where nobody says what ran a table:
no measured step enters. The greatest likelihood, each table worth as much as any other, of

    ln(seconds by `plain` / seconds by its software)
        ~ N(0, (SOFTWARE device)² + (HIDES exposed)² + (LAYOUT convolved)²)

The others are fitted to how often the interval holds, as tables are and with kernels or network
left out:

    loss = Σ weight (ln(1 + D/2) + WIDTH ln(mean width)) + Σ (ln(constant / ROUND) / PRIOR)² / 2
    D    = 2 n (c ln(c/0.9) + (1 - c) ln((1 - c)/0.1)) of the coverage c of n configurations

The logarithm keeps a table whose rows err alike from being worth as much as it has rows; tables as
they are weigh `WHOLE` times as much. A row is inside by degrees, `EDGE` wide, so that the loss is
smooth. Beside the constants for all, each table is judged by those fitted to all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from oracle.predict.uncertainty import EITHER, UPWARDS, Uncertainty
from oracle.spec.doubt import NINETY, WIDTHS

Array = NDArray[np.float64]
EDGE = 0.01  # of a row, in the logarithm of seconds
WIDTH = 0.1
WHOLE = 3.0
ROUND = {"STEP": 0.08, "HOST": 0.25, "MORE": 0.07, "INPUT": 0.2}  # what a fit starts from
PRIOR = 0.15  # how far it may be from that, 1σ, in the logarithm
MOVED = {"SOFTWARE": 0.18, "HIDES": 0.3, "LAYOUT": 0.3}
STEPS = (0.3, 0.1, 0.03)  # of a constant, relative, one after the other
LEAST = 0.01  # that a constant can be


@dataclass(frozen=True)
class Rows:
    """Configurations of one table, with one kind of knowledge left out, relative to their step."""

    table: str
    without: str
    ratio: Array  # ln(measured / predicted)
    given: tuple[Array, Array]  # variance of what is not fitted: either way, upwards
    parts: dict[str, Array]

    @classmethod
    def of(cls, table: str, without: str, measured: Iterable[float], work: Sequence[Any]) -> Rows:
        """What was measured of each step beside what it was priced from."""
        asked: list[tuple[Uncertainty, int]] = [
            (each.block.step.uncertainty, each.row) for each in work
        ]
        seconds = np.array([known.seconds[row] for known, row in asked])
        given = np.array([[side[row] for side in known.given] for known, row in asked])
        parts = {
            name: np.array([known.parts[name][row] for known, row in asked]) / seconds
            for name in (*EITHER, *UPWARDS)
        }
        either, upwards = (given / seconds[:, None] ** 2).T
        return cls(
            table, without, np.log(np.array([*measured]) / seconds), (either, upwards), parts
        )

    def bounds(self, widths: dict[str, float]) -> tuple[Array, Array]:
        """Of the 90 % interval, as logarithms of the prediction's multiple."""
        either, upwards = (
            variance + sum((widths[name] * self.parts[name]) ** 2 for name in names)
            for names, variance in zip((EITHER, UPWARDS), self.given, strict=True)
        )
        return -NINETY * np.sqrt(either), NINETY * np.sqrt(either + upwards)

    def inside(self, widths: dict[str, float]) -> int:
        """How many of them the interval holds."""
        low, high = self.bounds(widths)
        return int(((low <= self.ratio) & (self.ratio <= high)).sum())

    def loss(self, widths: dict[str, float]) -> float:
        """How far the interval is from holding nine of ten of them, and how wide it is."""
        low, high = self.bounds(widths)
        held = expit((high - self.ratio) / EDGE) * expit((self.ratio - low) / EDGE)
        c = float(np.clip(held.mean(), 1e-3, 1 - 1e-4))
        off = 2 * len(held) * (c * np.log(c / 0.9) + (1 - c) * np.log((1 - c) / 0.1))
        loss = np.log1p(max(off, 0.0) / 2) + WIDTH * np.log((high - low).mean())
        return float(loss * (1.0 if self.without else WHOLE))


def moved(rows: Sequence[Rows]) -> list[tuple[Array, ...]]:
    """By table: how far predictions move without their software, and what moves with each width."""
    found = []
    for whole in (each for each in rows if not each.without):
        named = whole.parts["SOFTWARE"] == 0  # rows that nobody said the software of cannot move
        for bare in rows:
            if (bare.table, bare.without) == (whole.table, "software") and named.any():
                shift = (whole.ratio - bare.ratio)[named]
                parts = (bare.parts[name][named] for name in MOVED)
                found.append((shift, *parts))
    return found


def fitted(rows: Sequence[Rows]) -> dict[str, float]:
    """All constants, of greatest likelihood and of least loss."""
    shifts = moved(rows)

    def unlikely(widths: dict[str, float]) -> float:
        variances = [sum((widths[name] * p) ** 2 for name, p in zip(MOVED, parts, strict=True))
                     for _, *parts in shifts]  # fmt: skip
        return sum(float(np.mean(np.log(v) + d**2 / v))
                   for (d, *_), v in zip(shifts, variances, strict=True))  # fmt: skip

    software = least(unlikely, MOVED)
    known = [each for each in rows if each.without != "software"]

    def off(widths: dict[str, float]) -> float:
        far = sum((np.log(widths[name] / ROUND[name]) / PRIOR) ** 2 / 2 for name in ROUND)
        return far + sum(each.loss(widths | software) for each in known)

    return least(off, ROUND) | software


def least(loss: Callable[[dict[str, float]], float], start: dict[str, float]) -> dict[str, float]:
    """Constants of least loss: one after the other up or down, by ever smaller steps."""
    best = dict(start)
    lowest = loss(best)
    for step in STEPS:
        goes = True
        while goes:
            goes = False
            for name in best:
                for factor in (1 + step, 1 / (1 + step)):
                    tried = best | {name: max(best[name] * factor, LEAST)}
                    found = loss(tried)
                    if found < lowest - 1e-6:
                        best, lowest, goes = tried, found, True
    return best


def report(rows: Sequence[Rows], chances: Callable[[int, int], tuple[float, float]]) -> str:
    """The constants, and how often each table's rows are inside by those of all other tables."""
    names = list(dict.fromkeys(each.table for each in rows))
    out = [f"shipped:         {spoken(WIDTHS)}", f"by all tables:   {spoken(fitted(rows))}"]
    rejected: dict[str, int] = {}
    for name in names:
        others = fitted([each for each in rows if each.table != name])
        out.append(f"by all but {name}: {spoken(others)}")
        for each in (each for each in rows if each.table == name):
            count = len(each.ratio)
            inside, now = each.inside(others), each.inside(WIDTHS)
            p, shipped = chances(inside, count)[0], chances(now, count)[0]
            rejected[each.without] = rejected.get(each.without, 0) + (p < 0.05)
            out.append(f"  {each.without or '-':<10}{count:>5}{inside / count:>8.1%}  p {p:.3f}"
                       f"   by the shipped {now / count:.1%}  p {shipped:.3f}")  # fmt: skip
    said = ", ".join(f"{name or 'whole'} {count}" for name, count in rejected.items())
    return "\n".join([*out, f"rejected where others were fitted, of {len(names)}: {said}"])


def spoken(widths: dict[str, float]) -> str:
    """The constants in one line."""
    return ", ".join(f"{name} {widths[name]:.3f}" for name in (*EITHER, *UPWARDS))

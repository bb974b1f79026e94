"""Every way to use the devices, evaluated at once and ranked.

A candidate is a product of strategies whose degrees multiply to the number of devices; its
knobs (micro-batches, sharding stage, recomputation) are tried over the few values that matter
and the best feasible setting stands for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oracle.ask.ranking import Ranking
from oracle.models.model import Model
from oracle.plan.plan import Plan, join
from oracle.plan.strategies import strategies
from oracle.predict import evaluate
from oracle.predict.estimate import estimate
from oracle.spec.document import refusal, suggest
from oracle.spec.options import Options
from oracle.spec.system import System

KEPT = 32  # products that get their knobs turned, and three times as many that do not fit yet
NEAREST = 5  # misses to show when nothing fits


def recommend(
    model: Model, system: System, devices: int, batch: int, options: Options, *,
    only: Iterable[str] = (), without: Iterable[str] = (), top: int = 10,
    objective: str = "time", lines: Any = None,
) -> Ranking:  # fmt: skip
    """Rank every product of strategies that uses the devices at this global batch."""
    allowed = _allowed(model, only, without)
    counts = [devices]
    if objective == "cost":  # fewer devices may be cheaper for the same work
        counts = [d for d in range(1, devices + 1) if devices % d == 0]
    score: list[Any] = []
    exact: list[Any] = []
    fits: list[Any] = []
    miss: list[Any] = []
    texts: list[Plan] = []
    keys: list[Any] = []
    for count in counts:
        grid = Grid(model, count, batch, allowed, options)
        for plain in (True, False):  # every product plainly, then the knobs where they may help
            tables = list(grid.tables(plain))
            at = len(score)
            for _, part in (
                evaluate.blocks(model, system, join(tables), options, lines) if tables else ()
            ):
                score.append(_score(part, objective))
                exact.append(_value(part, objective))
                fits.append(part.feasible)
                miss.append(_shortage(part))
                texts.append(part.plan)
                keys.append(_degrees(part.plan))
            if plain and len(score) > at:
                grid.keep(*(np.concatenate(column[at:]) for column in (keys, score, fits, miss)))
    if not score:
        hint = "allow more with --only, or drop --without"
        raise refusal("plans", "no strategy is left to choose from", hint, "E112")
    value, fitting, short = np.concatenate(score), np.concatenate(fits), np.concatenate(miss)
    key, worth = np.concatenate(keys), np.concatenate(exact)
    owner = np.concatenate([np.full(len(plan), i) for i, plan in enumerate(texts)])
    inside = np.concatenate([np.arange(len(plan)) for plan in texts])

    def name(row: int) -> Plan:
        return texts[int(owner[row])][[int(inside[row])]]

    order = np.argsort(np.where(fitting, value, np.inf), kind="stable")
    # a product is shown with its plainest good setting, products in the order of what was asked
    best = _first_of_each(order[: np.count_nonzero(fitting)], key, 4 * top)
    best = sorted(best, key=lambda row: float(worth[row]))[:top]
    nearest = _first_of_each(
        [row for row in np.argsort(short, kind="stable") if not fitting[row]][:200], key, NEAREST
    )
    shown = estimate(model, system, [name(r) for r in best], batch, options, lines)
    missed = estimate(model, system, [name(r) for r in nearest], batch, options, lines)
    tried, kinds = (len(set(keys.tolist())) for keys in (key, key[fitting]))
    return Ranking(shown, missed, tried, kinds, objective, devices, batch)


def _score(part: evaluate.Block, objective: str) -> Any:
    """What is ranked by; a knob that gains less than two percent stays plain."""
    plan = part.plan
    turned = (plan.axis("data").zero > 0) * 1.0 + (plan.axis("recompute").mode > 0)
    turned = turned + (plan.axis("data").accumulate > 1)
    return _value(part, objective) * (1 + 0.02 * turned[:, 0])


def _value(part: evaluate.Block, objective: str) -> Any:
    if objective == "memory":
        return part.held.total
    if objective == "cost":
        return part.seconds * part.plan.devices[:, 0]
    return part.seconds


def _shortage(part: evaluate.Block) -> Any:
    """How far a plan is from feasible: the sum over broken limits of how much is missing."""
    over = [np.maximum(rule.wanted / np.maximum(rule.allowed, 1e-9), 1) - 1 for rule in part.rules]
    broken = sum(o > 0 for o in over)
    return 10.0 * (broken - 1) + np.minimum(sum(over), 1e6)


def _degrees(plan: Plan) -> Any:
    """One number for each product of strategies, whatever its knobs."""
    found = np.zeros(len(plan))
    for i, axis in enumerate(sorted(plan.axes, key=lambda axis: axis.nearness)):
        if axis.degrees:
            found = found + np.sqrt(2.0 + 1.3 * i) * axis.degree[:, 0]
    return found.round(9)


def _first_of_each(rows: Iterable[int], key: Any, most: int) -> list[int]:
    seen: dict[float, int] = {}
    for row in rows:
        seen.setdefault(float(key[row]), int(row))
        if len(seen) >= most:
            break
    return list(seen.values())


def _allowed(model: Model, only: Iterable[str], without: Iterable[str]) -> list[str]:
    known = strategies()
    only, without = list(only), list(without)
    for word in (*only, *without):
        if word not in known:
            hint = suggest(word, known, "strategies")
            raise refusal("plans", f"no strategy is called `{word}`", hint, "E110")
    return [name for name in known if (not only or name in only) and name not in without]


class Grid:
    """Every product of degrees, and the knobs worth trying for each."""

    def __init__(
        self, model: Model, devices: int, batch: int, allowed: Sequence[str], options: Options
    ) -> None:
        self.model, self.batch, self.allowed, self.options = model, batch, allowed, options
        known = strategies()
        limits = {
            name: int(min(np.max(known[name]().limit(model, batch)), devices))
            for name in allowed
            if known[name].degrees and known[name].multiplies
        }
        if "data" in limits:  # sharding is a knob of `data`; as an axis it is for hybrids, by hand
            limits.pop("sharded", None)
        self.axes = [name for name, limit in limits.items() if limit > 1]
        rows = _products(devices, tuple(limits[name] for name in self.axes))
        if not rows:  # too many devices for every product: show how far off the widest is
            rows = [tuple(min(devices, limits[name]) for name in self.axes)]
        self.rows = np.array(rows, float).reshape(len(rows), len(self.axes))

    def keep(self, key: Any, score: Any, fits: Any, miss: Any) -> None:
        """Only products that are fast, or would be if they fitted, get their knobs turned."""
        own = _degrees(next(self.tables(True, bare=True)))
        short = (miss > 0) & (miss < 1e5)
        fast = key[np.argsort(np.where(fits, score, np.inf), kind="stable")][: 4 * KEPT]
        near = key[np.argsort(np.where(short, score, np.inf), kind="stable")][: 16 * KEPT]
        chosen = {*[*dict.fromkeys(fast.tolist())][:KEPT],
                  *[*dict.fromkeys(near.tolist())][: 3 * KEPT]}  # fmt: skip
        self.rows = self.rows[[each in chosen for each in own.tolist()]]

    def tables(self, plain: bool, bare: bool = False) -> Iterator[Plan]:
        """One table a setting of the knobs; `bare`: the degrees alone."""
        known, rows = strategies(), self.rows
        for knobs in [Knobs()] if bare else settings(self.model, self.allowed, self.options):
            if not bare and knobs.plain != plain:
                continue
            columns = {name: {"degree": rows[:, i]} for i, name in enumerate(self.axes)}
            keep = np.ones(len(rows), bool)
            if not bare:
                keep = self.turn(columns, knobs)
            if keep.any():
                cut = {
                    n: {k: np.asarray(v)[keep] for k, v in c.items()} for n, c in columns.items()
                }
                yield Plan.of(self.batch, *(new(**cut.get(n, {})) for n, new in known.items()))

    def turn(self, columns: dict[str, dict[str, Any]], knobs: Knobs) -> Any:
        """Set the knobs in place; which rows this setting is a setting of its own for."""
        ones = np.ones(len(self.rows))
        p = columns["pipeline"]["degree"] if "pipeline" in columns else ones
        replicas = columns["data"]["degree"] if "data" in columns else ones
        share = np.maximum(np.ceil(self.batch / replicas), 1)
        size = knobs.micro or share
        pieces = np.maximum(np.floor(share / size), 1)
        # no two settings that come to the same
        keep = (size <= share) & ((pieces * size == share) | (np.asarray(size) == 1))
        if knobs.micro:
            keep &= (knobs.micro < share) | (p > 1)
            keep &= ("data" in columns) | (p > 1)
            if knobs.plain:  # a batch is cut where a pipeline asks for it; elsewhere, as a knob
                keep &= p > 1
        if "pipeline" in columns:
            columns["pipeline"] |= {"segments": np.where(p > 1, pieces, 1)}
        if "data" in columns:
            columns["data"] |= {"accumulate": np.where(p > 1, 1, pieces)}
            columns["data"] |= {"zero": np.where(replicas > 1, knobs.zero, 0)}
        keep &= (replicas > 1) | (knobs.zero == 0)
        if "tensor" in columns:
            columns["tensor"] |= {"sequence": columns["tensor"]["degree"] > 1}
        if knobs.recompute:
            columns["recompute"] = {"mode": ones * knobs.recompute}
        if knobs.expert > 1:
            columns["expert"] = {"degree": ones * knobs.expert}
            keep &= replicas % knobs.expert == 0
        return keep


@dataclass(frozen=True, slots=True)
class Knobs:
    """Micro-batch size (0: the whole share), sharding stage, recomputation, expert degree."""

    micro: int = 0
    zero: int = 0
    recompute: int = 0
    expert: int = 1

    @property
    def plain(self) -> bool:
        return not self.recompute and not self.zero and self.micro in (0, 1, 4)


def settings(model: Model, allowed: Sequence[str], options: Options) -> list[Knobs]:
    """Settings worth trying, plainest first."""
    if options.ideal:
        return [Knobs(micro) for micro in ((0, 1, 4) if "pipeline" in allowed else (0,))]
    tokens = bool(model.tokens.any())
    experts = max([row.experts for row in model.rows], default=0)
    return [
        Knobs(micro, zero, mode, expert)
        for mode in (((0, 1, 2) if tokens else (0, 2)) if "recompute" in allowed else (0,))
        for zero in ((0, 1, 3) if tokens else (0, 3))
        for micro in ((0, 1, 2, 4, 8) if tokens else (0, 4, 16))
        for expert in (1, 2, 4, 8, 16, 32, 64)
        if expert == 1 or (expert <= experts and "expert" in allowed)
    ]


@lru_cache(maxsize=256)
def _products(n: int, limits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to write n as a product of degrees, each within its limit."""
    if not limits:
        return [()] if n == 1 else []
    rest = limits[1:]
    return [
        (d, *more)
        for d in range(1, min(n, limits[0]) + 1) if n % d == 0
        for more in _products(n // d, rest)
    ]  # fmt: skip

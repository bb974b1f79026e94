"""Every way to use the devices, evaluated at once and ranked.

A candidate is a product of strategies whose degrees multiply to the number of devices; its
knobs (micro-batches, sharding stage, recomputation) are tried over the few values that matter
and the best feasible setting stands for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from oracle import evaluate
from oracle.document import Fault, Place, SpecError, suggest
from oracle.prediction import Estimate, Options, estimate
from oracle.models import Model
from oracle.plan import Plan
from oracle.specs import System
from oracle.strategies import strategies

MOST = 60_000  # candidates before knobs are thinned out
NEAREST = 5  # misses to show when nothing fits


@dataclass(frozen=True, eq=False)
class Ranking:
    """Feasible plans, best first; and what came nearest among the others."""

    estimate: Estimate  # the plans to show, best first
    misses: Estimate  # infeasible plans, the smallest shortage first
    tried: int
    fitting: int
    objective: str
    devices: int
    batch: int

    def __len__(self) -> int:
        return len(self.estimate)

    @property
    def best(self) -> str:
        """The plan to launch."""
        if not len(self.estimate):
            raise LookupError("no plan fits: see `misses`")
        return self.estimate.plans[0]

    def table(self) -> Any:
        """A pandas DataFrame, best plan first."""
        return self.estimate.table()

    def to_dict(self, with_misses: bool = False) -> dict[str, Any]:
        """The published JSON form; infeasible plans follow when asked for."""
        found = (self.estimate if len(self.estimate) else self.misses).to_dict()
        ranked = [self.estimate.plan_dict(row, row + 1) for row in range(len(self.estimate))]
        missed = [self.misses.plan_dict(row) for row in range(len(self.misses))]
        show = missed if with_misses or not ranked else []
        best = self.likely_best()
        for row, entry in enumerate(ranked):
            entry["probability_best"] = float(best[row])
        return {
            **found, "devices": self.devices, "batch": self.batch, "objective": self.objective,
            "tried": self.tried, "fitting": self.fitting, "plans": [*ranked, *show],
        }  # fmt: skip

    def likely_best(self, draws: int = 2000) -> Any:
        """How likely each shown plan is the fastest, given how sure each prediction is.

        Two plans of one model on one machine err together: what they share cancels out, and
        half of the variance is taken to be shared.
        """
        shown = self.estimate
        if not len(shown):
            return np.zeros(0)
        rng = np.random.default_rng(0)
        spread = shown.deviation / shown.seconds * np.sqrt(0.5)
        times = np.log(shown.seconds) + spread * rng.standard_normal((draws, len(shown)))
        return np.bincount(times.argmin(axis=1), minlength=len(shown)) / draws

    def _repr_html_(self) -> str:
        columns = ["plan", "seconds", "seconds_low", "seconds_high", "memory", "feasible"]
        return str(self.table()[columns].to_html())


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
    score, fits, miss, texts, keys = [], [], [], [], []
    for count in counts:
        for plan in candidates(model, system, count, batch, allowed, options):
            for _, part in evaluate.blocks(model, system, plan, options, lines):
                score.append(_score(part, objective))
                fits.append(part.feasible)
                miss.append(_shortage(part))
                texts.append(part.plan)
                keys.append(_degrees(part.plan))
    if not score:
        raise SpecError("plans", [Fault("E112", "no strategy is left to choose from", Place(),
                                        "allow more with --only, or drop --without")])  # fmt: skip
    value, fitting, short = np.concatenate(score), np.concatenate(fits), np.concatenate(miss)
    key = np.concatenate(keys)
    owner = np.concatenate([np.full(len(plan), i) for i, plan in enumerate(texts)])
    inside = np.concatenate([np.arange(len(plan)) for plan in texts])

    def name(row: int) -> Plan:
        return texts[owner[row]][[int(inside[row])]]

    order = np.argsort(np.where(fitting, value, np.inf), kind="stable")
    best = _first_of_each(order[: np.count_nonzero(fitting)], key, top)
    nearest = _first_of_each(
        [row for row in np.argsort(short, kind="stable") if not fitting[row]][:200], key, NEAREST
    )
    shown = estimate(model, system, [name(r) for r in best], batch, options, lines)
    missed = estimate(model, system, [name(r) for r in nearest], batch, options, lines)
    kinds = len(np.unique(key[fitting])) if fitting.any() else 0
    return Ranking(shown, missed, len(np.unique(key)), kinds, objective, devices, batch)


def _score(part: evaluate.Block, objective: str) -> Any:
    if objective == "memory":
        return part.held.total
    if objective == "cost":
        return part.seconds * part.plan.devices[:, 0]
    return part.seconds


def _shortage(part: evaluate.Block) -> Any:
    """How far a plan is from feasible: the sum over broken limits of how much is missing."""
    over = [np.maximum(wanted / np.maximum(allowed, 1e-9), 1) - 1 for wanted, allowed in part.limits.values()]
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
            raise SpecError("plans", [Fault("E110", f"no strategy is called `{word}`", Place(), hint)])
    return [name for name in known if (not only or name in only) and name not in without]


def candidates(
    model: Model, system: System, devices: int, batch: int, allowed: Sequence[str], options: Options
) -> Iterator[Plan]:
    """Tables of plans: every product of degrees, and the knobs worth trying for each."""
    known = strategies()
    limits = {
        name: int(min(np.max(known[name]().limit(model, batch)), devices))
        for name in allowed
        if known[name].degrees and known[name].multiplies
    }
    if "sharded" in limits and "data" in limits:
        limits.pop("sharded")  # a knob of `data`; as an axis it is for hybrid sharding, by hand
    if options.ideal and "channel" in limits and "filter" in limits:
        pass  # the published table ranks both: they tie
    axes = [name for name, limit in limits.items() if limit > 1]
    rows = np.array(_products(devices, tuple(limits[name] for name in axes)), dtype=float)
    if not len(rows):
        rows = np.array([[min(devices, limits[name]) for name in axes]], dtype=float)
    degree = {name: rows[:, i] for i, name in enumerate(axes)}
    ones = np.ones(len(rows))
    p = degree.get("pipeline", ones)
    replicas = degree.get("data", ones) * degree.get("sharded", ones)
    share = np.maximum(np.ceil(batch / replicas), 1)
    found: list[dict[str, dict[str, Any]]] = []
    for knobs in _knobs(model, allowed, options, len(rows)):
        size = knobs.get("micro", 0)
        pieces = np.maximum(np.floor(share / size), 1) if size else ones
        columns = {name: {"degree": degree[name]} for name in axes}
        keep = np.ones(len(rows), bool)
        if "pipeline" in columns:
            columns["pipeline"] |= {"segments": np.where(p > 1, pieces, 1)}
        if "data" in columns:
            columns["data"] |= {
                "accumulate": np.where(p > 1, 1, pieces),
                "zero": np.where(degree["data"] > 1, knobs.get("zero", 0), 0),
            }
            if knobs.get("zero", 0):
                keep &= degree["data"] > 1
        elif size and size < share.max():
            keep &= p > 1
        if "tensor" in columns:
            columns["tensor"] |= {"sequence": np.where(degree["tensor"] > 1, 1, 0)}
        if knobs.get("mode", 0):
            columns["recompute"] = {"mode": np.full(len(rows), knobs["mode"])}
        if knobs.get("expert", 1) > 1:
            spread = np.gcd(degree.get("data", ones).astype(int), int(knobs["expert"]))
            columns["expert"] = {"degree": spread}
            keep &= spread == knobs["expert"]
        if size:  # no two settings that come to the same
            keep &= (size <= share) & ((size == share) | (pieces * size == share) | (size == 1))
        if keep.any():
            found.append({n: {k: np.asarray(v)[keep] for k, v in c.items()} for n, c in columns.items()})
    for columns in found:
        axes_built = [known[name](**values) for name, values in columns.items()]
        yield Plan.of(batch, *axes_built)


def _knobs(model: Model, allowed: Sequence[str], options: Options, products_: int) -> Iterator[dict[str, int]]:
    """Settings worth trying: micro-batch size, sharding stage, recomputation, expert degree."""
    if options.ideal:
        yield {}
        yield from ({"micro": size} for size in (1, 4) if "pipeline" in allowed)
        return
    tokens = bool(model.tokens.any())
    micro = (1, 2, 4, 8) if tokens else (0, 8, 32)
    zero = (0, 1, 3) if tokens else (0, 3)
    mode = (0, 1, 2) if tokens else (0, 2)
    mode = mode if "recompute" in allowed else (0,)
    experts = max([row.experts for row in model.rows], default=0)
    spread = tuple(e for e in (1, 2, 4, 8, 16, 32, 64) if e <= max(experts, 1)) if "expert" in allowed else (1,)
    settings = list(product(micro, zero, mode, spread))
    if products_ * len(settings) > MOST:
        settings = [s for s in settings if s[0] in (micro[0], micro[-2]) and s[1] != 3]
    for size, stage, again, dealt in settings:
        yield {"micro": size, "zero": stage, "mode": again, "expert": dealt}


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

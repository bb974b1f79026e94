"""How near predictions are to runs: by what was known, strategy, engine and what bounds steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

KNOWN = ("machine", "one", "own")  # of compute, the least first
GOALS = {"machine": 0.85, "one": 0.94, "own": 0.94}  # of the mean accuracy, by what was known
BY_STRATEGY, ENGINE, BIAS = 0.88, 0.92, 0.03
INSIDE, DOUBT = 0.90, 0.05  # share that an interval is to hold; p below which that is rejected


@dataclass(frozen=True)
class Row:
    """Predicted and measured time of one plan."""

    setting: str
    kind: str  # what bounds its steps: see Setting
    model: str
    plan: str
    strategy: str
    engine: str
    known: str  # of compute: see KNOWN
    predicted: float
    low: float
    high: float
    measured: float
    spread: float  # of the steps, relative
    parts: dict[str, float]  # predicted compute and exchange
    took: dict[str, float]  # measured
    late: float  # of what was measured, what its messages waited for ranks that were late

    @property
    def accuracy(self) -> float:
        return 1 - abs(self.predicted - self.measured) / self.measured

    @property
    def bias(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def covered(self) -> bool:
        return self.low <= self.measured <= self.high


def figures(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """By what was known: accuracy, by strategy and engine too, bias, ranking, intervals."""
    found: dict[str, dict[str, Any]] = {}

    def put(name: str, value: float, unit: str = "", goal: str = "") -> None:
        found[f"closed_loop.{name}"] = {"value": round(float(value), 4), "unit": unit, "goal": goal}

    put("runs", len({(r.setting, r.model, r.engine, r.plan) for r in rows}), "plans", ">= 30")
    for known in dict.fromkeys(row.known for row in rows):
        mine = [row for row in rows if row.known == known]
        put(f"{known}.accuracy", _mean(mine), "", f">= {GOALS[known]}")
        put(f"{known}.bias", statistics.mean(r.bias for r in mine), "", f"within {BIAS}")
        for kind in dict.fromkeys(row.kind for row in mine):
            put(f"{known}.{kind}.accuracy", _mean(row for row in mine if row.kind == kind))
        for engine in dict.fromkeys(row.engine for row in mine):
            own = [row for row in mine if row.engine == engine]
            if engine != "native":
                put(f"{known}.{engine}.accuracy", _mean(own), "", f">= {ENGINE}")
                late = statistics.mean(row.late / row.measured for row in own)
                put(f"{known}.{engine}.late", late, "of a step, waiting for late ranks")
            for strategy in sorted({row.strategy for row in own}):
                put(f"{known}.{engine}.{strategy}.accuracy",
                    _mean(row for row in own if row.strategy == strategy), "",
                    f">= {BY_STRATEGY}")  # fmt: skip
        taus, regrets = _ranked(mine)
        if taus:
            put(f"{known}.tau", statistics.mean(taus))
            put(f"{known}.regret", statistics.mean(regrets))
            put(f"{known}.picks_within_3_percent", statistics.mean(r <= 0.03 for r in regrets), "",
                ">= 0.90")  # fmt: skip
        inside = sum(row.covered for row in mine)
        put(f"{known}.inside", inside / len(mine), "", f"{INSIDE}")
        put(f"{known}.inside_p", binomial(inside, len(mine), INSIDE), "", f">= {DOUBT}")
    put("noise", statistics.median(r.spread for r in rows), "relative, of repeats")
    return found


def _mean(rows: Iterable[Row]) -> float:
    return statistics.mean(row.accuracy for row in rows)


def binomial(inside: int, count: int, share: float) -> float:
    """Chance of a count as unlikely as this one, if each holds with this chance.

    >>> round(binomial(3, 4, 0.5), 4), binomial(2, 4, 0.5)
    (0.625, 1.0)
    """
    chance = [math.comb(count, k) * share**k * (1 - share) ** (count - k)
              for k in range(count + 1)]  # fmt: skip
    return min(1.0, sum(one for one in chance if one <= chance[inside] * (1 + 1e-9)))


def _ranked(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Kendall's τ of each model's plans in a setting, and by how much our pick is slower."""
    taus, regrets = [], []
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.setting, row.model, row.engine), []).append(row)
    for own in groups.values():
        if len(own) > 1:
            taus.append(tau(own))
            pick = min(own, key=lambda row: row.predicted)
            regrets.append(pick.measured / min(row.measured for row in own) - 1)
    return taus, regrets


def tau(rows: Sequence[Row]) -> float:
    """Kendall's τ between predicted and measured times."""
    signs = [
        np.sign((a.predicted - b.predicted) * (a.measured - b.measured))
        for i, a in enumerate(rows)
        for b in rows[:i]
    ]
    return float(np.mean(signs))


def table(rows: Sequence[Row], found: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [f"{'setting':46} {'model':12} {'engine':8} {'known':8} {'plan':34} {'predicted':>9} "
             f"{'measured':>9} {'accuracy':>8} {'noise':>6} in"]  # fmt: skip
    for row in rows:
        plan = row.plan
        if row.engine == "native":
            for word in (",overlap=off", "data:1 ", " data:1"):
                plan = plan.replace(word, "")
        lines.append(
            f"{row.setting:46} {row.model:12} {row.engine:8} {row.known:8} {plan:34} "
            f"{row.predicted:9.3f} {row.measured:9.3f} {row.accuracy:8.1%} {row.spread:6.1%} "
            f"{'yes' if row.covered else 'no'}"
        )
    lines += [""] + [f"{name:44} {f['value']:>9} {f['goal']}" for name, f in found.items()]
    return "\n".join(lines)

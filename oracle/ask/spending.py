"""Plans by what an iteration costs: money, energy, carbon, as the machine's spec tells."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.ask.ranking import Ranking
from oracle.run.costs import Costs, costs, price_of
from oracle.run.spent import costs_of, places
from oracle.spec.document import refusal
from oracle.spec.system import System

if TYPE_CHECKING:
    from oracle.run.limits import Limits
    from oracle.run.target import Length

PAID = {"money": "a price (`--price`)", "energy": "the power of its device (`device.power.busy`)",
        "carbon": "a grid (`--grid`) and the power of its device"}  # fmt: skip
LOOKED_AT = 16  # plans of the fewest device-hours, by which the search goes


def known(system: System, objective: str) -> None:
    """Refuse to rank by what nobody can tell."""
    if any(getattr(costs(one, 1, 1.0), objective) is None for one in places(system)):
        what = f"nobody says what {objective} {system.name} takes: it has no {PAID[objective]}"
        raise refusal("options", what, f"`{system.name},…=…` sets a field, or --objective cost")


def each(ranking: Ranking) -> list[Costs]:
    """What an iteration of each shown plan costs."""
    shown = ranking.estimate
    return [costs_of(shown, row, float(shown.seconds[row])) for row in range(len(shown))]


def spent(ranking: Ranking) -> list[dict[str, Any]]:
    """Figures of each shown plan, and `usd_per_hour` of a device where somebody says it."""
    prices = {price_of(one) for one in places(ranking.estimate.system)}
    price = prices.pop() if len(prices) == 1 else None  # each partition's own, or nobody's
    hourly = {"usd_per_hour": None if price is None else price * 3600}
    return [{**ranking.estimate.figures(row), **hourly} for row in range(len(ranking))]


def ranked(ranking: Ranking, objective: str, top: int) -> Ranking:
    """The plans of a ranking by device-hours, those that cost the least first."""
    value = np.array([getattr(one, objective) for one in each(ranking)], float)
    order = np.argsort(value, kind="stable")[:top].tolist()
    return replace(ranking, estimate=ranking.estimate.take(order), objective=objective)


def within(ranking: Ranking, end: Length, limits: Limits, top: int) -> Ranking:
    """The same plans, those first under which the whole training keeps to its limits."""
    from oracle.run.target import training

    shown = ranking.estimate
    over = [bool(limits.over(training(shown, row, end))) for row in range(len(shown))]
    order = np.argsort(over, kind="stable")[:top].tolist()
    return replace(ranking, estimate=shown.take(order))

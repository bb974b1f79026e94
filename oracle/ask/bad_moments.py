"""Of plans that cannot be told apart, first the one that loses least at a network's bad moments.

A network that many jobs share was measured to give less at its 5th percentile (`by_nodes`). Which
of two plans is faster at its median may be open, while one of them sends less over it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from oracle.ask.ranking import BadMoment, Ranking
from oracle.predict.estimate import Estimate, estimate
from oracle.spec.system import System

# of the likeliest plan's chance to be the fastest, from where a plan is its equal: judged
AS_LIKELY = 1 / 3
LOSES = 0.01  # relative: what the first must lose at bad moments for another to take its place


def at_bad_moments(system: System) -> System | None:
    """Return a system at the 5th percentile of its network; None where nobody measured that."""
    if not any(point.low for level in system.levels for point in level.by_nodes):
        return None
    levels = (replace(level, by_nodes=tuple(
        replace(point, bandwidth=point.low or point.bandwidth) for point in level.by_nodes
    )) for level in system.levels)  # fmt: skip
    return replace(system, levels=tuple(levels))


def steadiest_first(ranking: Ranking, lines: Any = None) -> Ranking:
    """Return a ranking by seconds with the steadiest of its equals first."""
    shown: Estimate = ranking.estimate
    slow_system = at_bad_moments(shown.system) if ranking.tied else None
    if slow_system is None:
        return ranking
    likely = ranking.likely_best()
    equals = np.flatnonzero(likely >= AS_LIKELY * likely.max())
    plans = [work.plan for work in shown.work]
    slow = estimate(shown.model, slow_system, plans, ranking.batch, shown.options, lines).seconds
    first = int(equals[np.argmin(slow[equals])])
    if slow[first] >= slow[0] * (1 - LOSES):
        return ranking
    order = [first, *(row for row in range(len(shown)) if row != first)]
    moment = BadMoment(float(slow[first]), float(slow[0]))
    return replace(ranking, estimate=shown.take(order), bad_moment=moment)

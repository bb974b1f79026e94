"""Plans in the order in which a whole training under them ends, failures and all.

Plans that are as fast may differ in what they save and load: many ranks write faster than one. A
plan that is the first by its steps stays so, unless another ends clearly sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from oracle.ask.joined import joined
from oracle.ask.ranking import Ranking
from oracle.predict.estimate import Estimate
from oracle.run.target import Length, training

MORE = 10  # plans that are looked at, where fewer are to be shown
SOONER = 0.01  # relative: what a simpler plan may lose


def first_to_end(
    ranking: Ranking, ends: Callable[[Estimate, int], Length | None], top: int,
    fastest: bool = False,
) -> Ranking:  # fmt: skip
    """The `top` plans of a ranking, the first to end first, where it is known what fails."""
    shown = ranking.estimate
    order = list(range(len(shown)))
    if ranking.objective == "time" and shown.system.reliability is not None and order:
        whole = [ends(shown, row) for row in order]
        found = [training(shown, row, one) for row, one in enumerate(whole) if one is not None]
        if len(found) == len(order) and all(one.goodput.known for one in found):
            hours = np.array([one.seconds for one in found])
            if hours[0] > hours.min() * (1.0 if fastest else 1 + SOONER):
                order = np.argsort(hours, kind="stable").tolist()
    kept, rest = order[:top], order[top:]
    if order == list(range(len(shown))) and not rest:
        return ranking
    rivals = joined([shown.take(rest), ranking.rivals])
    return replace(ranking, estimate=shown.take(kept), rivals=rivals)

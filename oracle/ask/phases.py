"""The plan of each phase of a training whose batch grows.

A small batch may not feed all devices: a phase has half of them, and half again, while that makes
its steps faster, or nothing fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oracle.ask.ranking import Ranking
from oracle.run.schedule import Start
from oracle.spec.document import refusal


def plans(
    starts: Sequence[Start], devices: int, ask: Callable[[int, int], Ranking]
) -> list[Ranking]:
    """The ranking of each phase's batch on as many devices as make its steps fastest.

    `ask` ranks the plans of a batch on so many devices.
    """
    known: dict[int, Ranking] = {}
    for one in starts:
        if one.batch not in known:
            known[one.batch] = _fastest(one.batch, devices, ask)
    return [known[one.batch] for one in starts]


def _fastest(batch: int, devices: int, ask: Callable[[int, int], Ranking]) -> Ranking:
    best: Ranking | None = None
    while devices:
        found = ask(batch, devices)
        if len(found):
            if best is not None and not _seconds(found) < _seconds(best):
                break
            best = found
        devices //= 2
    if best is None:
        what = f"no plan of a batch of {batch:,} fits"
        raise refusal("schedule", what, "more devices, or another batch")
    return best


def _seconds(ranking: Ranking) -> float:
    return float(ranking.estimate.seconds[0])

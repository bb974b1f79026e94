"""Grid search: a trial at every point, each trained to its end."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.run.searches.base import Search, Stage


@dataclass(frozen=True)
class Grid(Search):
    """A trial at every point of a grid, R in all, each trained to its end.

    T = ⌈R/c⌉ T_run(n)
    """

    source = "bergstra2012"
    noun = "points"

    def stages(self, trials: int | None, at_once: int) -> list[Stage]:
        return [Stage("points", trials or 0)]

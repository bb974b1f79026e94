"""Random search: independent trials, each trained to its end."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.run.searches.base import Search, Stage


@dataclass(frozen=True)
class Random(Search):
    """Trials drawn at random, each trained to its end.

    T = ⌈R/c⌉ T_run(n)
    """

    source = "bergstra2012"

    def stages(self, trials: int | None, at_once: int) -> list[Stage]:
        return [Stage("trials", trials or 0)]

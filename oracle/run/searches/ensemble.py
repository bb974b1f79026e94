"""An ensemble: members that are trained separately, all of which are needed."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.run.searches.base import Search, Stage


@dataclass(frozen=True)
class Ensemble(Search):
    """Members that are trained separately, all of which are needed.

    T = ⌈k/c⌉ T_run(n)
    """

    source = "lakshminarayanan2017"
    noun = "members"

    def stages(self, trials: int | None, at_once: int) -> list[Stage]:
        return [Stage("members", trials or 0)]

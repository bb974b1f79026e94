"""A ranking: the plans that fit, best first, and how open it is between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oracle.ask.compression import Compression
from oracle.ask.ties import SEED, doubts, likeliest, settling, tied
from oracle.predict.estimate import Estimate
from oracle.spec.tabular import Tabular


@dataclass(frozen=True, slots=True)
class BadMoment:
    """Seconds of a step while the network is at its 5th percentile."""

    first: float  # of the plan that loses least
    fastest: float  # of the plan that would be first by its median


@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Tabular):
    """Feasible plans, best first; and what came nearest among the others."""

    brief = ("rank", "plan", "seconds", "seconds_low", "seconds_high", "memory", "probability_best",
             "why")  # fmt: skip

    estimate: Estimate  # the plans to show, best first
    misses: Estimate  # infeasible plans, the smallest shortage first
    tried: int
    fitting: int
    objective: str
    devices: int
    batch: int
    fastest: Estimate  # one plan, the fastest of all; simpler ones may be shown before it
    rivals: Estimate  # plans that are not shown and may be the best
    riskier: Estimate  # a faster plan that may run out of memory, if there is one
    slower: int = 0  # products beside those tried that no knob makes rivals of the best
    compression: Compression | None = None  # whether it pays, where that was asked
    # of a device's memory, what one row of one sample alone wants, where nothing fits for that
    wanted: float | None = None
    bad_moment: BadMoment | None = None  # where the first is the one that loses least then

    def __len__(self) -> int:
        return len(self.estimate)

    @property
    def best(self) -> Estimate:
        """The plan to launch: an estimate of one, whose `plan` is its text."""
        if not len(self.estimate):
            raise LookupError("no plan fits: see `misses`")
        return self.estimate.take([0])

    def says(self) -> str:
        """The best plan, of how many; or that none fits."""
        words = (
            f"{self.fitting} of {self.tried} combinations of strategies fit {self.devices} devices"
        )
        return f"{words}; {self.best.says()}" if len(self) else f"{words}; none to launch"

    def table(self) -> Any:
        """A pandas DataFrame, best plan first."""
        return self.estimate.table()

    def to_dict(self, with_misses: bool = False) -> dict[str, Any]:
        """The published JSON form; infeasible plans follow when asked for."""
        document = (self.estimate if len(self.estimate) else self.misses).to_dict()
        ranked = [self.estimate.plan_dict(row, row + 1) for row in range(len(self.estimate))]
        missed = [self.misses.plan_dict(row) for row in range(len(self.misses))]
        show = missed if with_misses or not ranked else []
        best = self.likely_best()
        for row, entry in enumerate(ranked):
            entry["probability_best"] = float(best[row])
        return {
            **document, "devices": self.devices, "batch": self.batch, "objective": self.objective,
            "tried": self.tried, "fitting": self.fitting, "slower": self.slower, "seed": SEED,
            "riskier": [self.riskier.plan_dict(row) for row in range(len(self.riskier))],
            "tied": list(self.tied), "measure": None if self.measure is None else
            {"what": self.measure[0], "share": self.measure[1]},
            "plans": [*ranked, *show],
            **({"compression": self.compression.to_dict()} if self.compression else {}),
        }  # fmt: skip

    def rows(self, with_misses: bool = False) -> list[dict[str, Any]]:
        """One flat row a plan, best first; infeasible ones have no rank."""
        ranked = [
            {"rank": rank, "probability_best": float(likely), **row}
            for rank, (likely, row) in enumerate(
                zip(self.likely_best(), self.estimate.rows(), strict=True), 1
            )
        ]
        bare = {"rank": None, "probability_best": None}
        missed = self.misses.rows() if with_misses or not ranked else []
        return [*ranked, *({**bare, **row} for row in missed)]

    def likely_best(self, draws: int = 2000) -> Any:
        """How likely each shown plan is the fastest of all, given how sure each prediction is."""
        seconds, deviation = (
            np.concatenate([getattr(part, name) for part in (self.estimate, self.rivals)])
            for name in ("seconds", "deviation")
        )
        return likeliest(seconds, deviation, draws)[: len(self)] if len(self) else np.zeros(0)

    @cached_property
    def tied(self) -> tuple[str, ...]:
        """The best plan and one that cannot be told from it; empty where the best stands out."""
        if self.estimate.options.ideal or self.objective != "time":
            return ()
        return tied(self.estimate.plans, self.likely_best())

    @cached_property
    def measure(self) -> tuple[str, float] | None:
        """What to measure to tell the best plan from the next (or the tied), and its share.

        The share is of all that is open between the two; None where nothing is.
        """
        if len(self.estimate) < 2 or self.estimate.options.ideal:
            return None
        rival = self.estimate.plans.index(self.tied[1]) if self.tied else 1
        return settling(doubts(self.estimate, 0), doubts(self.estimate, rival))

"""A job that exists: what it takes, does it fit, and what would be better on the same devices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from oracle.ask.largest import largest_batch
from oracle.ask.ranking import Ranking
from oracle.ask.search import recommend
from oracle.models.model import Model
from oracle.plan.plan import parse
from oracle.predict.defaults import options_for
from oracle.predict.estimate import Estimate, estimate
from oracle.readers.frameworks.training import Training
from oracle.spec.system import System

WORTH = 0.01  # of an iteration, from where another plan is called better


@dataclass(frozen=True)
class Launched:
    """The estimate of a job as it is, and the ranking for its devices, batch and software."""

    estimate: Estimate
    ranking: Ranking | None
    any_plan: bool  # it does what its software's spec has no words for

    @property
    def best(self) -> str:
        """The plan to take instead, where one is faster by more than nothing; else empty."""
        if self.ranking is None or not len(self.ranking):
            return ""
        mine, other = float(self.estimate.seconds[0]), float(self.ranking.estimate.seconds[0])
        fits = bool(self.estimate.feasible[0])
        return self.ranking.estimate.plans[0] if not fits or other < (1 - WORTH) * mine else ""

    def better(self) -> dict[str, Any] | None:
        """The same with its seconds; `faster`: the share of an iteration that is saved."""
        if not self.best or self.ranking is None:
            return None
        seconds = float(self.ranking.estimate.seconds[0])
        return {
            "plan": self.best, "seconds": seconds,
            "memory": float(self.ranking.estimate.memory[0]),
            "faster": 1 - seconds / float(self.estimate.seconds[0]),
        }  # fmt: skip


def launched(
    job: Training, model: Model, system: System, batch: int | None = None,
    largest: bool = False, **options: Any,
) -> Launched:  # fmt: skip
    """What a job takes on a system; with another batch, or the largest that fits, if asked."""
    axes = {axis.name for axis in parse(job.plan, 1.0).axes if axis.active}
    given = {"precision": job.precision, "optimizer": job.optimizer, "software": job.software,
             **options}  # fmt: skip
    told = options_for(model, system, **given)
    own = told.software.launch.strategies
    any_plan = bool(own and axes - set(own))
    said = replace(told, any_plan=any_plan)
    if largest:
        batch = int(largest_batch(model, system, [job.plan], said)[0])
    count = batch or job.batch
    found = estimate(model, system, [job.plan], count, said)
    ranking = None
    if job.devices <= system.devices:
        ranking = recommend(model, system, job.devices, count, told, top=3)
    return Launched(found, ranking, any_plan)

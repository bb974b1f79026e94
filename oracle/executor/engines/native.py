"""The executor's own steps: every strategy that it runs, message by message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oracle.executor.engines.base import Engine

if TYPE_CHECKING:
    from oracle.executor.measure.timed_steps import Steps
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.ranks.rank import Rank
    from oracle.models.model import Model
    from oracle.plan.plan import Plan


class Native(Engine):
    """Sends the very messages that are priced, and runs the very splits."""

    name = "native"
    software = "executor"

    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        from oracle.executor.local.away import Away
        from oracle.executor.plan_run import DTYPES, UNITS
        from oracle.executor.supported import unsupported
        from oracle.spec.precision import MIXED

        if job.precision not in DTYPES:
            yield f"{job.precision} is not run; {', '.join(DTYPES)} are"
        yield from unsupported(model, plan)
        away, best = Away.from_plan(plan), plan.axis("recompute").word("mode") == "best"
        if (best or away.activations) and not job.units:
            what_for = "recompute:best" if best else "offload of activations"
            yield f"{what_for} is a choice of each unit that nobody made: name a --system"
        if job.units and (len(job.units) != len(model.units[1]) or set(job.units) - set(UNITS)):
            yield f"{len(job.units)} words for {len(model.units[1])} units, each {', '.join(UNITS)}"
        if job.precision in MIXED and (away.optimizer or away.weights):
            yield "state beside the device is not run in mixed precision"
        if job.precision == "fp16" and job.checkpoint:
            yield "the scale of an fp16 loss is not kept by checkpoints"
        if job.checkpoint and (away.optimizer or away.weights):
            yield "state beside the device is not kept by checkpoints"

    def steps(self, rank: Rank, job: PlanRun) -> Steps:
        from oracle.executor.measure.timed_steps import NativeSteps

        return NativeSteps(rank, job)

"""Pipelines by `torch.distributed.pipelining`, around what the other engines do in a stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from oracle.executor.engines.dtensor import Dtensor

if TYPE_CHECKING:
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.pytorch.setting import Setting
    from oracle.executor.pytorch.training import Training
    from oracle.models.model import Model
    from oracle.plan.plan import Plan


class Pipelining(Dtensor):
    """Stages of a model that hand micro-batches on, in the order of a schedule of PyTorch's."""

    name = "pipelining"
    software = "torchtitan"
    runs: ClassVar = {**Dtensor.runs, "pipeline": ("segments", "schedule=gpipe", "schedule=1f1b",
            "schedule=zb-v", "schedule=dualpipe-v", "interleave", "cuts")}  # fmt: skip

    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        yield from super().unsupported(job, model, plan)
        pipeline = plan.axis("pipeline")
        stages, segments = int(pipeline.degree[0, 0]), int(pipeline.segments[0, 0])
        if stages == 1:
            yield "no pipeline: the engines ddp, fsdp2 and dtensor run that"
        if stages > 1 and plan.axis("data").accumulate[0, 0] > 1:
            yield "accumulate=k beside a pipeline is not run: segments= says as much"
        if pipeline.interleave[0, 0] > 1 and segments % stages:
            yield f"chunks of {stages} stages need segments that are a multiple of them"

    def build(self, setting: Setting, rate: float) -> Training:
        from oracle.executor.pytorch.pipelined import Pipelined

        return Pipelined(setting, rate)

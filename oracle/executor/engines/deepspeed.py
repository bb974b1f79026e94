"""DeepSpeed: replicas, and ZeRO 1 to 3, by its own engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from oracle.executor.engines.base import PyTorchEngine

if TYPE_CHECKING:
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.pytorch.setting import Setting
    from oracle.executor.pytorch.training import Training
    from oracle.models.model import Model
    from oracle.plan.plan import Plan


class Deepspeed(PyTorchEngine):
    """The model as plain modules inside `deepspeed.initialize`."""

    name = "deepspeed"
    software = "deepspeed"
    needs = ("torch", "deepspeed")
    spares = False
    runs: ClassVar = {
        "data": ("zero=0", "zero=1", "zero=2", "zero=3", "accumulate", "overlap"),
        "recompute": ("mode=selective", "mode=full", "mode=operators"),
    }
    precisions = ("fp32", "bf16")

    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        yield from super().unsupported(job, model, plan)
        if job.checkpoint:
            yield "--checkpoint of what DeepSpeed holds is for ddp, fsdp2 or the native engine"

    def build(self, setting: Setting, rate: float) -> Training:
        from oracle.executor.pytorch.zero import DeepspeedTraining

        return DeepspeedTraining(setting, rate)

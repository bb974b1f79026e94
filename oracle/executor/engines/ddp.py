"""DistributedDataParallel, and ZeroRedundancyOptimizer under zero=1."""

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


class Ddp(PyTorchEngine):
    """Replicas that add up their gradients in buckets, beside the backward pass."""

    name = "ddp"
    software = "pytorch-ddp"
    runs: ClassVar = {
        "data": ("zero=0", "zero=1", "accumulate", "overlap", "compress=fp16", "compress=bf16"),
        "recompute": ("mode=selective", "mode=full", "mode=operators"),
    }
    precisions = ("fp32", "fp64", "bf16", "fp16")

    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        yield from super().unsupported(job, model, plan)
        if plan.axis("data").zero[0, 0] == 1 and job.precision == "fp16":
            yield "zero=1 is not run in fp16, whose loss is scaled"

    def build(self, setting: Setting, rate: float) -> Training:
        from oracle.executor.pytorch.replicas import optimizer_of, remake, replicated
        from oracle.executor.pytorch.training import Training

        network = setting.network()
        network.lay_weights()
        remake(network, setting.remade)
        wrapped = replicated(setting, network) if setting.degree("data") > 1 else network
        return Training(setting, [network], wrapped, optimizer_of(setting, network, rate))

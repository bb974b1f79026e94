"""FSDP2: `fully_shard` around each unit, with replicas around shards (HSDP)."""

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


class Fsdp2(PyTorchEngine):
    """Shards of gradients, state and weights, gathered unit by unit where they are used."""

    name = "fsdp2"
    software = "pytorch-fsdp"
    runs: ClassVar = {
        "data": ("zero=0", "zero=2", "zero=3", "accumulate", "overlap"),
        "sharded": ("zero=2", "zero=3", "overlap"),
        "recompute": ("mode=selective", "mode=full", "mode=operators"),
    }

    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        yield from super().unsupported(job, model, plan)
        nested = plan.axis("sharded").degree[0, 0] > 1 and plan.axis("data").degree[0, 0] > 1
        if nested and plan.axis("data").zero[0, 0]:
            yield "`sharded` is not run inside `data` with zero above 0"

    def build(self, setting: Setting, rate: float) -> Training:
        from oracle.executor.pytorch.replicas import optimizer_of, remake, sharded
        from oracle.executor.pytorch.training import Training

        network = setting.network()
        remake(network, setting.remade)
        accounts = sharded(setting, network) if setting.degree("data", "sharded") > 1 else []
        return Training(setting, [network], network, optimizer_of(setting, network, rate), accounts)

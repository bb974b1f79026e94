"""Steps of a plan on one rank, by an engine of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from oracle.executor.loading.reader import Share
from oracle.executor.local.batch import arrived, inputs
from oracle.executor.local.cuts import stages_of
from oracle.executor.measure.timed_steps import TrainingSteps
from oracle.executor.plan_run import PlanRun
from oracle.executor.pytorch.setting import DTYPES, Setting
from oracle.executor.pytorch.state import EngineState
from oracle.executor.pytorch.training import Training
from oracle.plan.launchable import software

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

RATE = 1e-4


class EngineSteps(TrainingSteps):
    """The steps of one plan by an engine of PyTorch's."""

    def __init__(
        self, rank: Rank, job: PlanRun, build: Callable[[Setting, float], Training]
    ) -> None:
        super().__init__(rank, job)
        self.stages = stages_of(self.graph, self.plan, list(job.stages) or None)
        stack = software(job.software)
        torch.backends.cudnn.allow_tf32 = stack.kernels.tf32 != "none"
        torch.backends.cuda.matmul.allow_tf32 = stack.kernels.tf32 == "all"
        self.setting = Setting(job, self.graph, self.plan, self.wire, rank.device, stack,
                               self.stages)  # fmt: skip
        x, target = inputs(self.graph, job.batch, job.seed, DTYPES[job.precision])
        self.x, self.x_held = x if job.data else x[:0], self.setting.held_part(x).to(rank.device)
        self.target = self.setting.held_part(target).to(rank.device)
        self.setting.mesh.size()  # all ranks make the groups of the mesh, and those of `context`
        self.wire.mesh.group(("context",))
        self.training = build(self.setting, RATE) if self.setting.takes_part else None
        if job.checkpoint and self.training:
            self.state = EngineState(self.training)

    def share(self) -> Share:
        return Share(self.wire.mesh, self.graph, self.job.batch, self.setting.samples)

    def alive(self) -> dict[str, float]:
        """Bytes that this rank keeps from step to step, by kind, after a first step."""
        if not self.training:
            return {}
        self.step()
        return self.training.kept_bytes()

    def step(self) -> dict[str, float]:
        assert self.training
        waited = self.waited()
        if self.reader:
            self.x_held = arrived(self.setting.held_part(self.x), self.rank.device)
        self.training.step(self.x_held, self.target)
        return {"reading": waited}

"""A pipeline by `torch.distributed.pipelining`: stages, and the plan's schedule."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)

from oracle.executor.pytorch.network import Network, units_of
from oracle.executor.pytorch.replicas import Account, optimizer_of, remake, sharded
from oracle.executor.pytorch.setting import Setting
from oracle.executor.pytorch.tensors import split
from oracle.executor.pytorch.training import Training

ONE: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}  # chunk a stage
SEVERAL: dict[str, Any] = {  # chunks a stage
    "gpipe": ScheduleLoopedBFS, "1f1b": ScheduleInterleaved1F1B,
    "zb-v": ScheduleZBVZeroBubble, "dualpipe-v": ScheduleDualPipeV,
}  # fmt: skip
V = ("zb-v", "dualpipe-v")  # whose chunks go down the stages and back up


class ClockedStage(PipelineStage):  # type: ignore[misc]  # torch is untyped here
    """A stage whose passes are timed; what a step takes besides is waiting."""

    training: Pipelined

    def forward_one_chunk(self, *given: Any, **named: Any) -> Any:
        with self.training.phase("forward"), self.training.cast():
            return super().forward_one_chunk(*given, **named)

    def backward_one_chunk(self, *given: Any, **named: Any) -> Any:
        with self.training.phase("backward"):
            return super().backward_one_chunk(*given, **named)


class Pipelined(Training):
    """Steps of a pipeline's stage, which may hold several chunks."""

    def __init__(self, setting: Setting, rate: float) -> None:
        p, at = setting.degree("pipeline"), setting.wire.mesh.at["pipeline"]
        word = setting.plan.axis("pipeline").word("schedule")
        chunks = units_of(setting.stages, setting.layers.units)
        count = len(chunks)
        own = [at, count - 1 - at] if word in V else list(range(at, count, p))
        networks: list[Network] = []
        accounts: list[Account] = []
        for number in own:
            network = setting.network(chunks[number])
            networks.append(network)
            split(setting, network)
            remake(network, setting.remade)
            if setting.degree("data", "sharded", "context") > 1:
                accounts += sharded(setting, network)
        modules = nn.ModuleList(networks)
        super().__init__(setting, networks, networks[0], optimizer_of(setting, modules, rate),
                         accounts)  # fmt: skip
        group = setting.mesh["pipeline"].get_group()
        stages = [ClockedStage(module, number, count, setting.device, group=group)
                  for module, number in zip(networks, own, strict=True)]  # fmt: skip
        for stage in stages:
            stage.training = self
        self.first, self.last = 0 in own, count - 1 in own
        segments = len(setting.micro_batches)
        told = {"loss_fn": self.scaled, "scale_grads": False}
        if len(stages) == 1:
            self.schedule = ONE[word](stages[0], segments, **told)
        else:
            self.schedule = SEVERAL[word](stages, segments, **told)

    def scaled(self, y: Tensor, target: Tensor) -> Tensor:
        """The loss of a micro-batch; replicas' gradients are averaged."""
        return self.loss(y, target) * self.replicas

    def passes(self, x: Tensor, target: Tensor) -> Tensor:
        """All micro-batches through the stages held here, as the schedule orders them."""
        losses: list[Tensor] = []
        given = (x,) if self.first else ()
        told = {"target": target, "losses": losses} if self.last else {}
        with self.timer.phase("exchange"):
            self.schedule.step(*given, **told)
        found = [one.detach() for one in losses] or [torch.zeros(())]
        return torch.stack(found).sum() / self.replicas

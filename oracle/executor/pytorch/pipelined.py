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
    """A stage whose passes are timed; the rest of a step is waiting."""

    training: Pipelined

    def forward_one_chunk(self, *arguments: Any, **options: Any) -> Any:
        with self.training.phase("forward"), self.training.cast():
            return super().forward_one_chunk(*arguments, **options)

    def backward_one_chunk(self, *arguments: Any, **options: Any) -> Any:
        with self.training.phase("backward"):
            return super().backward_one_chunk(*arguments, **options)


class Pipelined(Training):
    """Steps of one rank of a pipeline, which may hold several chunks."""

    def __init__(self, setting: Setting, rate: float) -> None:
        p, place = setting.degree("pipeline"), setting.wire.mesh.at["pipeline"]
        word = setting.plan.axis("pipeline").word("schedule")
        chunks = units_of(setting.stages, setting.layers.units)
        count = len(chunks)
        chunks_here = [place, count - 1 - place] if word in V else list(range(place, count, p))
        networks: list[Network] = []
        accounts: list[Account] = []
        for number in chunks_here:
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
                  for module, number in zip(networks, chunks_here, strict=True)]  # fmt: skip
        for stage in stages:
            stage.training = self
        self.first, self.last = 0 in chunks_here, count - 1 in chunks_here
        segments = len(setting.micro_batches)
        options = {"loss_fn": self.scaled, "scale_grads": False}
        if len(stages) == 1:
            self.schedule = ONE[word](stages[0], segments, **options)
        else:
            self.schedule = SEVERAL[word](stages, segments, **options)

    def scaled(self, y: Tensor, target: Tensor) -> Tensor:
        """The loss of a micro-batch, scaled because replicas' gradients are averaged."""
        return self.loss(y, target) * self.replicas

    def passes(self, x: Tensor, target: Tensor) -> Tensor:
        """Run all micro-batches through this rank's stages, as the schedule orders them."""
        losses: list[Tensor] = []
        arguments = (x,) if self.first else ()
        options = {"target": target, "losses": losses} if self.last else {}
        with self.timer.phase("exchange"):
            self.schedule.step(*arguments, **options)
        detached = [loss.detach() for loss in losses] or [torch.zeros(())]
        return torch.stack(detached).sum() / self.replicas

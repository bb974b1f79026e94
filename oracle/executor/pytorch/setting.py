"""The setting of a run, as an engine gets it: model, plan, ranks, software."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh as TorchMesh

from oracle.executor.local.graph import Operation, OperationGraph
from oracle.executor.local.parts import Interval, deal
from oracle.executor.messages.wire import Wire
from oracle.executor.plan_run import PlanRun
from oracle.executor.pytorch.network import Network, without_loss
from oracle.executor.steps.schedule import micro_batches
from oracle.plan.plan import Plan
from oracle.spec.software import Software

DTYPES = {"fp32": torch.float32, "fp64": torch.float64,
          "bf16": torch.float32, "fp16": torch.float32}  # of weights  # fmt: skip
NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}  # the type that products are made in


@dataclass(frozen=True, eq=False)
class Setting:
    """One run on one rank."""

    job: PlanRun
    graph: OperationGraph
    plan: Plan
    wire: Wire
    device: torch.device
    software: Software
    stages: list[Interval]

    @cached_property
    def mesh(self) -> TorchMesh:
        """The plan's devices by axis, made on all ranks at once.

        `data` comes first and includes the devices of `context`, whose gradients are added up
        alike. The other axes follow, the outermost first.
        """
        degrees = self.wire.mesh.degrees
        names, joined = tuple(degrees), ("data", "context")
        other_axes = [name for name in names if name not in joined]
        ranks = torch.arange(self.wire.mesh.size).view(tuple(degrees.values()))
        ranks = ranks.permute([names.index(name) for name in (*joined, *other_axes)]).flatten(0, 1)
        other_axes = [name for name in other_axes if degrees[name] > 1 or name == "sharded"]
        ranks = ranks.reshape(-1, *(degrees[name] for name in other_axes))
        return TorchMesh(self.device.type, ranks, mesh_dim_names=("data", *other_axes))

    @property
    def takes_part(self) -> bool:
        return self.wire.mesh.taking_part

    def degree(self, *axes: str) -> int:
        return self.wire.mesh.degree(*axes)

    @cached_property
    def layers(self) -> OperationGraph:
        layers = without_loss(self.graph)[0]
        if self.software.kernels.attention != "unfused":
            return layers
        unfused = (replace(op, shape=replace(op.shape, flash=False)) for op in layers.operations)
        return replace(layers, operations=tuple(unfused))

    @cached_property
    def loss(self) -> Operation | None:
        return without_loss(self.graph)[1]

    @property
    def zero(self) -> int:
        """Which state is sharded: 0 none, 1 the optimizer's, 2 gradients too, 3 weights too."""
        if self.degree("sharded") > 1:
            return int(self.plan.axis("sharded").zero[0, 0]) + 1
        return int(self.plan.axis("data").zero[0, 0]) if self.degree("data") > 1 else 0

    @property
    def narrow(self) -> torch.dtype | None:
        """The type that products are made in, where it is narrower than that of weights."""
        return NARROW.get(self.job.precision)

    @property
    def remade(self) -> str:
        """Which activations are recomputed."""
        mode: str = self.plan.axis("recompute").word("mode")
        return mode

    @cached_property
    def samples(self) -> Interval:
        """The samples of the batch that this device has."""
        return self.wire.mesh.samples(self.job.batch)

    @cached_property
    def tokens(self) -> Tensor | None:
        """The tokens of a sequence that this device has; None: all of them.

        There are two chunks a device: it has one from the front and one as far from the end, so
        that under a causal mask all devices have as much to do.
        """
        p, place = self.degree("context"), self.wire.mesh.at["context"]
        if p == 1:
            return None
        chunks = deal(self.graph.operations[0].shape.given.extents[0], 2 * p)
        return torch.cat([torch.arange(*chunk) for chunk in (chunks[place], chunks[-1 - place])])

    def held_part(self, batch: Tensor) -> Tensor:
        """The part of a batch on this device: its samples, and of them its tokens."""
        a, b = self.samples
        return batch[a:b] if self.tokens is None else batch[a:b, self.tokens]

    @property
    def micro_batches(self) -> list[Interval]:
        """The micro-batches of this device, in samples of the batch."""
        begin, end = self.samples
        return deal(end - begin, micro_batches(self.plan), begin)

    def network(self, units: Interval | None = None) -> Network:
        """The module of a run of units on this device; of the whole model if none is named."""
        blocks = self.remade == "full" and self.zero < 3
        module: Network = Network(
            self.layers, units or (0, self.layers.units), seed=self.job.seed,
            dtype=DTYPES[self.job.precision], blocks=blocks, parts=self.degree("tensor"),
            last=self.last,
        )  # fmt: skip
        module.to(self.device)
        return module

    @property
    def last(self) -> bool:
        """Whether channels stand last in tensors."""
        extents = self.graph.operations[0].shape.given.extents
        return self.software.convolution.stands(self.job.precision, len(extents)) == "last"

    @property
    def synchronous(self) -> bool:
        """Whether a call of a collective returns when it is over."""
        return bool(dist.get_backend() == "gloo")

"""What a run is of, as an engine is given it: the model, the plan, the ranks, the software."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh as TorchMesh

from oracle.executor.graph import Operation, OperationGraph
from oracle.executor.parts import Interval, deal
from oracle.executor.plan_run import PlanRun
from oracle.executor.pytorch.network import Network, without_loss
from oracle.executor.wire import Wire
from oracle.plan.plan import Plan
from oracle.spec.software import Software

DTYPES = {"fp32": torch.float32, "fp64": torch.float64,
          "bf16": torch.float32, "fp16": torch.float32}  # of weights  # fmt: skip
NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}  # what products are made in


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

        `data` is the first, and has the devices of `context` in it: their gradients are added up
        alike. Others follow outermost first.
        """
        degrees = self.wire.mesh.degrees
        names, joined = tuple(degrees), ("data", "context")
        others = [name for name in names if name not in joined]
        ranks = torch.arange(self.wire.mesh.size).view(tuple(degrees.values()))
        ranks = ranks.permute([names.index(name) for name in (*joined, *others)]).flatten(0, 1)
        others = [name for name in others if degrees[name] > 1 or name == "sharded"]
        ranks = ranks.reshape(-1, *(degrees[name] for name in others))
        return TorchMesh(self.device.type, ranks, mesh_dim_names=("data", *others))

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
        apart = (replace(op, shape=replace(op.shape, flash=False)) for op in layers.operations)
        return replace(layers, operations=tuple(apart))

    @cached_property
    def loss(self) -> Operation | None:
        return without_loss(self.graph)[1]

    @property
    def zero(self) -> int:
        """What of the state is sharded: 0 nothing, 1 the optimizer's, 2 gradients, 3 weights."""
        if self.degree("sharded") > 1:
            return int(self.plan.axis("sharded").zero[0, 0]) + 1
        return int(self.plan.axis("data").zero[0, 0]) if self.degree("data") > 1 else 0

    @property
    def narrow(self) -> torch.dtype | None:
        """What products are made in, where that is narrower than weights are."""
        return NARROW.get(self.job.precision)

    @property
    def remade(self) -> str:
        """Which activations are made again."""
        found: str = self.plan.axis("recompute").word("mode")
        return found

    @cached_property
    def samples(self) -> Interval:
        """The samples of the batch that this device has."""
        begin, end = 0, self.job.batch
        for axis in self.wire.mesh.degrees:
            if axis in ("data", "sharded"):
                begin, end = deal(end - begin, self.degree(axis), begin)[self.wire.mesh.at[axis]]
        return begin, end

    @cached_property
    def tokens(self) -> Tensor | None:
        """The tokens of a sequence that this device has; None: all of them.

        Of two chunks a device it has one from the front and the one as far from the end: under a
        causal mask all have as much to do.
        """
        p, at = self.degree("context"), self.wire.mesh.at["context"]
        if p == 1:
            return None
        chunks = deal(self.graph.operations[0].shape.given.extents[0], 2 * p)
        return torch.cat([torch.arange(*chunk) for chunk in (chunks[at], chunks[-1 - at])])

    def held(self, batch: Tensor) -> Tensor:
        """What this device has of a batch: its samples, and of them its tokens."""
        a, b = self.samples
        return batch[a:b] if self.tokens is None else batch[a:b, self.tokens]

    @property
    def micro_batches(self) -> list[Interval]:
        """Micro-batches of this device, in samples of the batch."""
        begin, end = self.samples
        pipeline, data = self.plan.axis("pipeline"), self.plan.axis("data")
        return deal(end - begin, int(pipeline.segments[0, 0] * data.accumulate[0, 0]), begin)

    def network(self, units: Interval | None = None) -> Network:
        """A run of units as a module, on this device; the whole model if none is named."""
        blocks = self.remade == "full" and self.zero < 3
        found: Network = Network(
            self.layers, units or (0, self.layers.units), seed=self.job.seed,
            dtype=DTYPES[self.job.precision], blocks=blocks, parts=self.degree("tensor"),
            last=self.last,
        )  # fmt: skip
        found.to(self.device)
        return found

    @property
    def last(self) -> bool:
        """Whether channels stand last in tensors."""
        extents = self.graph.operations[0].shape.given.extents
        return self.software.convolution.stands(self.job.precision, len(extents)) == "last"

    @property
    def synchronous(self) -> bool:
        """Whether a call of a collective returns when it is over."""
        return bool(dist.get_backend() == "gloo")

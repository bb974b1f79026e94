"""Tensors that cross between the stages of a pipeline, sent and received."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oracle.executor.local.graph import sample_shape
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import deal
from oracle.executor.messages.wire import Wire
from oracle.executor.steps.border_order import Crossing, crossings


@dataclass(frozen=True)
class StageBorder:
    """One end of a crossing: the rank on the other side, and the shape of what crosses.

    Tensor-parallel ranks hold the same output: each sends its share, and the other side gathers
    the shares [narayanan2021, §4.1], unless the plan says `borders=whole`.
    """

    operation: int  # that makes it
    rank: int | None  # None: another chunk of this rank
    chunk: int  # of that rank's, on the other side
    far: bool  # whether it passes a stage by
    number: int  # of the crossing, along the model
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    alike: int  # ranks that hold the same tensor
    place: int

    @classmethod
    def ends(cls, local: LocalModel, chunk: int) -> tuple[list[StageBorder], list[StageBorder]]:
        """The crossings that come into a chunk of this rank, and those that go out of it."""
        chunk_in_model = chunk * local.mesh.degree("pipeline") + local.stage
        numbered = list(enumerate(crossings(local.graph, local.stages)))
        into = [
            cls._from_crossing(local, crossing, k, crossing.source)
            for k, crossing in numbered
            if crossing.target == chunk_in_model
        ]
        out = [
            cls._from_crossing(local, crossing, k, crossing.target)
            for k, crossing in numbered
            if crossing.source == chunk_in_model
        ]
        return into, out

    @classmethod
    def _from_crossing(
        cls, local: LocalModel, crossing: Crossing, number: int, far_chunk: int
    ) -> StageBorder:
        mesh, p = local.mesh, local.mesh.degree("pipeline")
        op = local.graph.operations[crossing.operation]
        extents = list(op.shape.made.extents)
        if local.spaced(op.index):
            extents = [stop - start for start, stop in local.box(extents)]
        if op.shape.made.tokens:
            start, stop = local.tokens(extents[0])
            if local.cuts.sequence:
                start, stop = deal(stop - start, mesh.degree("tensor"))[mesh.at["tensor"]]
            extents = [stop - start]
        shape = sample_shape(op.shape.made, extents)
        chunk, stage = divmod(far_chunk, p)
        rank = None if stage == local.stage else mesh.rank_at({**mesh.at, "pipeline": stage})
        sends_all = local.cuts.sequence or local.plan.axis("pipeline").word("borders") == "whole"
        alike = 1 if sends_all else mesh.degree("tensor")
        if math.prod(shape) % alike:
            alike = 1
        place = mesh.at["tensor"] if alike > 1 else 0
        far = crossing.target - crossing.source > 1
        return cls(op.index, rank, chunk, far, number, shape, local.dtype, local.device,
                   alike, place)  # fmt: skip

    def send(self, wire: Wire, tensor: Tensor) -> Callable[[], None]:
        assert self.rank is not None
        share = tensor.reshape(self.alike, -1)[self.place]
        return wire.send(share, self.rank, "pipeline: stage borders")

    def expect(self, wire: Wire, batch: int) -> Callable[[], Tensor]:
        """Get ready to receive; call what is returned to wait for it."""
        assert self.rank is not None
        count = batch * math.prod(self.shape) // self.alike
        share = torch.empty(count, dtype=self.dtype, device=self.device)
        wait = wire.expect(share, self.rank, "pipeline: stage borders")

        def received() -> Tensor:
            arrived = wait()
            if self.alike > 1:
                arrived = wire.allgather(arrived, ("tensor",), "tensor: borders gathered")
            return arrived.view(batch, *self.shape)

        return received

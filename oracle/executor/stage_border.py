"""Tensors that cross between the stages of a pipeline, sent and received."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oracle.executor.border_order import Crossing, crossings
from oracle.executor.local_model import LocalModel
from oracle.executor.parts import deal
from oracle.executor.wire import Wire


@dataclass(frozen=True)
class StageBorder:
    """One end of a crossing: the rank on the other side, and the shape of what crosses.

    Tensor-parallel ranks hold the same output: each sends its share, and it is gathered again
    on the other side [narayanan2021, §4.1], unless the plan says `borders=whole`.
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
        """What comes into a chunk of this rank, and what goes out of it."""
        at = chunk * local.mesh.degree("pipeline") + local.stage
        every = list(enumerate(crossings(local.graph, local.stages)))
        into = [cls._of(local, one, k, one.source) for k, one in every if one.target == at]
        out = [cls._of(local, one, k, one.target) for k, one in every if one.source == at]
        return into, out

    @classmethod
    def _of(cls, local: LocalModel, one: Crossing, number: int, other: int) -> StageBorder:
        mesh, p = local.mesh, local.mesh.degree("pipeline")
        op = local.graph.operations[one.operation]
        extents = list(op.shape.made.extents)
        if local.spaced(op.index):
            extents = [stop - start for start, stop in local.box(extents)]
        if op.shape.made.tokens:
            start, stop = local.tokens(extents[0])
            if local.cuts.sequence:
                start, stop = deal(stop - start, mesh.degree("tensor"))[mesh.at["tensor"]]
            extents = [stop - start]
        channels = op.shape.made.channels
        shape = (*extents, channels) if op.shape.made.tokens else (channels, *extents)
        chunk, stage = divmod(other, p)
        rank = None if stage == local.stage else mesh.rank_at({**mesh.at, "pipeline": stage})
        whole = local.cuts.sequence or local.plan.axis("pipeline").word("borders") == "whole"
        alike = 1 if whole else mesh.degree("tensor")
        if math.prod(shape) % alike:
            alike = 1
        place = mesh.at["tensor"] if alike > 1 else 0
        return cls(op.index, rank, chunk, one.target - one.source > 1, number, tuple(shape),
                   local.dtype, local.device, alike, place)  # fmt: skip

    def send(self, wire: Wire, whole: Tensor) -> Callable[[], None]:
        assert self.rank is not None
        share = whole.reshape(self.alike, -1)[self.place]
        return wire.send(share, self.rank, "pipeline: stage borders")

    def expect(self, wire: Wire, batch: int) -> Callable[[], Tensor]:
        """Make ready to receive; call what is returned to wait for it."""
        assert self.rank is not None
        count = batch * math.prod(self.shape) // self.alike
        share = torch.empty(count, dtype=self.dtype, device=self.device)
        wait = wire.expect(share, self.rank, "pipeline: stage borders")

        def received() -> Tensor:
            whole = wait()
            if self.alike > 1:
                whole = wire.allgather(whole, ("tensor",), "tensor: borders gathered")
            return whole.view(batch, *self.shape)

        return received

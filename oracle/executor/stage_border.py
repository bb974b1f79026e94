"""Tensors that cross between two stages of a pipeline, sent and received."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oracle.executor.local_model import LocalModel
from oracle.executor.parts import deal
from oracle.executor.wire import Wire


@dataclass(frozen=True)
class StageBorder:
    """One end of a chunk: the rank on the other side, and the shape of what crosses.

    Tensor-parallel ranks hold the same output: each sends its share, and it is gathered again
    on the other side [narayanan2021, §4.1], unless the plan says `borders=whole`.
    """

    rank: int
    number: int  # of the border, along the model
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    alike: int  # ranks that hold the same tensor
    place: int

    @classmethod
    def of(cls, local: LocalModel, chunk: int, end: str) -> StageBorder | None:
        """The border `into` or `out of` a chunk; None at the ends of the model."""
        mesh, p = local.mesh, local.mesh.degree("pipeline")
        at = chunk * p + local.stage
        number = at - 1 if end == "into" else at
        if not 0 <= number < len(local.stages) - 1:
            return None
        op = local.graph.of_units(local.stages[number][1] - 1, local.stages[number][1])[-1]
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
        other = (at - 1 if end == "into" else at + 1) % p
        rank = mesh.rank_at({**mesh.at, "pipeline": other})
        whole = local.cuts.sequence or local.plan.axis("pipeline").word("borders") == "whole"
        alike = 1 if whole else mesh.degree("tensor")
        if math.prod(shape) % alike:
            alike = 1
        place = mesh.at["tensor"] if alike > 1 else 0
        return cls(rank, number, tuple(shape), local.dtype, local.device, alike, place)

    def send(self, wire: Wire, whole: Tensor, forward: bool) -> Callable[[], None]:
        share = whole.reshape(self.alike, -1)[self.place]
        return wire.send(share, self.rank, "pipeline: stage borders", self._tag(forward))

    def expect(self, wire: Wire, batch: int, forward: bool) -> Callable[[], Tensor]:
        """Make ready to receive; call what is returned to wait for it."""
        count = batch * math.prod(self.shape) // self.alike
        share = torch.empty(count, dtype=self.dtype, device=self.device)
        wait = wire.expect(share, self.rank, "pipeline: stage borders", self._tag(forward))

        def received() -> Tensor:
            whole = wait()
            if self.alike > 1:
                whole = wire.allgather(whole, ("tensor",), "tensor: borders gathered")
            return whole.view(batch, *self.shape)

        return received

    def _tag(self, forward: bool) -> int:
        return 2 * self.number + forward

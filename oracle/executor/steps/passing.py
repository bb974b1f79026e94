"""Hands tensors from the passes of one device to its other passes and to other stages."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

import torch
from torch import Tensor

from oracle.executor.local.graph import sample_shape
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import Interval, deal
from oracle.executor.messages.wire import Wire
from oracle.executor.steps.border_order import Crossing, arrivals, crossings
from oracle.executor.steps.schedule import Pass, passes


@dataclass(frozen=True)
class StageBorder:
    """One end of a crossing: the rank on the other side, and the shape of what crosses.

    Tensor-parallel ranks hold the same output: each sends its share, and the other side gathers
    the shares [narayanan2021, §4.1], unless the plan says `borders=whole`.
    """

    operation: int  # that makes it
    rank: int | None  # None: another chunk of this rank
    chunk: int  # the chunk on the other side
    far: bool  # whether the crossing skips a stage
    number: int  # number of the crossing along the model
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


Tensors: TypeAlias = dict[int, Tensor]  # by the operation that made them
Received: TypeAlias = list[tuple[int, Tensor]]


class Passing:
    """Receives before a pass what it needs from others, and sends after it what others need."""

    def __init__(self, local: LocalModel, micro_batches: Sequence[Interval]) -> None:
        self.wire, self.micro_batches, self.local = local.wire, micro_batches, local
        ends = [StageBorder.ends(local, chunk) for chunk in range(len(local.chunks))]
        self.into, self.out = [into for into, _ in ends], [out for _, out in ends]
        every, stages = crossings(local.graph, local.stages), local.mesh.degree("pipeline")
        self.order: dict[int, list[tuple[Pass, int]]] = {}  # by rank, its sends in a step
        for border in chain.from_iterable([*self.into, *self.out]):
            if border.rank is not None and border.rank not in self.order:
                stage = local.mesh.coordinates(border.rank)["pipeline"]
                self.order[border.rank] = [
                    *arrivals(every, self.turns(stage), stage, stages, local.stage)
                ]
        self.due: dict[int, deque[tuple[Pass, int]]] = {}  # by rank, what is not expected yet
        self.coming: dict[tuple[Pass, int], Callable[[], Tensor]] = {}
        self.handed: dict[tuple[int, Pass], Tensor] = {}  # between chunks of this device
        self.sending: dict[Pass, list[Callable[[], None]]] = {}
        self.far: list[Callable[[], None]] = []  # of gradients to stages further away

    def turns(self, stage: int) -> list[Pass]:
        """The passes of a stage, in order."""
        pipeline, chunks = self.local.plan.axis("pipeline"), len(self.local.chunks)
        stages = self.local.mesh.degree("pipeline")
        return passes(pipeline.word("schedule"), stage, stages, len(self.micro_batches), chunks)

    def receive(self, this: Pass | None) -> Callable[[], Received]:
        """Get ready to receive what a pass needs; call what is returned to wait for it."""
        if this is None:
            return list
        borders = (self.into if this.forward else self.out)[this.chunk]
        waits = [None if border.rank is None else self._expect(border.rank, this, border.number)
                 for border in borders]  # fmt: skip

        def received() -> Received:
            return [
                (border.operation, wait() if wait else self.handed.pop((border.number, this)))
                for border, wait in zip(borders, waits, strict=True)
            ]

        return received

    def _expect(self, rank: int, this: Pass, number: int) -> Callable[[], Tensor]:
        """Get ready to receive a tensor, and all that its rank sends before it."""
        due = self.due.setdefault(rank, deque())
        while (this, number) not in self.coming:
            if not due:  # of the next step
                due.extend(self.order[rank])
            after, position = due.popleft()
            ends = (self.into if after.forward else self.out)[after.chunk]
            (border,) = (candidate for candidate in ends if candidate.number == position)
            begin, end = self.micro_batches[after.micro_batch]
            self.coming[after, position] = border.expect(self.wire, end - begin)
        return self.coming.pop((this, number))

    def send(self, this: Pass, outputs: Tensors) -> None:
        """Send what a pass has made to all passes that need it."""
        for border in (self.out if this.forward else self.into)[this.chunk]:
            if border.rank is None:
                reader = replace(this, chunk=border.chunk)
                self.handed[border.number, reader] = outputs[border.operation].detach()
                continue
            sent = border.send(self.wire, outputs[border.operation])
            late = border.far and not this.forward
            (self.far if late else self.sending.setdefault(this, [])).append(sent)

    def arrived(self, this: Pass) -> None:
        """Release buffers whose messages have surely arrived: answers or later ones came."""
        if not this.forward:
            answered = [replace(this, forward=True)]
            if len(self.out) == 1:
                answered.append(replace(this, micro_batch=this.micro_batch - 2))
            for earlier in answered:
                for sent in self.sending.pop(earlier, []):
                    sent()

    def finish(self) -> None:
        """Wait until all that was sent is there."""
        for sent in [*chain.from_iterable(self.sending.values()), *self.far]:
            sent()
        self.sending, self.far = {}, []

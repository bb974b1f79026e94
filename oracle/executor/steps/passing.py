"""Hands tensors from the passes of one device to its other passes and to other stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from torch import Tensor

from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import Interval
from oracle.executor.steps.border_order import arrivals, crossings
from oracle.executor.steps.schedule import Pass, passes
from oracle.executor.steps.stage_border import StageBorder

Tensors: TypeAlias = dict[int, Tensor]  # by the operation that made them
Received: TypeAlias = list[tuple[int, Tensor]]


class Passing:
    """Receives before a pass what it needs from others, and sends after it what others need."""

    def __init__(self, local: LocalModel, micro_batches: Sequence[Interval]) -> None:
        self.wire, self.micro_batches, self.local = local.wire, micro_batches, local
        ends = [StageBorder.ends(local, chunk) for chunk in range(len(local.chunks))]
        self.into, self.out = [into for into, _ in ends], [out for _, out in ends]
        every, stages = crossings(local.graph, local.stages), local.mesh.degree("pipeline")
        self.order: dict[int, list[tuple[Pass, int]]] = {}  # by rank, how it sends in a step
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
        self.far: list[Callable[[], None]] = []  # gradients for stages that are not next

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

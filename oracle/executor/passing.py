"""What the passes of one device hand to each other and to those of other stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from torch import Tensor

from oracle.executor.border_order import arrivals, crossings
from oracle.executor.local_model import LocalModel
from oracle.executor.parts import Interval
from oracle.executor.schedule import Pass, passes
from oracle.executor.stage_border import StageBorder

Tensors: TypeAlias = dict[int, Tensor]  # by the operation that made them
Received: TypeAlias = list[tuple[int, Tensor]]


class Passing:
    """Receives before a pass what it wants of others, and sends after it what others want."""

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
        """Make ready for what a pass wants of others; call what is returned to wait for it."""
        if this is None:
            return list
        wanted = (self.into if this.forward else self.out)[this.chunk]
        waits = [None if one.rank is None else self._expect(one.rank, this, one.number)
                 for one in wanted]  # fmt: skip

        def received() -> Received:
            return [(one.operation, self.handed.pop((one.number, this)) if wait is None else wait())
                    for one, wait in zip(wanted, waits, strict=True)]  # fmt: skip

        return received

    def _expect(self, rank: int, this: Pass, number: int) -> Callable[[], Tensor]:
        """Make ready for a tensor, and for all that its rank sends before it."""
        due = self.due.setdefault(rank, deque())
        while (this, number) not in self.coming:
            if not due:  # of the next step
                due.extend(self.order[rank])
            after, at = due.popleft()
            ends = (self.into if after.forward else self.out)[after.chunk]
            (border,) = (one for one in ends if one.number == at)
            begin, end = self.micro_batches[after.micro_batch]
            self.coming[after, at] = border.expect(self.wire, end - begin)
        return self.coming.pop((this, number))

    def send(self, this: Pass, made: Tensors) -> None:
        """Send what a pass has made to all that want it."""
        for border in (self.out if this.forward else self.into)[this.chunk]:
            if border.rank is None:
                other = replace(this, chunk=border.chunk)
                self.handed[border.number, other] = made[border.operation].detach()
                continue
            sent = border.send(self.wire, made[border.operation])
            late = border.far and not this.forward
            (self.far if late else self.sending.setdefault(this, [])).append(sent)

    def arrived(self, this: Pass) -> None:
        """Let go what has arrived for sure by now: its answer has come, or later ones are due."""
        if not this.forward:
            known = [replace(this, forward=True)]
            if len(self.out) == 1:
                known.append(replace(this, micro_batch=this.micro_batch - 2))
            for one in known:
                for sent in self.sending.pop(one, []):
                    sent()

    def finish(self) -> None:
        """Wait until all that was sent is there."""
        for sent in [*chain.from_iterable(self.sending.values()), *self.far]:
            sent()
        self.sending, self.far = {}, []

"""What the passes of one device hand to each other and to those of other stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from torch import Tensor

from oracle.executor.local_model import LocalModel
from oracle.executor.parts import Interval
from oracle.executor.schedule import Pass
from oracle.executor.stage_border import StageBorder

Tensors: TypeAlias = dict[int, Tensor]  # by the operation that made them
Received: TypeAlias = list[tuple[int, Tensor]]


class Passing:
    """Receives before a pass what it wants of others, and sends after it what others want."""

    def __init__(self, local: LocalModel, micro_batches: Sequence[Interval]) -> None:
        self.wire, self.micro_batches = local.wire, micro_batches
        ends = [StageBorder.ends(local, chunk) for chunk in range(len(local.chunks))]
        self.into, self.out = [into for into, _ in ends], [out for _, out in ends]
        self.handed: dict[tuple[int, Pass], Tensor] = {}  # between chunks of this device
        self.sending: dict[Pass, list[Callable[[], None]]] = {}
        self.far: list[Callable[[], None]] = []  # gradients for stages that are not next

    def receive(self, this: Pass | None) -> Callable[[], Received]:
        """Make ready for what a pass wants of others; call what is returned to wait for it."""
        if this is None:
            return list
        begin, end = self.micro_batches[this.micro_batch]
        wanted = (self.into if this.forward else self.out)[this.chunk]
        waits = [None if one.rank is None else one.expect(self.wire, end - begin, this.forward)
                 for one in wanted]  # fmt: skip

        def received() -> Received:
            return [(one.operation, self.handed.pop((one.number, this)) if wait is None else wait())
                    for one, wait in zip(wanted, waits, strict=True)]  # fmt: skip

        return received

    def send(self, this: Pass, made: Tensors) -> None:
        """Send what a pass has made to all that want it."""
        for border in (self.out if this.forward else self.into)[this.chunk]:
            if border.rank is None:
                other = replace(this, chunk=border.chunk)
                self.handed[border.number, other] = made[border.operation].detach()
                continue
            sent = border.send(self.wire, made[border.operation], this.forward)
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

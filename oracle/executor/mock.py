"""A wire that sends nothing: what other ranks would send is there already, as noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from oracle.executor.clock import Timer
from oracle.executor.mesh import DeviceMesh
from oracle.executor.wire import Wire, size_of


class MockWire(Wire):
    """Receives noise, whose writing is part of no row's time.

    Not zeros: a branch that always goes the same way is guessed right, so that max-pooling of zeros
    takes a third of its time. Given the rate of the links, a device sleeps as long as its messages
    would take: under a quota of a part of a core it saves up what it does not use, and works faster
    after a pause.
    """

    def __init__(self, mesh: DeviceMesh, timer: Timer | None = None, rate: float = 0.0) -> None:
        super().__init__(mesh, timer=timer or Timer())
        self.noise: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}
        self.random = torch.Generator().manual_seed(1)
        self.rate = rate  # bytes per second, one way; 0: no sleep
        self.slept = 0.0  # seconds of the host in messages so far
        # called with the members of its group as a message begins
        self.before_message: Callable[[tuple[int, ...]], None] = lambda members: None

    def _arrive(
        self, nbytes: float, members: Iterable[int], brought: Iterable[Tensor] = (),
        source: Tensor | None = None,
    ) -> None:  # fmt: skip
        """A message: write what it brings, `source` or noise, and sleep as long as it takes."""
        self.before_message(tuple(sorted(members)))
        began, before = self.timer.now(), time.perf_counter()
        for tensor in brought:
            tensor.copy_(self._like(tensor) if source is None else source)
        self.timer.settle()
        if self.rate:
            left = nbytes / self.rate - (time.perf_counter() - before)
            time.sleep(max(left, 0.0))
        self.slept += time.perf_counter() - before
        self.timer.exchanged(began, self.timer.now())

    def _like(self, tensor: Tensor) -> Tensor:
        """Noise of a tensor's shape, the same each time; zeros of what counts or numbers things."""
        key = tuple(tensor.shape), tensor.dtype
        if key not in self.noise:
            same = torch.zeros(tensor.shape)
            if tensor.is_floating_point():
                same.normal_(generator=self.random)
            self.noise[key] = same.to(tensor)
        return self.noise[key]

    def allreduce(self, buffer: Tensor, axes: Sequence[str], what: str, op: Any = None) -> Tensor:
        group = self.mesh.group(axes)
        if group.size > 1:
            self._arrive(2 * self._others(axes) * size_of(buffer), group.members)
        return buffer

    def _others(self, axes: Sequence[str]) -> float:
        """The share of a tensor that the other ranks of a group hold."""
        size = self.mesh.group(axes).size
        return (size - 1) / size

    def allreduce_later(self, buffer: Tensor, axes: Sequence[str], what: str) -> Callable[[], None]:
        return lambda: None

    def allgather(
        self, part: Tensor, axes: Sequence[str], what: str, into: Tensor | None = None
    ) -> Tensor:
        group = self.mesh.group(axes)
        if group.size == 1:
            return part[None] if into is None else into.view(1, *part.shape).copy_(part)
        shape = group.size, *part.shape
        whole = part.new_empty(shape) if into is None else into.view(shape)
        source = None if into is None else part  # weights: of noise, activations would overflow
        self._arrive((group.size - 1) * size_of(part), group.members, [whole], source)
        return whole

    def reduce_scatter(self, parts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        group = self.mesh.group(axes)
        if group.size == 1:
            return parts[0]
        made = parts.new_empty(parts.shape[1:])
        self._arrive(self._others(axes) * size_of(parts), group.members, [made])
        return made

    def alltoall(self, parts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        made = torch.empty_like(parts)
        self._arrive(self._others(axes) * size_of(parts), self.mesh.group(axes).members, [made])
        return made

    def alltoall_uneven(
        self, given: Tensor, sent: Sequence[int], received: Sequence[int], axes: Sequence[str],
        what: str,
    ) -> Tensor:  # fmt: skip
        made = given.new_empty((sum(received), *given.shape[1:]))
        self._arrive(self._others(axes) * size_of(given), self.mesh.group(axes).members, [made])
        return made

    def counts_of_all(self, counts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        """All have as many as this one."""
        return counts.expand(self.mesh.group(axes).size, *counts.shape)

    def rotate(
        self, given: Tensor, made: Tensor, axes: Sequence[str], what: str
    ) -> Callable[[], Tensor]:
        def wait() -> Tensor:
            group = self.mesh.group(axes)
            beside = (group.members[(group.place + k) % group.size] for k in (-1, 0, 1))
            self._arrive(size_of(given), set(beside), [made])
            return made

        return wait

    def swap(
        self, given: dict[int, Tensor], made: dict[int, Tensor], axes: Sequence[str], what: str
    ) -> None:
        nbytes = sum(map(size_of, given.values()))
        self._arrive(nbytes, {self.mesh.rank, *given, *made}, made.values())

    def send(self, tensor: Tensor, to: int, what: str) -> Callable[[], None]:
        tensor.contiguous()
        return lambda: None

    def expect(self, like: Tensor, source: int, what: str) -> Callable[[], Tensor]:
        """What another stage sends: when it comes the schedule says, so nobody is waited for."""

        def wait() -> Tensor:
            self._arrive(size_of(like), (self.mesh.rank,), [like])
            return like

        return wait

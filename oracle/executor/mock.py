"""A wire that sends nothing: what other ranks would send is there already, as zeros."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from oracle.executor.clock import Timer
from oracle.executor.mesh import DeviceMesh
from oracle.executor.wire import Wire, size_of


class MockWire(Wire):
    """Receives the same buffers of zeros again and again, so that writing them takes no time.

    Given the rate of the links, a device sleeps as long as its messages would take: under a quota
    of a part of a core it saves up what it does not use, and works faster after a pause.
    """

    def __init__(self, mesh: DeviceMesh, timer: Timer | None = None, rate: float = 0.0) -> None:
        super().__init__(mesh, timer=timer or Timer())
        self.buffers: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}
        self.rate = rate  # bytes per second, one way; 0: no sleep
        self.messages = 0  # messages so far
        self.slept = 0.0  # seconds of the host so far

    def _sleep(self, nbytes: float) -> None:
        self.messages += nbytes > 0
        if self.rate:
            began, before = self.timer.now(), time.perf_counter()
            time.sleep(nbytes / self.rate)
            self.slept += time.perf_counter() - before
            self.timer.exchanged(began, self.timer.now())

    def _buffer(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        key = (tuple(shape), like.dtype)
        if key not in self.buffers:
            self.buffers[key] = like.new_zeros(tuple(shape))
        return self.buffers[key]

    def allreduce(self, buffer: Tensor, axes: Sequence[str], what: str, op: Any = None) -> Tensor:
        self._sleep(2 * self._others(axes) * size_of(buffer))
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
        size = self.mesh.group(axes).size
        self._sleep((size - 1) * size_of(part))
        if into is not None:
            return into.view(size, *part.shape).copy_(part)
        return part[None] if size == 1 else self._buffer(part, (size, *part.shape))

    def reduce_scatter(self, parts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        if self.mesh.group(axes).size == 1:
            return parts[0]
        self._sleep(self._others(axes) * size_of(parts))
        return self._buffer(parts, parts.shape[1:]).clone()

    def alltoall(self, parts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        self._sleep(self._others(axes) * size_of(parts))
        return self._buffer(parts, parts.shape).clone()

    def alltoall_uneven(
        self, given: Tensor, sent: Sequence[int], received: Sequence[int], axes: Sequence[str],
        what: str,
    ) -> Tensor:  # fmt: skip
        self._sleep(self._others(axes) * size_of(given))
        return self._buffer(given, (sum(received), *given.shape[1:])).clone()

    def counts_of_all(self, counts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        """All have as many as this one."""
        return counts.expand(self.mesh.group(axes).size, *counts.shape)

    def rotate(
        self, given: Tensor, made: Tensor, axes: Sequence[str], what: str
    ) -> Callable[[], Tensor]:
        def wait() -> Tensor:
            self._sleep(size_of(given))
            return made.zero_()

        return wait

    def swap(
        self, given: dict[int, Tensor], made: dict[int, Tensor], axes: Sequence[str], what: str
    ) -> None:
        for tensor in made.values():
            tensor.zero_()
        self._sleep(sum(map(size_of, given.values())))

    def send(self, tensor: Tensor, to: int, what: str) -> Callable[[], None]:
        tensor.contiguous()
        return lambda: None

    def expect(self, like: Tensor, source: int, what: str) -> Callable[[], Tensor]:
        def wait() -> Tensor:
            self._sleep(size_of(like))
            return like.zero_()

        return wait

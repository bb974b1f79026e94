"""A wire on which nothing is said: what others would send is there already, as zeros."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from oracle.executor.graph import Operation
from oracle.executor.mesh import DeviceMesh
from oracle.executor.program import Watcher
from oracle.executor.wire import Wire, size_of


class Mute(Wire):
    """The same buffers again and again, so that not even writing them takes time.

    Given the rate of the links, a device rests as long as its messages would take: one that may
    have a part of a core only saves up what it does not use, and works faster after a rest.
    """

    def __init__(
        self, mesh: DeviceMesh, synchronise: Callable[[], None] = lambda: None, rate: float = 0.0
    ) -> None:
        super().__init__(mesh, synchronise=synchronise)
        self.ready: dict[Any, Tensor] = {}
        self.rate = rate  # bytes per second, one way; 0: no time passes
        self.spoken = 0  # messages so far

    def _rest(self, nbytes: float) -> None:
        self.spoken += nbytes > 0
        if self.rate:
            began = time.perf_counter()
            time.sleep(nbytes / self.rate)
            self.seconds += time.perf_counter() - began

    def _buffer(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        key = (tuple(shape), like.dtype)
        if key not in self.ready:
            self.ready[key] = like.new_zeros(tuple(shape))
        return self.ready[key]

    def allreduce(self, buffer: Tensor, axes: Sequence[str], what: str, op: Any = None) -> Tensor:
        self._rest(2 * self._others(axes) * size_of(buffer))
        return buffer

    def _others(self, axes: Sequence[str]) -> float:
        """The part of a whole that others hold."""
        size = self.mesh.group(axes).size
        return (size - 1) / size

    def allreduce_later(self, buffer: Tensor, axes: Sequence[str], what: str) -> Callable[[], None]:
        return lambda: None

    def allgather(self, part: Tensor, axes: Sequence[str], what: str) -> Tensor:
        size = self.mesh.group(axes).size
        self._rest((size - 1) * size_of(part))
        return part[None] if size == 1 else self._buffer(part, (size, *part.shape))

    def reduce_scatter(self, parts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        if self.mesh.group(axes).size == 1:
            return parts[0]
        self._rest(self._others(axes) * size_of(parts))
        return self._buffer(parts, parts.shape[1:]).clone()

    def alltoall(self, parts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        self._rest(self._others(axes) * size_of(parts))
        return self._buffer(parts, parts.shape).clone()

    def rotate(
        self, given: Tensor, made: Tensor, axes: Sequence[str], what: str
    ) -> Callable[[], Tensor]:
        def wait() -> Tensor:
            self._rest(size_of(given))
            return made.zero_()

        return wait

    def swap(self, given: dict[int, Tensor], made: dict[int, Tensor], what: str) -> None:
        for tensor in made.values():
            tensor.zero_()
        self._rest(sum(map(size_of, given.values())))

    def send(self, tensor: Tensor, to: int, what: str, tag: int) -> Callable[[], None]:
        tensor.contiguous()
        return lambda: None

    def expect(self, like: Tensor, source: int, what: str, tag: int) -> Callable[[], Tensor]:
        def wait() -> Tensor:
            self._rest(size_of(like))
            return like.zero_()

        return wait


class Watch(Watcher):
    """Times each operation: forward from its beginning to its end, backward from its gradient's

    coming to the coming of the next one's. Its clock stands still while the wire is in use.
    """

    def __init__(self, wire: Mute) -> None:
        self.wire = wire
        self.forget()

    def forget(self) -> None:
        self.forward: dict[int, list[float]] = {}
        self.back: dict[int, float] = {}
        self.coming: list[tuple[float, int, int]] = []
        self.joins: tuple[set[int], set[int]] = set(), set()  # rows that talk, either way
        self.began, self.heard = 0.0, 0

    def _now(self) -> float:
        self.wire.synchronise()
        return time.perf_counter() - self.wire.seconds

    def before(self, op: Operation) -> None:
        self.began, self.heard = self._now(), self.wire.spoken

    def after(self, op: Operation, y: Tensor) -> None:
        self.forward.setdefault(op.row, []).append(self._now() - self.began)
        if self.wire.spoken > self.heard:
            self.joins[0].add(op.row)
        if y.requires_grad:
            y.register_hook(lambda _, row=op.row: self._came(row))

    def _came(self, row: int) -> None:
        self.coming.append((self._now(), self.wire.spoken, row))

    def came_back(self) -> None:
        events = [*sorted(self.coming), (self._now(), self.wire.spoken, -1)]
        for (at, said, row), (after, more, _) in pairwise(events):
            self.back[row] = self.back.get(row, 0.0) + after - at
            if more > said:
                self.joins[1].add(row)
        self.coming = []

    def rows(self) -> dict[int, tuple[float, float]]:
        """Row -> seconds forward and backward, of one copy in one micro-batch."""
        return {
            row: (sum(times) / len(times), self.back.get(row, 0.0) / len(times))
            for row, times in self.forward.items()
        }

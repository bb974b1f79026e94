"""A wire that sends nothing: what other ranks would send is there already, as noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from oracle.executor.measure.clock import Timer
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import ByRank, Wait, Wire, size_of


class MockWire(Wire):
    """Receives noise, whose writing is part of no row's time.

    It is not zeros: processors guess a branch that always goes the same way, so max-pooling of
    zeros takes a third of its time. Given the rate of the links, a device sleeps as long as its
    messages would take: under a quota of a part of a core it saves up the time that it does not
    use, and works faster after a pause.
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
        """Play a message: write what it brings, `source` or noise, and sleep for its time."""
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
        """Noise of a tensor's shape, the same each time; zeros for integers."""
        key = tuple(tensor.shape), tensor.dtype
        if key not in self.noise:
            same = torch.zeros(tensor.shape)
            if tensor.is_floating_point():
                same.normal_(generator=self.random)
            self.noise[key] = same.to(tensor)
        return self.noise[key]

    def allreduce(self, buffer: Tensor, axes: Sequence[str], label: str, op: Any = None) -> Tensor:
        group = self.mesh.group(axes)
        if group.size > 1:
            self._arrive(2 * self._share_of_others(axes) * size_of(buffer), group.members)
        return buffer

    def _share_of_others(self, axes: Sequence[str]) -> float:
        """The share of a tensor that the other ranks of a group hold."""
        size = self.mesh.group(axes).size
        return (size - 1) / size

    def allreduce_later(self, buffer: Tensor, axes: Sequence[str], label: str) -> Wait:
        return lambda: None

    def allgather(
        self, part: Tensor, axes: Sequence[str], label: str, into: Tensor | None = None
    ) -> Tensor:
        group = self.mesh.group(axes)
        if group.size == 1:
            return part[None] if into is None else into.view(1, *part.shape).copy_(part)
        shape = group.size, *part.shape
        gathered = part.new_empty(shape) if into is None else into.view(shape)
        source = None if into is None else part  # weights: of noise, activations would overflow
        self._arrive((group.size - 1) * size_of(part), group.members, [gathered], source)
        return gathered

    def reduce_scatter(self, parts: Tensor, axes: Sequence[str], label: str) -> Tensor:
        group = self.mesh.group(axes)
        if group.size == 1:
            return parts[0]
        part = parts.new_empty(parts.shape[1:])
        self._arrive(self._share_of_others(axes) * size_of(parts), group.members, [part])
        return part

    def alltoall(self, parts: Tensor, axes: Sequence[str], label: str) -> Tensor:
        incoming = torch.empty_like(parts)
        nbytes = self._share_of_others(axes) * size_of(parts)
        self._arrive(nbytes, self.mesh.group(axes).members, [incoming])
        return incoming

    def alltoall_uneven(
        self, outgoing: Tensor, sent: Sequence[int], received: Sequence[int], axes: Sequence[str],
        label: str,
    ) -> Tensor:  # fmt: skip
        incoming = outgoing.new_empty((sum(received), *outgoing.shape[1:]))
        nbytes = self._share_of_others(axes) * size_of(outgoing)
        self._arrive(nbytes, self.mesh.group(axes).members, [incoming])
        return incoming

    def counts_of_all(self, counts: Tensor, axes: Sequence[str], label: str) -> Tensor:
        """Counts as if all ranks had as many as this one."""
        return counts.expand(self.mesh.group(axes).size, *counts.shape)

    def rotate(
        self, outgoing: Tensor, incoming: Tensor, axes: Sequence[str], label: str
    ) -> Callable[[], Tensor]:
        def wait() -> Tensor:
            group = self.mesh.group(axes)
            neighbours = (group.members[(group.place + k) % group.size] for k in (-1, 0, 1))
            self._arrive(size_of(outgoing), set(neighbours), [incoming])
            return incoming

        return wait

    def swap(self, outgoing: ByRank, incoming: ByRank, axes: Sequence[str], label: str) -> None:
        nbytes = sum(map(size_of, outgoing.values()))
        self._arrive(nbytes, {self.mesh.rank, *outgoing, *incoming}, incoming.values())

    def send(self, tensor: Tensor, to: int, label: str) -> Wait:
        tensor.contiguous()
        return lambda: None

    def expect(self, like: Tensor, source: int, label: str) -> Callable[[], Tensor]:
        """What another stage sends; nobody is waited for, as the schedule says when it comes."""

        def wait() -> Tensor:
            self._arrive(size_of(like), (self.mesh.rank,), [like])
            return like

        return wait

"""Messages between the ranks of a plan, counted and timed by kind; times are read after a step.

`nbytes` means what it means in a predicted `Message`: the buffer of one rank for allreduce, the
whole gathered buffer for allgather and reduce_scatter, what this rank sends for sendrecv and halo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from oracle.executor.agreement.grid import over_grid, side
from oracle.executor.agreement.links import Links
from oracle.executor.local.parts import Interval, overlap
from oracle.executor.measure.clock import Moment, Timer
from oracle.executor.messages.calls import gather, newest, together
from oracle.executor.messages.mesh import DeviceMesh

ByRank: TypeAlias = dict[int, Tensor]
Wait: TypeAlias = Callable[[], None]


@dataclass
class Traffic:
    """Calls and bytes of one kind of message."""

    op: str
    group: int
    calls: int = 0
    nbytes: float = 0.0


class Call(NamedTuple):
    """One message as this rank saw it, in moments of its timer."""

    label: str
    members: tuple[int, ...]  # of the group; () of a message between two ranks
    arrived: Moment  # when this rank was there, and could send
    began: Moment  # when it began to wait for the end
    ended: Moment


@dataclass
class Wire:
    """Sends and receives messages for one rank of a mesh, and counts them."""

    mesh: DeviceMesh
    enter: Callable[[str, str], None] = lambda phase, operation: None  # reports what begins
    traffic: dict[str, Traffic] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)  # in order
    timer: Timer = field(default_factory=Timer)
    by: str = ""  # the algorithm of sums, `torus2d:2`; empty: the library's own

    def count(
        self, label: str, op: str, group: int, nbytes: float, began: Moment,
        members: Sequence[int] = (), arrived: Moment = None,
    ) -> None:  # fmt: skip
        """Count a message that has ended; of a collective also who its members are.

        A message that ran beside other work has the moment when its rank `arrived`, before it
        `began` to wait.
        """
        self._spent(label, began, members, arrived)
        entry = self.traffic.setdefault(label, Traffic(op, group))
        entry.calls += 1
        entry.nbytes += nbytes

    def _spent(
        self, label: str, began: Moment, members: Sequence[int] = (), arrived: Moment = None
    ) -> None:
        ended = self.timer.now()
        first = began if arrived is None else arrived
        self.calls.append(Call(label, tuple(members), first, began, ended))
        self.timer.exchanged(began, ended)

    def forget(self) -> None:
        """Forget what was counted and timed."""
        self.traffic, self.calls = {}, []

    def seconds(self) -> dict[str, float]:
        """Seconds in each kind of message of a step that is over."""
        seconds_of: dict[str, float] = {}
        for call in self.calls:
            spent = self.timer.seconds_at(call.ended) - self.timer.seconds_at(call.began)
            seconds_of[call.label] = seconds_of.get(call.label, 0.0) + spent
        return seconds_of

    def collectives(self) -> list[Call]:
        """The collectives of a step that is over, in seconds of this rank's clock."""
        return [Call(label, members, *map(self.timer.seconds_at, moments))
                for label, members, *moments in self.calls if members]  # fmt: skip

    def begin(self, label: str) -> Moment:
        """Report a message; the moment when it begins."""
        self.enter("exchange", label)
        return self.timer.now()

    def allreduce(self, buffer: Tensor, axes: Sequence[str], label: str, op: Any = None) -> Tensor:
        """Sum a buffer (or apply `op`) in place."""
        group = self.mesh.group(axes)
        if group.size > 1:
            began = self.begin(label)
            if op is None and (row := side(self.by, group.size)):
                over_grid(buffer, row, Links(group))
                self.count(label, "allreduce", group.size, size_of(buffer), began, group.members)
                return buffer
            dist.all_reduce(buffer, op=op or dist.ReduceOp.SUM, group=group.handle)
            self.count(label, "allreduce", group.size, size_of(buffer), began, group.members)
        return buffer

    def allreduce_later(self, buffer: Tensor, axes: Sequence[str], label: str) -> Wait:
        """Begin to sum in place; call what is returned to wait for the end."""
        group = self.mesh.group(axes)
        if group.size == 1:
            return lambda: None
        if side(self.by, group.size):
            self.allreduce(buffer, axes, label)
            return lambda: None
        arrived = self.timer.now()
        work = dist.all_reduce(buffer, group=group.handle, async_op=True)

        def wait() -> None:
            waited = self.begin(label)
            work.wait()
            self.count(label, "allreduce", group.size, size_of(buffer), waited, group.members,
                       arrived)  # fmt: skip

        return wait

    def allgather(
        self, part: Tensor, axes: Sequence[str], label: str, into: Tensor | None = None
    ) -> Tensor:
        """Gather equal parts, stacked along a new first axis; `into` may be a flat buffer."""
        group = self.mesh.group(axes)
        if group.size == 1:
            return part[None]
        began = self.begin(label)
        shape = (group.size * part.shape[0], *part.shape[1:])
        gathered = part.new_empty(shape) if into is None else into.view(shape)
        gather(gathered, part.contiguous(), group.handle)
        self.count(label, "allgather", group.size, size_of(gathered), began, group.members)
        return gathered.view(group.size, *part.shape)

    def reduce_scatter(self, parts: Tensor, axes: Sequence[str], label: str) -> Tensor:
        """Sum stacks of equal parts; each rank keeps its own."""
        group = self.mesh.group(axes)
        if group.size == 1:
            return parts[0]
        began = self.begin(label)
        part = parts.new_empty(parts.shape[1:])
        newest("reduce_scatter_single", "reduce_scatter_tensor")(
            part.view(-1), parts.contiguous().view(-1), group=group.handle
        )
        self.count(label, "reduce_scatter", group.size, size_of(parts), began, group.members)
        return part

    def alltoall(self, parts: Tensor, axes: Sequence[str], label: str) -> Tensor:
        """Send part i to rank i of the group; the parts that come are stacked alike."""
        group = self.mesh.group(axes)
        began = self.begin(label)
        incoming, outgoing = torch.empty_like(parts), parts.contiguous()
        dist.all_to_all_single(incoming, outgoing, group=group.handle)
        self.count(label, "alltoall", group.size, size_of(outgoing), began, group.members)
        return incoming

    def alltoall_uneven(
        self, outgoing: Tensor, sent: Sequence[int], received: Sequence[int], axes: Sequence[str],
        label: str,
    ) -> Tensor:  # fmt: skip
        """Send so many rows to each rank of the group; the rows that come lie in its order."""
        group = self.mesh.group(axes)
        began = self.begin(label)
        outgoing = outgoing.contiguous()
        incoming = outgoing.new_empty(sum(received), *outgoing.shape[1:])
        dist.all_to_all_single(incoming, outgoing, list(received), list(sent), group=group.handle)
        self.count(label, "alltoall", group.size, size_of(outgoing), began, group.members)
        return incoming

    def counts_of_all(self, counts: Tensor, axes: Sequence[str], label: str) -> Tensor:
        """The counts of every rank of the group, one below the other."""
        return self.allgather(counts, axes, label)

    def rotate(
        self, outgoing: Tensor, incoming: Tensor, axes: Sequence[str], label: str
    ) -> Callable[[], Tensor]:
        """Begin to send to the next rank of the group; call what is returned for what arrives."""
        group = self.mesh.group(axes)
        before, after = (group.members[(group.place + k) % group.size] for k in (-1, 1))
        contiguous = outgoing.contiguous()
        swapped = together([(after, contiguous)], [(before, incoming)], group.handle)

        def wait() -> Tensor:
            began = self.begin(label)
            swapped()
            self.count(label, "sendrecv", group.size, size_of(contiguous), began)
            return incoming

        return wait

    def swap(self, outgoing: ByRank, incoming: ByRank, axes: Sequence[str], label: str) -> None:
        """Send to and receive from these ranks of a group at once."""
        began = self.begin(label)
        contiguous = [(rank, outgoing[rank].contiguous()) for rank in sorted(outgoing)]
        together(contiguous, sorted(incoming.items()), self.mesh.group(axes).handle)()
        nbytes = sum(map(size_of, outgoing.values()))
        self.count(label, "halo", len(outgoing) + 1, nbytes, began)

    def send(self, tensor: Tensor, to: int, label: str) -> Wait:
        """Begin to send; call what is returned before the buffer goes."""
        began = self.begin(label)
        contiguous = tensor.contiguous()
        sent = together([(to, contiguous)], [], self.mesh.way(self.mesh.rank, to))
        self.count(label, "sendrecv", 2, size_of(contiguous), began)

        def wait() -> None:
            began = self.timer.now()
            sent()
            self._spent(label, began)

        return wait

    def expect(self, like: Tensor, source: int, label: str) -> Callable[[], Tensor]:
        """Get ready for what `source` sends next; call what is returned to wait for it."""
        came = together([], [(source, like)], self.mesh.way(source, self.mesh.rank))

        def wait() -> Tensor:
            began = self.begin(label)
            came()
            self.count(f"{label}, received", "received", 2, size_of(like), began)
            return like

        return wait

    def fetch_halo(
        self, region: Tensor, dim: int, begin: int, place: int, held_parts: Sequence[Interval],
        wanted_parts: Sequence[Interval], ranks: Sequence[int], label: str,
    ) -> None:  # fmt: skip
        """Fetch what this part wants of others along `dim` into a region, and send them theirs.

        The region begins at number `begin`. Parts that are wanted beyond it arrive and are dropped.
        """
        held_here, wanted_here = held_parts[place], wanted_parts[place]
        spans = {
            rank: (overlap(held_here, wanted_parts[part]), overlap(held_parts[part], wanted_here))
            for part, rank in enumerate(ranks)
            if part != place
        }
        inside = begin, begin + region.shape[dim]
        for rank, border in self._swap_spans(region, dim, begin, spans, label).items():
            first = spans[rank][1][0]
            low, high = overlap(spans[rank][1], inside)
            if low < high:
                came = border.narrow(dim, low - first, high - low)
                region.narrow(dim, low - begin, high - low).copy_(came)

    def return_halo(
        self, x: Tensor, dim: int, place: int, held_parts: Sequence[Interval],
        wanted_parts: Sequence[Interval], ranks: Sequence[int], label: str,
    ) -> Tensor:  # fmt: skip
        """Send gradients of borders back, the reverse of `fetch_halo`, and add them up."""
        held_here, wanted_here = held_parts[place], wanted_parts[place]
        spans = {
            rank: (overlap(held_parts[part], wanted_here), overlap(held_here, wanted_parts[part]))
            for part, rank in enumerate(ranks)
            if part != place
        }
        begin, first = wanted_here[0], held_here[0]
        borders = self._swap_spans(x, dim, begin, spans, label)
        low, high = overlap(held_here, wanted_here)
        if not borders and (low, high) == held_here:
            return x.narrow(dim, low - begin, high - low)
        total = x.new_zeros(_resized(x, dim, held_here[1] - first))
        if low < high:
            total.narrow(dim, low - first, high - low).copy_(x.narrow(dim, low - begin, high - low))
        for rank, border in borders.items():
            low, high = spans[rank][1]
            total.narrow(dim, low - first, high - low).add_(border)
        return total

    def _swap_spans(
        self, x: Tensor, dim: int, begin: int, spans: Mapping[int, tuple[Interval, Interval]],
        label: str,
    ) -> ByRank:  # fmt: skip
        """Swap (what goes, what comes) with each rank, by numbers along `dim` from `begin` on."""
        outgoing, incoming = {}, {}
        for rank, ((low, high), (first, last)) in spans.items():
            if low < high:
                outgoing[rank] = x.narrow(dim, low - begin, high - low)
            if first < last:
                incoming[rank] = x.new_empty(_resized(x, dim, last - first))
        if outgoing or incoming:
            self.swap(outgoing, incoming, ("spatial",), label)
        return incoming


def _resized(x: Tensor, dim: int, count: int) -> list[int]:
    """The shape of a tensor with another extent along one dimension."""
    return [count if k == dim else extent for k, extent in enumerate(x.shape)]


def size_of(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())

"""Messages between the ranks of a plan, counted and timed by kind; times are read after a step.

`nbytes` means what it means in a predicted `Message`: the buffer of one rank for allreduce, the
whole gathered buffer for allgather and reduce_scatter, what this rank sends for sendrecv and halo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from oracle.executor.agreement.grid import over_grid, side
from oracle.executor.agreement.links import Links
from oracle.executor.calls import gather, newest, together
from oracle.executor.clock import Moment, Timer
from oracle.executor.mesh import DeviceMesh
from oracle.executor.parts import Interval, overlap


@dataclass
class Traffic:
    """Calls and bytes of one kind of message."""

    op: str
    group: int
    calls: int = 0
    nbytes: float = 0.0


class Call(NamedTuple):
    """One message as this rank saw it, in moments of its timer."""

    what: str
    members: tuple[int, ...]  # of its group; () of what is between two ranks
    arrived: Moment  # when this rank was there, and could send
    began: Moment  # when it began to wait for the end
    ended: Moment


@dataclass
class Wire:
    """Sends and receives for one rank of a mesh, and counts what it sends."""

    mesh: DeviceMesh
    enter: Callable[[str, str], None] = lambda phase, operation: None  # reports what begins
    traffic: dict[str, Traffic] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)  # in order
    timer: Timer = field(default_factory=Timer)
    by: str = ""  # the algorithm of sums, `torus2d:2`; the library's own if not said

    def count(
        self, what: str, op: str, group: int, nbytes: float, began: Moment,
        members: Sequence[int] = (), arrived: Moment = None,
    ) -> None:  # fmt: skip
        """A message that has ended; of a collective also who its members are.

        One that went on beside other work says when its rank `arrived`, before it `began` to wait.
        """
        self._spent(what, began, members, arrived)
        entry = self.traffic.setdefault(what, Traffic(op, group))
        entry.calls += 1
        entry.nbytes += nbytes

    def _spent(
        self, what: str, began: Moment, members: Sequence[int] = (), arrived: Moment = None
    ) -> None:
        ended = self.timer.now()
        first = began if arrived is None else arrived
        self.calls.append(Call(what, tuple(members), first, began, ended))
        self.timer.exchanged(began, ended)

    def forget(self) -> None:
        """Count and time anew."""
        self.traffic, self.calls = {}, []

    def seconds(self) -> dict[str, float]:
        """Seconds in each kind of message, of a step that is over."""
        found: dict[str, float] = {}
        for call in self.calls:
            spent = self.timer.at(call.ended) - self.timer.at(call.began)
            found[call.what] = found.get(call.what, 0.0) + spent
        return found

    def collectives(self) -> list[Call]:
        """The collectives of a step that is over, in seconds of this rank's clock."""
        return [Call(what, members, *map(self.timer.at, moments))
                for what, members, *moments in self.calls if members]  # fmt: skip

    def begin(self, what: str) -> Moment:
        """The moment when a message begins."""
        self.enter("exchange", what)
        return self.timer.now()

    def allreduce(self, buffer: Tensor, axes: Sequence[str], what: str, op: Any = None) -> Tensor:
        """Sum (or `op`) in place."""
        group = self.mesh.group(axes)
        if group.size > 1:
            began = self.begin(what)
            if op is None and (row := side(self.by, group.size)):
                over_grid(buffer, row, Links(group))
                self.count(what, "allreduce", group.size, size_of(buffer), began, group.members)
                return buffer
            dist.all_reduce(buffer, op=op or dist.ReduceOp.SUM, group=group.handle)
            self.count(what, "allreduce", group.size, size_of(buffer), began, group.members)
        return buffer

    def allreduce_later(self, buffer: Tensor, axes: Sequence[str], what: str) -> Callable[[], None]:
        """Begin to sum in place; call what is returned to wait for the end."""
        group = self.mesh.group(axes)
        if group.size == 1:
            return lambda: None
        if side(self.by, group.size):
            self.allreduce(buffer, axes, what)
            return lambda: None
        arrived = self.timer.now()
        work = dist.all_reduce(buffer, group=group.handle, async_op=True)

        def wait() -> None:
            waited = self.begin(what)
            work.wait()
            self.count(what, "allreduce", group.size, size_of(buffer), waited, group.members,
                       arrived)  # fmt: skip

        return wait

    def allgather(
        self, part: Tensor, axes: Sequence[str], what: str, into: Tensor | None = None
    ) -> Tensor:
        """Equal parts of all, stacked along a new first axis; in a flat buffer if one is given."""
        group = self.mesh.group(axes)
        if group.size == 1:
            return part[None]
        began = self.begin(what)
        shape = (group.size * part.shape[0], *part.shape[1:])
        whole = part.new_empty(shape) if into is None else into.view(shape)
        gather(whole, part.contiguous(), group.handle)
        self.count(what, "allgather", group.size, size_of(whole), began, group.members)
        return whole.view(group.size, *part.shape)

    def reduce_scatter(self, parts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        """Sum stacks of equal parts; each keeps its own."""
        group = self.mesh.group(axes)
        if group.size == 1:
            return parts[0]
        began = self.begin(what)
        part = parts.new_empty(parts.shape[1:])
        newest("reduce_scatter_single", "reduce_scatter_tensor")(
            part.view(-1), parts.contiguous().view(-1), group=group.handle
        )
        self.count(what, "reduce_scatter", group.size, size_of(parts), began, group.members)
        return part

    def alltoall(self, parts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        """Part i goes to rank i of the group; what comes is stacked alike."""
        group = self.mesh.group(axes)
        began = self.begin(what)
        made, given = torch.empty_like(parts), parts.contiguous()
        dist.all_to_all_single(made, given, group=group.handle)
        self.count(what, "alltoall", group.size, size_of(given), began, group.members)
        return made

    def alltoall_uneven(
        self, given: Tensor, sent: Sequence[int], received: Sequence[int], axes: Sequence[str],
        what: str,
    ) -> Tensor:  # fmt: skip
        """So many rows to each rank of the group, one after the other; what comes lies alike."""
        group = self.mesh.group(axes)
        began = self.begin(what)
        made, given = given.new_empty(sum(received), *given.shape[1:]), given.contiguous()
        dist.all_to_all_single(made, given, list(received), list(sent), group=group.handle)
        self.count(what, "alltoall", group.size, size_of(given), began, group.members)
        return made

    def counts_of_all(self, counts: Tensor, axes: Sequence[str], what: str) -> Tensor:
        """What each of the group has so many of, one below the other."""
        return self.allgather(counts, axes, what)

    def rotate(
        self, given: Tensor, made: Tensor, axes: Sequence[str], what: str
    ) -> Callable[[], Tensor]:
        """Begin to send to the next of the group; call what is returned for what arrives."""
        group = self.mesh.group(axes)
        before, after = (group.members[(group.place + k) % group.size] for k in (-1, 1))
        whole = given.contiguous()
        swapped = together([(after, whole)], [(before, made)], group.handle)

        def wait() -> Tensor:
            began = self.begin(what)
            swapped()
            self.count(what, "sendrecv", group.size, size_of(whole), began)
            return made

        return wait

    def swap(
        self, given: dict[int, Tensor], made: dict[int, Tensor], axes: Sequence[str], what: str
    ) -> None:
        """Send to and receive from these ranks of a group at once."""
        began = self.begin(what)
        whole = [(rank, given[rank].contiguous()) for rank in sorted(given)]
        together(whole, sorted(made.items()), self.mesh.group(axes).handle)()
        nbytes = sum(map(size_of, given.values()))
        self.count(what, "halo", len(given) + 1, nbytes, began)

    def send(self, tensor: Tensor, to: int, what: str) -> Callable[[], None]:
        """Begin to send; call what is returned before the buffer goes."""
        began = self.begin(what)
        whole = tensor.contiguous()
        sent = together([(to, whole)], [], self.mesh.way(self.mesh.rank, to))
        self.count(what, "sendrecv", 2, size_of(whole), began)

        def wait() -> None:
            began = self.timer.now()
            sent()
            self._spent(what, began)

        return wait

    def expect(self, like: Tensor, source: int, what: str) -> Callable[[], Tensor]:
        """Make ready for what `source` sends next; call what is returned to wait for it."""
        came = together([], [(source, like)], self.mesh.way(source, self.mesh.rank))

        def wait() -> Tensor:
            began = self.begin(what)
            came()
            self.count(f"{what}, received", "received", 2, size_of(like), began)
            return like

        return wait

    def fetch_halo(
        self, region: Tensor, dim: int, begin: int, place: int, held: Sequence[Interval],
        wanted: Sequence[Interval], ranks: Sequence[int], what: str,
    ) -> None:  # fmt: skip
        """Put what this part wants of others along `dim` into a region, and give them theirs.

        The region begins at number `begin`. What is wanted beyond it comes, and is dropped.
        """
        given, made, at = {}, {}, {}
        inside = begin, begin + region.shape[dim]
        for other, rank in enumerate(ranks):
            if other == place:
                continue
            low, high = overlap(held[place], wanted[other])
            if low < high:
                given[rank] = region.narrow(dim, low - begin, high - low)
            low, high = at[rank] = overlap(held[other], wanted[place])
            if low < high:
                shape = list(region.shape)
                shape[dim] = high - low
                made[rank] = region.new_empty(shape)
        if given or made:
            self.swap(given, made, ("spatial",), what)
        for rank, border in made.items():
            low, high = overlap(at[rank], inside)
            if low < high:
                came = border.narrow(dim, low - at[rank][0], high - low)
                region.narrow(dim, low - begin, high - low).copy_(came)

    def return_halo(
        self, x: Tensor, dim: int, place: int, held: Sequence[Interval],
        wanted: Sequence[Interval], ranks: Sequence[int], what: str,
    ) -> Tensor:  # fmt: skip
        """The reverse of `fetch_halo`: gradients of borders go back and add up there."""
        given, made = {}, {}
        for other, rank in enumerate(ranks):
            if other == place:
                continue
            low, high = overlap(held[other], wanted[place])
            if low < high:
                given[rank] = x.narrow(dim, low - wanted[place][0], high - low)
            low, high = overlap(held[place], wanted[other])
            if low < high:
                shape = list(x.shape)
                shape[dim] = high - low
                made[rank] = x.new_empty(shape)
        if given or made:
            self.swap(given, made, ("spatial",), what)
        shape = list(x.shape)
        shape[dim] = held[place][1] - held[place][0]
        low, high = overlap(held[place], wanted[place])
        if not made and (low, high) == held[place]:
            return x.narrow(dim, low - wanted[place][0], high - low)
        own = x.new_zeros(shape)
        if low < high:
            part = x.narrow(dim, low - wanted[place][0], high - low)
            own.narrow(dim, low - held[place][0], high - low).copy_(part)
        for other, rank in enumerate(ranks):
            if rank in made:
                low, high = overlap(held[place], wanted[other])
                own.narrow(dim, low - held[place][0], high - low).add_(made[rank])
        return own


def size_of(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())

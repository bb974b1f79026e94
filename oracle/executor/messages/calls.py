"""The torch.distributed call of each collective operation that is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import Tensor

    from oracle.executor.ranks.rank import Rank


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Groups that communicate at once: `groups` of `size` ranks, `stride` apart in a group."""

    size: int
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        return f"{self.size}x{self.stride}" + (f"*{self.groups}" if self.groups > 1 else "")

    def members(self, ranks: int) -> list[list[int]]:
        """The ranks of each group, nearest neighbours first in line.

        >>> GroupShape(2, 4, 2).members(8)
        [[0, 4], [1, 5]]
        """
        span = self.size * self.stride
        starts = (block + i for block in range(0, ranks, span) for i in range(self.stride))
        groups = [[s + k * self.stride for k in range(self.size)] for s in starts]
        return [group for group in groups if group[-1] < ranks][: self.groups]


class ProcessGroups:
    """The process groups of a shape, which of them is this rank's, and how many hosts one spans."""

    def __init__(self, rank: Rank, shape: GroupShape) -> None:
        import torch.distributed as dist

        self.shape, self.all = shape, shape.members(rank.size)
        if not self.all:
            raise ValueError(f"no group of shape {shape} fits into {rank.size} ranks")
        handles = [dist.new_group(group) for group in self.all]  # all ranks make all groups
        own_group = next((i for i, group in enumerate(self.all) if rank.rank in group), None)
        self.mine = None if own_group is None else handles[own_group]
        self.members = [] if own_group is None else self.all[own_group]
        self.nodes = len({rank.hosts[member] for member in self.all[0]})


# What is timed, and its bytes.
TimedCall = tuple[Callable[[], Any], int]


def _buffer(rank: Rank, elements: int) -> Tensor:
    import torch

    return torch.ones(elements, dtype=torch.float32, device=rank.device)


def _allreduce(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    import torch.distributed as dist

    buffer = _buffer(rank, max(size // 4, 1)).zero_()  # ones would overflow, repeated
    return lambda: dist.all_reduce(buffer, group=groups.mine), buffer.numel() * 4


def _share(groups: ProcessGroups, size: int) -> int:
    return max(size // 4 // groups.shape.size, 1)


def _reduce_scatter(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    share = _share(groups, size)
    full, part = _buffer(rank, share * groups.shape.size), _buffer(rank, share)
    call = newest("reduce_scatter_single", "reduce_scatter_tensor")
    return lambda: call(part, full, group=groups.mine), full.numel() * 4


def _allgather(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    share = _share(groups, size)
    full, part = _buffer(rank, share * groups.shape.size), _buffer(rank, share)
    return lambda: gather(full, part, groups.mine), full.numel() * 4


def gather(
    full: Tensor, part: Tensor, group: dist.ProcessGroup, async_op: bool = False
) -> dist.Work | None:
    """Allgather equal parts into one buffer, by a swap where gloo has two ranks and all wait.

    Between two ranks gloo has one connection, and its allgather sends one way after the other,
    unless both ranks arrive at once: that takes 1.5 times as long. A swap that receives first
    never does so.
    """
    import torch.distributed as dist

    on_gloo = dist.get_backend(group) == "gloo" and not part.is_cuda
    if dist.get_world_size(group) != 2 or not on_gloo or async_op:
        call = newest("all_gather_single", "all_gather_into_tensor")
        return call(full, part, group=group, async_op=async_op)
    me = dist.get_rank(group)
    halves = full.view(-1).chunk(2)
    peer = dist.get_global_rank(group, 1 - me)
    coming = dist.irecv(halves[1 - me], peer, group=group)
    going = dist.isend(part.view(-1), peer, group=group)
    halves[me].copy_(part.view(-1))
    coming.wait()
    going.wait()
    return None


def together(
    outgoing: Iterable[tuple[int, Tensor]],
    incoming: Iterable[tuple[int, Tensor]],
    group: dist.ProcessGroup | None,
) -> Callable[[], None]:
    """Begin to send to and receive from these ranks at once; call what is returned to wait.

    The calls are one group: NCCL runs a communicator's calls one after the other, and a send ends
    with its receive; only the calls of a group go on without each other. Receives come first:
    over a single connection of gloo their notice would wait behind the data.
    """
    import torch.distributed as dist

    calls = [dist.P2POp(dist.irecv, tensor, rank, group) for rank, tensor in incoming]
    calls += [dist.P2POp(dist.isend, tensor, rank, group) for rank, tensor in outgoing]
    works = dist.batch_isend_irecv(calls) if calls else []

    def wait() -> None:
        for work in works:
            work.wait()
        calls.clear()  # the buffers live until here

    return wait


def newest(name: str, older: str) -> Callable[..., Any]:
    """The function of torch.distributed by its name of today, or by that of older releases."""
    import torch.distributed as dist

    function: Callable[..., Any] = getattr(dist, name, None) or getattr(dist, older)
    return function


def _broadcast(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    import torch.distributed as dist

    buffer = _buffer(rank, max(size // 4, 1))
    root = groups.members[0]
    return lambda: dist.broadcast(buffer, root, group=groups.mine), buffer.numel() * 4


def _alltoall(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    import torch.distributed as dist

    outgoing = _buffer(rank, _share(groups, size) * groups.shape.size)
    incoming = outgoing.clone()
    call = partial(dist.all_to_all_single, incoming, outgoing, group=groups.mine)
    return call, outgoing.numel() * 4


def _neighbours(rank: Rank, groups: ProcessGroups) -> Iterator[int]:
    """The ranks before and after this one in its group, where there are any."""
    place = groups.members.index(rank.rank)
    for neighbour in (place - 1, place + 1):
        if 0 <= neighbour < len(groups.members):
            yield groups.members[neighbour]


def _sendrecv(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    """Every rank sends to the next at once, the last to the first."""
    place, ranks = groups.members.index(rank.rank), len(groups.members)
    after, before = groups.members[(place + 1) % ranks], groups.members[place - 1]
    outgoing, incoming = _buffer(rank, max(size // 4, 1)), _buffer(rank, max(size // 4, 1))

    def call() -> None:
        together([(after, outgoing)], [(before, incoming)], groups.mine)()

    return call, outgoing.numel() * 4


def _halo(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    """Every rank swaps a border with each of its neighbours, pairwise and at once."""
    neighbours = list(_neighbours(rank, groups))
    outgoing = [_buffer(rank, max(size // 4, 1)) for _ in neighbours]
    incoming = [_buffer(rank, max(size // 4, 1)) for _ in neighbours]

    def call() -> None:
        going, coming = (zip(neighbours, t, strict=True) for t in (outgoing, incoming))
        together(going, coming, groups.mine)()

    return call, outgoing[0].numel() * 4


CALLS: dict[str, Callable[[Rank, ProcessGroups, int], TimedCall]] = {
    "allreduce": _allreduce,
    "reduce_scatter": _reduce_scatter,
    "allgather": _allgather,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "sendrecv": _sendrecv,
    "halo": _halo,
}

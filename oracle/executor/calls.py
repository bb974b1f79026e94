"""The torch.distributed call of each collective operation that is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import Tensor

    from oracle.executor.rank import Rank


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
        whole = [[s + k * self.stride for k in range(self.size)] for s in starts]
        return [group for group in whole if group[-1] < ranks][: self.groups]


class ProcessGroups:
    """The process groups of a shape, which of them is this rank's, and how many hosts one spans."""

    def __init__(self, rank: Rank, shape: GroupShape) -> None:
        import torch.distributed as dist

        self.shape, self.all = shape, shape.members(rank.size)
        if not self.all:
            raise ValueError(f"no group of shape {shape} fits into {rank.size} ranks")
        made = [dist.new_group(group) for group in self.all]  # all ranks make all groups
        at = next((i for i, group in enumerate(self.all) if rank.rank in group), None)
        self.mine = None if at is None else made[at]
        self.members = [] if at is None else self.all[at]
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
    whole, part = _buffer(rank, share * groups.shape.size), _buffer(rank, share)
    call = newest("reduce_scatter_single", "reduce_scatter_tensor")
    return lambda: call(part, whole, group=groups.mine), whole.numel() * 4


def _allgather(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    share = _share(groups, size)
    whole, part = _buffer(rank, share * groups.shape.size), _buffer(rank, share)
    return lambda: gather(whole, part, groups.mine), whole.numel() * 4


def gather(
    whole: Tensor, part: Tensor, group: dist.ProcessGroup, async_op: bool = False
) -> dist.Work | None:
    """Allgather equal parts into one buffer, by a swap where gloo has two ranks and all wait.

    Between two ranks gloo has one connection, and its allgather sends one way after the other
    unless both come at once: 1.5 times the time. A swap that receives first never does.
    """
    import torch.distributed as dist

    on_gloo = dist.get_backend(group) == "gloo" and not part.is_cuda
    if dist.get_world_size(group) != 2 or not on_gloo or async_op:
        call = newest("all_gather_single", "all_gather_into_tensor")
        return call(whole, part, group=group, async_op=async_op)
    me = dist.get_rank(group)
    halves = whole.view(-1).chunk(2)
    other = dist.get_global_rank(group, 1 - me)
    coming = dist.irecv(halves[1 - me], other, group=group)
    going = dist.isend(part.view(-1), other, group=group)
    halves[me].copy_(part.view(-1))
    coming.wait()
    going.wait()
    return None


def together(
    given: Iterable[tuple[int, Tensor]],
    made: Iterable[tuple[int, Tensor]],
    group: dist.ProcessGroup | None,
) -> Callable[[], None]:
    """Begin to send to and receive from these ranks at once; call what is returned to wait.

    As one group of calls: NCCL runs a communicator's calls one after the other, and a send ends
    with its receive; only the calls of a group go on without each other. Receivers first: over a
    single connection of gloo's their notice would wait behind the data.
    """
    import torch.distributed as dist

    calls = [dist.P2POp(dist.irecv, tensor, rank, group) for rank, tensor in made]
    calls += [dist.P2POp(dist.isend, tensor, rank, group) for rank, tensor in given]
    works = dist.batch_isend_irecv(calls) if calls else []

    def wait() -> None:
        for work in works:
            work.wait()
        calls.clear()  # the buffers live until here

    return wait


def newest(name: str, older: str) -> Callable[..., Any]:
    """torch.distributed's function by its name of today, or by that of older releases."""
    import torch.distributed as dist

    found: Callable[..., Any] = getattr(dist, name, None) or getattr(dist, older)
    return found


def _broadcast(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    import torch.distributed as dist

    buffer = _buffer(rank, max(size // 4, 1))
    root = groups.members[0]
    return lambda: dist.broadcast(buffer, root, group=groups.mine), buffer.numel() * 4


def _alltoall(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    import torch.distributed as dist

    given = _buffer(rank, _share(groups, size) * groups.shape.size)
    made = given.clone()
    return lambda: dist.all_to_all_single(made, given, group=groups.mine), given.numel() * 4


def _neighbours(rank: Rank, groups: ProcessGroups) -> Iterator[int]:
    """Before and after this rank in its group, where there is one."""
    place = groups.members.index(rank.rank)
    for other in (place - 1, place + 1):
        if 0 <= other < len(groups.members):
            yield groups.members[other]


def _sendrecv(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    """Every rank sends to the next at once, the last to the first."""
    place, ranks = groups.members.index(rank.rank), len(groups.members)
    after, before = groups.members[(place + 1) % ranks], groups.members[place - 1]
    given, made = _buffer(rank, max(size // 4, 1)), _buffer(rank, max(size // 4, 1))

    def call() -> None:
        together([(after, given)], [(before, made)], groups.mine)()

    return call, given.numel() * 4


def _halo(rank: Rank, groups: ProcessGroups, size: int) -> TimedCall:
    """Every rank swaps a border with each of its neighbours, pairwise and at once."""
    others = list(_neighbours(rank, groups))
    given = [_buffer(rank, max(size // 4, 1)) for _ in others]
    made = [_buffer(rank, max(size // 4, 1)) for _ in others]

    def call() -> None:
        together(zip(others, given, strict=True), zip(others, made, strict=True), groups.mine)()

    return call, given[0].numel() * 4


CALLS: dict[str, Callable[[Rank, ProcessGroups, int], TimedCall]] = {
    "allreduce": _allreduce,
    "reduce_scatter": _reduce_scatter,
    "allgather": _allgather,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "sendrecv": _sendrecv,
    "halo": _halo,
}

"""Proves that every exchange delivers what it should: known numbers are sent and compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from oracle.executor.messages.calls import GroupShape, ProcessGroups, gather, newest, together

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

# elements to each rank: libraries send few, some and many bytes by different protocols
COUNTS = (1, 1023, 2**18 + 1)
MOST = 2**24  # elements of all ranks together


def groups(ranks: int) -> list[GroupShape]:
    """Shapes of groups to try: all ranks; halves, and every other rank, where there are enough."""
    shapes = [GroupShape(ranks)]
    if ranks >= 4 and ranks % 2 == 0:
        shapes += [GroupShape(ranks // 2, 1, 2), GroupShape(ranks // 2, 2, 2)]
    return shapes


def wrong(rank: Rank, groups: ProcessGroups, operation: str, count: int) -> int:
    """How many numbers that arrive here are not what they should be."""
    if groups.mine is None:
        return 0
    place, count = groups.members.index(rank.rank), max(1, min(count, MOST // groups.shape.size))
    arrived, expected = EXCHANGES[operation](rank, groups, place, count)
    return int((arrived.cpu() != expected).sum())


def _numbers(count: int, source: int, begin: int = 0) -> Tensor:
    """Whole numbers that tell their sender and their order; exact when ranks are summed."""
    order = torch.arange(begin, begin + count) % 97
    return (order + 100 * (source % 8 + 1)).to(torch.float32)


def _numbers_of_group(groups: ProcessGroups, count: int, begin: int = 0) -> list[Tensor]:
    """The numbers of every rank of a group."""
    return [_numbers(count, i, begin) for i in range(groups.shape.size)]


def _allreduce(rank: Rank, groups: ProcessGroups, place: int, count: int) -> tuple[Tensor, Tensor]:
    buffer = _numbers(count, place).to(rank.device)
    dist.all_reduce(buffer, group=groups.mine)
    return buffer, torch.stack(_numbers_of_group(groups, count)).sum(0)


def _reduce_scatter(
    rank: Rank, groups: ProcessGroups, place: int, count: int
) -> tuple[Tensor, Tensor]:
    p = groups.shape.size
    part = torch.empty(count, device=rank.device)
    full = _numbers(count * p, place).to(rank.device)
    newest("reduce_scatter_single", "reduce_scatter_tensor")(part, full, group=groups.mine)
    return part, torch.stack(_numbers_of_group(groups, count, place * count)).sum(0)


def _allgather(rank: Rank, groups: ProcessGroups, place: int, count: int) -> tuple[Tensor, Tensor]:
    gathered = torch.empty(count * groups.shape.size, device=rank.device)
    gather(gathered, _numbers(count, place).to(rank.device), groups.mine)
    return gathered, torch.cat(_numbers_of_group(groups, count))


def _broadcast(rank: Rank, groups: ProcessGroups, place: int, count: int) -> tuple[Tensor, Tensor]:
    root = groups.shape.size - 1
    buffer = _numbers(count, place).to(rank.device)
    dist.broadcast(buffer, groups.members[root], group=groups.mine)
    return buffer, _numbers(count, root)


def _alltoall(rank: Rank, groups: ProcessGroups, place: int, count: int) -> tuple[Tensor, Tensor]:
    p = groups.shape.size
    incoming = torch.empty(count * p, device=rank.device)
    dist.all_to_all_single(incoming, _numbers(count * p, place).to(rank.device), group=groups.mine)
    return incoming, torch.cat(_numbers_of_group(groups, count, place * count))


def _sendrecv(rank: Rank, groups: ProcessGroups, place: int, count: int) -> tuple[Tensor, Tensor]:
    """Each rank sends to the next, the last to the first."""
    p = groups.shape.size
    incoming = torch.empty(count, device=rank.device)
    outgoing = _numbers(count, place).to(rank.device)
    if p > 1:
        _at_once(groups, [(outgoing, (place + 1) % p)], [(incoming, (place - 1) % p)])
    return (incoming if p > 1 else outgoing), _numbers(count, (place - 1) % p)


def _halo(rank: Rank, groups: ProcessGroups, place: int, count: int) -> tuple[Tensor, Tensor]:
    """Each rank swaps with the neighbours that it has."""
    neighbours = [k for k in (place - 1, place + 1) if 0 <= k < groups.shape.size]
    outgoing = _numbers(count, place).to(rank.device)
    incoming = [torch.empty(count, device=rank.device) for _ in neighbours]
    if neighbours:
        pairs = list(zip(incoming, neighbours, strict=True))
        _at_once(groups, [(outgoing, neighbour) for neighbour in neighbours], pairs)
    expected = torch.cat([_numbers(count, i) for i in (place, *neighbours)])
    return torch.cat([outgoing, *incoming]), expected


def _at_once(
    groups: ProcessGroups, outgoing: list[tuple[Tensor, int]], incoming: list[tuple[Tensor, int]]
) -> None:
    """Send and receive as one group of calls, which cannot block in any order."""
    members = groups.members
    going, coming = ([(members[i], tensor) for tensor, i in t] for t in (outgoing, incoming))
    together(going, coming, groups.mine)()


EXCHANGES: dict[str, Callable[[Rank, ProcessGroups, int, int], tuple[Tensor, Tensor]]] = {
    "allreduce": _allreduce,
    "reduce_scatter": _reduce_scatter,
    "allgather": _allgather,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "sendrecv": _sendrecv,
    "halo": _halo,
}

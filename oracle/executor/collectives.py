"""A micro-benchmark of the operations that the oracle prices, over torch.distributed.

Every rank times its own calls with its own clock and all start together after a barrier; a
sample's time is the largest of the ranks' durations, so no two clocks are ever compared. Small
messages are called several times in a row and the mean kept; each repeat is one value of `each`.
`nbytes` means what the oracle's messages mean by it: the buffer of one rank for allreduce and
broadcast, the whole gathered buffer for allgather and reduce_scatter, all that one rank holds for
alltoall, the bytes to one neighbour for sendrecv and halo.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor import records
from oracle.executor.launch import TIMEOUT, Host, Outcome, Say, _unheard, launch
from oracle.units import show

if TYPE_CHECKING:
    from oracle.executor.rank import Rank

OPERATIONS = (
    "allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall", "sendrecv", "halo",
)  # fmt: skip
SIZES = tuple(2**k for k in range(8, 25, 2))
_ENOUGH = 5e-3  # seconds that one repeat should last, by repeating the call
_MOST_CALLS = 50


@dataclass(frozen=True, slots=True)
class Shape:
    """Groups that talk at once: `groups` of `size` ranks, `stride` apart within a group."""

    size: int
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        return f"{self.size}x{self.stride}" + (f"*{self.groups}" if self.groups > 1 else "")

    def members(self, ranks: int) -> list[list[int]]:
        """The ranks of each group, nearest neighbours first in line.

        >>> Shape(2, 4, 2).members(8)
        [[0, 4], [1, 5]]
        """
        span = self.size * self.stride
        starts = (block + i for block in range(0, ranks, span) for i in range(self.stride))
        whole = [[s + k * self.stride for k in range(self.size)] for s in starts]
        return [group for group in whole if group[-1] < ranks][: self.groups]


def shapes_of(ranks: int, ranks_per_host: int) -> list[Shape]:
    """All ranks, halves of them, hosts, and one rank a host: alone, and all such groups at once."""
    wanted = [Shape(ranks)]
    wanted += [Shape(2**k) for k in range(1, ranks.bit_length()) if 2**k < ranks]
    inside, hosts = ranks_per_host, ranks // ranks_per_host
    if inside > 1 and hosts > 1:
        wanted += [Shape(inside), Shape(inside, 1, hosts)]
        wanted += [Shape(hosts, inside), Shape(hosts, inside, inside)]
    return list(dict.fromkeys(shape for shape in wanted if shape.size > 1))


def measure_collectives(
    out: Path,
    *,
    ranks: int | None = None,
    operations: Sequence[str] = OPERATIONS,
    sizes: Sequence[int] = SIZES,
    shapes: Sequence[Shape] = (),
    repeats: int = 7,
    longest: float = 3.0,
    timeout: float = TIMEOUT,
    backend: str = "gloo",
    say: Say = _unheard,
    host: Host | None = None,
) -> Outcome:
    """Measure into the file `out`; what an earlier run left finished in `out.parts` is kept.

    `longest` bounds the seconds spent on one sample: fewer repeats, never fewer than 3.
    """
    unknown = set(operations) - set(OPERATIONS)
    if unknown:
        raise ValueError(f"unknown operation {min(unknown)!r}; known: {', '.join(OPERATIONS)}")
    parts = out.with_name(out.name + ".parts")
    arguments = {
        "operations": list(operations),
        "sizes": [int(size) for size in sizes],
        "shapes": [asdict(shape) for shape in shapes],
        "repeats": repeats,
        "longest": longest,
    }
    task = "oracle.executor.collectives:task"
    outcome = launch(
        task, arguments, parts, ranks=ranks, timeout=timeout, say=say, host=host, backend=backend
    )
    if outcome.leads:
        merge(parts, out, outcome.complete)
    return outcome


def merge(parts: Path, out: Path, complete: bool) -> int:
    """Join the ranks' files into one measurement file, atomically; how many samples it has."""
    first = next(records.lines(parts / "rank-00000.jsonl"), None)
    if first is None:
        return 0
    found = records.of_all_ranks(parts, first["world"]["ranks"])
    rows = [_joined(of_ranks) for key, of_ranks in found.items() if key != first["key"]]
    machine = dict(first["world"])
    header = {
        "oracle-measurement": 1,
        "tool": f"oracle {first['oracle']}",
        "date": first["date"],
        "backend": machine.pop("backend"),
        "machine": machine,
        "note": "oracle measure collectives",
    }
    why = {} if complete else {"why": "the run was ended before its last sample"}
    end = {"end": "complete" if complete else "incomplete", **why}
    records.write_lines(out, [header, *rows, end])
    return len(rows)


def _joined(of_ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One sample from the records of all ranks: each repeat took as long as its slowest rank."""
    mine = [record for record in of_ranks if record["each"]]
    each = [max(repeat) for repeat in zip(*(record["each"] for record in mine), strict=True)]
    sample = {k: v for k, v in mine[0].items() if k not in ("each", "rank", "key")}
    return sample | {"seconds": each}


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """What each rank does."""
    shapes = [Shape(**shape) for shape in arguments["shapes"]]
    shapes = shapes or shapes_of(rank.size, rank.ranks_per_host)
    if not rank.finished("world"):
        today = date.today().isoformat()
        rank.record("world", world=facts(rank), oracle=oracle_version(), date=today)
    plan = [
        (shape, operation, size)
        for shape in shapes
        for operation in arguments["operations"]
        for size in sorted(arguments["sizes"])
    ]
    began, spent, total = time.monotonic(), 0.0, sum(_effort(size) for *_, size in plan)
    groups: dict[Shape, Any] = {}
    for number, (shape, operation, size) in enumerate(plan):
        key = f"{operation}/{shape}/{size}"
        total_left = total - spent
        spent += _effort(size)
        if rank.finished(key):
            total, spent = total - _effort(size), spent - _effort(size)
            continue
        if not rank.go_on():
            return
        if shape not in groups:
            groups[shape] = _Groups(rank, shape)
        left = (time.monotonic() - began) / max(spent - _effort(size), 1e-9) * total_left
        eta = f", about {left:.0f} s to go" if number and spent > _effort(size) else ""
        rank.say(f"{number + 1}/{len(plan)} {operation} of {show(size, 'B')} over {shape}{eta}")
        _sample(rank, groups[shape], operation, size, arguments, key, number + 1)


def _effort(size: int) -> float:
    """Of a sample, in arbitrary units: for the remaining time."""
    return 0.3 + size / 2**22


def oracle_version() -> str:
    """Version of the package, as installed, or as checked out."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("oracle-training")
    except PackageNotFoundError:
        return "unreleased"


def facts(rank: Rank) -> dict[str, Any]:
    """The machine, as far as a measurement needs it: no environment, no paths."""
    import torch

    return {
        "ranks": rank.size,
        "ranks_per_node": rank.ranks_per_host,
        "nodes": len(set(rank.hosts)),
        "backend": rank.backend,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if rank.backend == "nccl" else platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


class _Groups:
    """Own group of a shape, and how many hosts such a group spans."""

    def __init__(self, rank: Rank, shape: Shape) -> None:
        import torch.distributed as dist

        self.shape, self.all = shape, shape.members(rank.size)
        if not self.all:
            raise ValueError(f"no group of shape {shape} fits into {rank.size} ranks")
        made = [dist.new_group(group) for group in self.all]  # all ranks make all groups
        at = next((i for i, group in enumerate(self.all) if rank.rank in group), None)
        self.mine = None if at is None else made[at]
        self.members = [] if at is None else self.all[at]
        self.nodes = len({rank.hosts[member] for member in self.all[0]})


def _sample(
    rank: Rank,
    groups: _Groups,
    operation: str,
    size: int,
    arguments: Mapping[str, Any],
    key: str,
    step: int,
) -> None:
    """Measure one operation at one size, and record it."""
    import torch.distributed as dist

    label = f"{operation} of {show(size, 'B')} over {groups.shape}"
    rank.at("warm-up", label, step)
    call, nbytes = None, 0
    if groups.mine is not None:
        call, nbytes = OF[operation](rank, groups, size)
    wait = _synchronise(rank)
    nbytes = int(rank.agree(nbytes))

    def repeat(calls: int) -> float:
        dist.barrier(group=rank.control)
        if call is None:
            return 0.0
        wait()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        return (time.perf_counter() - began) / calls

    repeat(1)
    once = max(rank.agree(repeat(1)), 1e-7)
    # a broadcast repeated in a row is a pipeline: its root runs ahead of the others
    calls = 1 if operation == "broadcast" else _between(_ENOUGH / once, 1, _MOST_CALLS)
    count = _between(arguments["longest"] / (once * calls), 3, arguments["repeats"])
    rank.at("measure", label, step)
    each = [repeat(calls) for _ in range(count)]
    rank.record(
        key,
        operation=operation,
        bytes=nbytes,
        ranks=groups.shape.size,
        nodes=groups.nodes,
        ranks_per_node=groups.shape.size // groups.nodes,
        groups=len(groups.all),
        in_place=operation in ("allreduce", "broadcast"),
        dtype="float",
        memory="device" if rank.backend == "nccl" else "host",
        note=f"groups {groups.shape}",
        iterations=calls * count,
        each=each if call else [],
    )


def _between(value: float, low: int, high: int) -> int:
    return int(min(max(math.ceil(value), low), high))


def _synchronise(rank: Rank) -> Callable[[], None]:
    import torch

    return torch.cuda.synchronize if rank.backend == "nccl" else lambda: None


# Each maker returns the call to be timed and the bytes that it stands for.
Call = tuple[Callable[[], Any], int]


def _buffer(rank: Rank, elements: int) -> Any:
    import torch

    return torch.ones(elements, dtype=torch.float32, device=rank.device)


def _allreduce(rank: Rank, groups: _Groups, size: int) -> Call:
    import torch.distributed as dist

    buffer = _buffer(rank, max(size // 4, 1)).zero_()  # ones would overflow, repeated
    return lambda: dist.all_reduce(buffer, group=groups.mine), buffer.numel() * 4


def _share(groups: _Groups, size: int) -> int:
    return max(size // 4 // groups.shape.size, 1)


def _reduce_scatter(rank: Rank, groups: _Groups, size: int) -> Call:
    share = _share(groups, size)
    whole, part = _buffer(rank, share * groups.shape.size), _buffer(rank, share)
    call = newest("reduce_scatter_single", "reduce_scatter_tensor")
    return lambda: call(part, whole, group=groups.mine), whole.numel() * 4


def _allgather(rank: Rank, groups: _Groups, size: int) -> Call:
    share = _share(groups, size)
    whole, part = _buffer(rank, share * groups.shape.size), _buffer(rank, share)
    return lambda: gather(whole, part, groups.mine), whole.numel() * 4


def gather(whole: Any, part: Any, group: Any) -> None:
    """Allgather equal parts into one buffer.

    Between two ranks gloo has one connection, and its allgather half the time sends one way
    after the other (1.5 times the time, measured); a swap that receives first never does.
    """
    import torch.distributed as dist

    if dist.get_world_size(group) != 2 or dist.get_backend(group) != "gloo" or part.is_cuda:
        newest("all_gather_single", "all_gather_into_tensor")(whole, part, group=group)
        return
    me = dist.get_rank(group)
    halves = whole.view(-1).chunk(2)
    other = dist.get_global_rank(group, 1 - me)
    coming = dist.irecv(halves[1 - me], other, group=group)
    going = dist.isend(part.view(-1), other, group=group)
    halves[me].copy_(part.view(-1))
    coming.wait()
    going.wait()


def newest(name: str, older: str) -> Callable[..., Any]:
    """torch.distributed's function by its name of today, or by that of older releases."""
    import torch.distributed as dist

    found: Callable[..., Any] = getattr(dist, name, None) or getattr(dist, older)
    return found


def _broadcast(rank: Rank, groups: _Groups, size: int) -> Call:
    import torch.distributed as dist

    buffer = _buffer(rank, max(size // 4, 1))
    root = groups.members[0]
    return lambda: dist.broadcast(buffer, root, group=groups.mine), buffer.numel() * 4


def _alltoall(rank: Rank, groups: _Groups, size: int) -> Call:
    import torch.distributed as dist

    given = _buffer(rank, _share(groups, size) * groups.shape.size)
    made = given.clone()
    return lambda: dist.all_to_all_single(made, given, group=groups.mine), given.numel() * 4


def _neighbours(rank: Rank, groups: _Groups) -> Iterator[int]:
    """Before and after this rank in its group, where there is one."""
    place = groups.members.index(rank.rank)
    for other in (place - 1, place + 1):
        if 0 <= other < len(groups.members):
            yield groups.members[other]


def _sendrecv(rank: Rank, groups: _Groups, size: int) -> Call:
    """Every rank sends to the next at once, the last to the first."""
    import torch.distributed as dist

    place, ranks = groups.members.index(rank.rank), len(groups.members)
    after, before = groups.members[(place + 1) % ranks], groups.members[place - 1]
    given, made = _buffer(rank, max(size // 4, 1)), _buffer(rank, max(size // 4, 1))

    def call() -> None:
        # the receiver first: over one connection its notice would wait behind the data
        coming = dist.irecv(made, before, group=groups.mine)
        going = dist.isend(given, after, group=groups.mine)
        coming.wait()
        going.wait()

    return call, given.numel() * 4


def _halo(rank: Rank, groups: _Groups, size: int) -> Call:
    """Every rank swaps a border with each of its neighbours, pairwise and at once."""
    import torch.distributed as dist

    others = list(_neighbours(rank, groups))
    given = [_buffer(rank, max(size // 4, 1)) for _ in others]
    made = [_buffer(rank, max(size // 4, 1)) for _ in others]

    def call() -> None:
        pairs = list(zip(others, made, given, strict=True))
        under_way = [dist.irecv(border, other, group=groups.mine) for other, border, _ in pairs]
        under_way += [dist.isend(border, other, group=groups.mine) for other, _, border in pairs]
        for work in under_way:
            work.wait()

    return call, given[0].numel() * 4


OF: dict[str, Callable[[Rank, _Groups, int], Call]] = {
    "allreduce": _allreduce,
    "reduce_scatter": _reduce_scatter,
    "allgather": _allgather,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "sendrecv": _sendrecv,
    "halo": _halo,
}

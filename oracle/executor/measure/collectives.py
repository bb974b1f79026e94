"""Micro-benchmark of collective operations over torch.distributed.

Every rank times its own calls with its own clock and all start together after a barrier; a
sample's time is the largest of the ranks' durations, so no two clocks are ever compared. Small
messages are called several times in a row and the mean kept; each repeat is one value of `each`.
`nbytes` means what it means in a predicted `Message`: the buffer of one rank for allreduce and
broadcast, the whole gathered buffer for allgather and reduce_scatter, all that one rank holds for
alltoall, the bytes to one neighbour for sendrecv and halo.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.messages.calls import CALLS, GroupShape, ProcessGroups
from oracle.executor.question import PACKAGE, installed
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import TIMEOUT, Host, Outcome, Say, launch, silent
from oracle.executor.ranks.world import rank_count
from oracle.spec.document import Fault, Place, SpecError, refusal, suggest
from oracle.spec.units import show

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

OPERATIONS = (
    "allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall", "sendrecv", "halo",
)  # fmt: skip
SIZES = tuple(2**k for k in range(8, 25, 2))
_ENOUGH = 5e-3  # seconds that one repeat should last, by repeating the call
_MOST_CALLS = 50


def shapes_of(ranks: int, ranks_per_host: int) -> list[GroupShape]:
    """Groups to measure: all ranks, halves, hosts, one rank a host; alone, and all at once.

    On one host its halves stand for groups that communicate at once.
    """
    shapes = [GroupShape(ranks)]
    shapes += [GroupShape(2**k) for k in range(1, ranks.bit_length()) if 2**k < ranks]
    inside, hosts = ranks_per_host, ranks // ranks_per_host
    if inside > 1 and hosts > 1:
        shapes += [GroupShape(inside), GroupShape(inside, 1, hosts)]
        shapes += [GroupShape(hosts, inside), GroupShape(hosts, inside, inside)]
    elif ranks % 4 == 0:
        shapes += [GroupShape(ranks // 2), GroupShape(ranks // 2, 1, 2)]
    return list(dict.fromkeys(shape for shape in shapes if shape.size > 1))


def measure_collectives(
    out: Path,
    *,
    ranks: int | None = None,
    operations: Sequence[str] = OPERATIONS,
    sizes: Sequence[int] = SIZES,
    shapes: Sequence[GroupShape] = (),
    repeats: int = 7,
    longest: float = 3.0,
    within: float = math.inf,
    timeout: float = TIMEOUT,
    backend: str = "gloo",
    say: Say = silent,
    host: Host | None = None,
) -> Outcome:
    """Measure into the file `out`; what an earlier run left finished in `out.parts` is kept.

    `longest` bounds the seconds spent on one sample: fewer repeats, never fewer than 3. `within`
    bounds those of all: small messages come first then, and the last ones are left out.
    """
    unknown = sorted(set(operations) - set(OPERATIONS))
    if unknown:
        faults = [Fault("E110", f"no operation is called `{name}`", Place(),
                        suggest(name, OPERATIONS, "known")) for name in unknown]  # fmt: skip
        raise SpecError("measure collectives", faults)
    parts = out.with_name(out.name + ".parts")
    size = rank_count(ranks, os.environ)
    _same_world(parts, {"ranks": size, "backend": backend})
    arguments = {
        "operations": list(operations),
        "sizes": [int(size) for size in sizes],
        "shapes": [asdict(shape) for shape in shapes],
        "repeats": repeats,
        "longest": longest,
        "within": within if math.isfinite(within) else 0.0,
    }
    task = "oracle.executor.measure.collectives:task"
    outcome = launch(
        task, arguments, parts, ranks=ranks, timeout=timeout, say=say, host=host, backend=backend
    )
    if outcome.leads:
        merge(parts, out, outcome.complete)
    return outcome


def _same_world(parts: Path, now: Mapping[str, Any]) -> None:
    """Refuse to resume an earlier run of other ranks: its samples would count as theirs."""
    first = next(records.lines(parts / "rank-00000.jsonl"), None)
    before = first["world"] if first else now
    for name, value in now.items():
        if before.get(name, value) != value:
            earlier = f"an earlier run, left here, had {name} {before[name]}"
            hint = "name another file with -o, or delete this folder"
            raise refusal(str(parts), f"{earlier}; this one has {value}", hint)


def merge(parts: Path, out: Path, complete: bool) -> int:
    """Join the ranks' files into one measurement file, atomically; returns how many samples."""
    first = next(records.lines(parts / "rank-00000.jsonl"), None)
    if first is None:
        return 0
    records_of = records.of_all_ranks(parts, first["world"]["ranks"])
    rows = [_joined(of_ranks) for key, of_ranks in records_of.items() if key != first["key"]]
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
    of_members = [record for record in of_ranks if record["each"]]
    repeats = zip(*(record["each"] for record in of_members), strict=True)
    sample = {k: v for k, v in of_members[0].items() if k not in ("each", "rank", "key")}
    return sample | {"seconds": [max(repeat) for repeat in repeats]}


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Measure all samples of the plan that are not finished; run by each rank."""
    shapes = [GroupShape(**shape) for shape in arguments["shapes"]]
    shapes = shapes or shapes_of(rank.size, rank.ranks_per_host)
    if rank.finished("world"):
        _same_world(rank.attempt.parent, {k: facts(rank)[k] for k in ("nodes", "device", "torch")})
    else:
        today = date.today().isoformat()
        rank.record("world", world=facts(rank), oracle=installed(PACKAGE), date=today)
    plan = [
        (shape, operation, size)
        for shape in shapes
        for operation in arguments["operations"]
        for size in sorted(arguments["sizes"])
    ]
    if within := arguments["within"]:
        plan.sort(key=lambda sample: sample[-1])
    began, spent, total = time.monotonic(), 0.0, sum(_effort(size) for *_, size in plan)
    groups: dict[GroupShape, Any] = {}
    for number, (shape, operation, size) in enumerate(plan):
        key = f"{operation}/{shape}/{size}"
        total_left = total - spent
        spent += _effort(size)
        if rank.finished(key):
            total, spent = total - _effort(size), spent - _effort(size)
            continue
        late = within and rank.agree(time.monotonic() - began) > within
        if late or not rank.go_on():
            return
        if shape not in groups:
            groups[shape] = ProcessGroups(rank, shape)
        left = (time.monotonic() - began) / max(spent - _effort(size), 1e-9) * total_left
        eta = f", about {left:.0f} s to go" if number and spent > _effort(size) else ""
        rank.say(f"{number + 1}/{len(plan)} {operation} of {show(size, 'B')} over {shape}{eta}")
        _sample(rank, groups[shape], operation, size, arguments, key, number + 1)


def _effort(size: int) -> float:
    """Effort of a sample in arbitrary units, to estimate the remaining time."""
    return 0.3 + size / 2**22


def facts(rank: Rank) -> dict[str, Any]:
    """Facts of the machine that a measurement needs: no environment, no paths."""
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


def _sample(
    rank: Rank,
    groups: ProcessGroups,
    operation: str,
    size: int,
    arguments: Mapping[str, Any],
    key: str,
    step: int,
) -> None:
    """Measure one operation at one size, and record it."""
    import torch.distributed as dist

    label = f"{operation} of {show(size, 'B')} over {groups.shape}"
    rank.enter("warm-up", label, step)
    call, nbytes = None, 0
    if groups.mine is not None:
        call, nbytes = CALLS[operation](rank, groups, size)
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
    rank.enter("measure", label, step)
    seconds = [repeat(calls) for _ in range(count)]
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
        each=seconds if call else [],
    )


def _between(value: float, low: int, high: int) -> int:
    return int(min(max(math.ceil(value), low), high))


def _synchronise(rank: Rank) -> Callable[[], None]:
    import torch

    return torch.cuda.synchronize if rank.backend == "nccl" else lambda: None

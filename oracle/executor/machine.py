"""What one machine does, measured in a few minutes: kernels, launches, memory, a disk.

All ranks run the same kernel at the same time, as in a step, so that what they share is shared.
Where a quota allows a rank less time than its thread could take, a kernel is timed by what it takes
of the thread, over the share that is allowed: a short one ends before the quota stops it, and a
step does not.
A budget of seconds bounds the whole; kernels of all families are taken in turn, so that one that
runs out leaves each with some.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor import records
from oracle.executor.collectives import oracle_version
from oracle.executor.hardware import hardware, quota, said
from oracle.executor.kernel_shapes import COUNTS, PARTS, Limits, sweep
from oracle.executor.launch import TIMEOUT, Host, Outcome, Say, launch, silent
from oracle.executor.question import AGAIN, differences
from oracle.executor.world import World, recognise
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.executor.rank import Rank

DISK = 0.06  # of the budget
KERNELS = 0.85  # of what is then left
EACH = 12  # times its longest that a kernel takes, with what is around it
HOST, GPU = (2e-5, 0.2), (4e-6, 0.05)  # seconds of the smallest and the largest kernel, at most
LEAST = 2e-3  # seconds of the largest, however little time there is
SHARE = 24  # of a device's memory, the part that a kernel's tensors may take
CHAIN = 48  # layers of the network that tells what a launch costs
GENERATIONS = {6: "pascal", 7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell"}


@dataclass(frozen=True)
class Asked:
    """What shall be measured, within how many seconds."""

    seconds: float
    folder: str  # on the disk to read from; nothing: no disk
    families: tuple[str, ...] = tuple(COUNTS)
    precision: tuple[str, ...] = ()  # nothing: those that the device is made for

    def question(self, ranks: int, backend: str, threads: str) -> dict[str, Any]:
        """What a run must share with an earlier one to be taken up."""
        return {"ranks": ranks, "backend": backend, "threads": threads,
                "families": list(self.families), "precision": list(self.precision)}  # fmt: skip


def measure_machine(
    parts: Path, asked: Asked, *, ranks: int | None = None, timeout: float = TIMEOUT,
    backend: str = "gloo", say: Say = silent, host: Host | None = None, threads: int = 1,
) -> Outcome:  # fmt: skip
    """Measure into the folder `parts`; what an earlier run left finished there is kept."""
    size = ranks or (recognise(os.environ) or World()).size
    question = asked.question(size, backend, str(threads))
    _same(parts, question)
    arguments = {"asked": question, "seconds": asked.seconds, "folder": asked.folder,
                 "families": list(asked.families), "precision": list(asked.precision)}  # fmt: skip
    return launch("oracle.executor.machine:task", arguments, parts, ranks=ranks, timeout=timeout,
                  say=say, host=host, backend=backend)  # fmt: skip


def _same(parts: Path, now: Mapping[str, Any]) -> None:
    """Refuse to go on with what was left by a run of other ranks, or for other kernels."""
    first = next(records.lines(parts / "rank-00000.jsonl"), None)
    if first and (changed := differences(first.get("asked", {}), now)):
        what = f"an earlier run left results of another question here: {'; '.join(changed)}"
        raise refusal(str(parts), what, AGAIN)


def found(parts: Path) -> list[dict[str, Any]]:
    """The records of every rank, those of one thing together; facts of the machine come first."""
    first = next(records.lines(parts / "rank-00000.jsonl"), None)
    size = int(first["facts"]["ranks"]) if first and "facts" in first else 0
    return [{"key": key, "ranks": each} for key, each in
            (records.of_all_ranks(parts, size) if size else {}).items()]  # fmt: skip


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Measure what is not finished; run by each rank."""
    import torch

    torch.set_grad_enabled(False)
    began = time.monotonic()
    if not rank.finished("facts"):
        rank.record("facts", facts=facts(rank), oracle=oracle_version(),
                    date=date.today().isoformat(), asked=arguments["asked"])  # fmt: skip
    mine = rank.records.finished["facts"]["facts"]
    if not rank.finished("host"):
        rank.say("what a launch costs")
        rank.enter("measure", "launches")
        rank.record("host", seconds=launches(rank))
    left = arguments["seconds"]
    if arguments["folder"]:
        left -= DISK * left
        _disk(rank, arguments["folder"], DISK * arguments["seconds"])
    _kernels(rank, arguments, mine, began + KERNELS * left)


def facts(rank: Rank) -> dict[str, Any]:
    """The machine as its kernel and torch describe it, without names."""
    import torch

    here = hardware()
    found = {"ranks": rank.size, "ranks_per_node": rank.ranks_per_host,
             "nodes": len(set(rank.hosts)), "backend": rank.backend, "torch": torch.__version__,
             "threads": torch.get_num_threads(), "share": share(rank),
             "hardware": here}  # fmt: skip
    if rank.device.type != "cuda":
        return found
    one = torch.cuda.get_device_properties(rank.device)
    major, minor = torch.cuda.get_device_capability(rank.device)
    here["gpu"] = one.name
    generation = {(7, 5): "turing", (8, 9): "ada"}.get((major, minor), GENERATIONS.get(major, ""))
    cache = getattr(one, "L2_cache_size", 0)
    nvidia = not getattr(torch.version, "hip", None)
    return found | {"memory": one.total_memory, "processors": one.multi_processor_count,
                    "cache": cache, "generation": generation if nvidia else "",
                    "library": "nccl" if nvidia else ""}  # fmt: skip


def launches(rank: Rank) -> float:
    """Seconds of the host for each kernel that a framework launches in a training step.

    Dense layers and activations of next to no work, forward and backward; kernels are counted as
    predictions count them.
    """
    import torch

    from oracle.executor.kernel_calls import undisturbed
    from oracle.kernels.rows import DISPATCHED

    layers = [layer for _ in range(CHAIN // 2)
              for layer in (torch.nn.Linear(8, 8), torch.nn.ReLU())]  # fmt: skip
    network, clock = torch.nn.Sequential(*layers).to(rank.device), _clock(rank)
    x = torch.randn(4, 8, device=rank.device)
    kernels = CHAIN // 2 * sum(DISPATCHED["gemm"] + DISPATCHED["stream"])
    each = []
    with torch.enable_grad():
        for _ in range(25):
            _wait(rank)
            began = clock()
            network(x).sum().backward()
            _wait(rank)
            each.append((clock() - began) / kernels)
    return undisturbed(each[5:])


def share(rank: Rank) -> float:
    """Of the time of a rank's one thread, what quotas allow; 1 where nothing says so."""
    import torch

    if rank.device.type != "cpu" or torch.get_num_threads() > 1:
        return 1.0
    return min(1.0, quota() / rank.ranks_per_host)


def _clock(rank: Rank) -> Callable[[], float]:
    """Seconds that kernels are timed by."""
    allowed = share(rank)
    if allowed == 1:
        return time.perf_counter
    return lambda: time.thread_time() / allowed


def _wait(rank: Rank) -> None:
    import torch

    if rank.device.type == "cuda":
        torch.cuda.synchronize()


def _disk(rank: Rank, folder: str, seconds: float) -> None:
    """One rank of every host reads, all hosts at once."""
    from oracle.executor.disk import RAM, kind_of, rates

    if rank.finished("disk"):
        return
    rank.say("writing a file to disk and reading it back")
    rank.enter("measure", "disk")
    kind = kind_of(Path(folder).absolute(), said(Path("/proc/mounts")))
    first = rank.hosts.index(rank.hosts[rank.rank]) == rank.rank
    rate, writing, nbytes, why = 0.0, 0.0, 0, "its folder lies in memory" if kind in RAM else ""
    if first and not why:
        try:
            rate, writing, nbytes = rates(Path(folder), seconds)
            why = "" if nbytes else "the disk is full"
        except OSError as error:
            why = error.strerror or "it cannot be written to"
    rank.agree(0)
    rank.record("disk", rate=rate, written=writing, bytes=nbytes, why=why, file_system=kind)


def _kernels(rank: Rank, arguments: Mapping[str, Any], mine: Mapping[str, Any],
             until: float) -> None:  # fmt: skip
    """Probes of the device, and then the sweep that they allow."""
    from oracle.executor.kernel_calls import Tensors

    tensors = Tensors(rank.device, mine.get("cache") or mine["hardware"]["processor"]["cache"])
    if not rank.finished("probe"):
        rank.say("memory and a large product")
        rank.enter("measure", "memory")
        memory = mine.get("memory") or mine["hardware"]["memory"] / mine["ranks_per_node"]
        bandwidth = copied(rank, tensors, memory)
        rate, count = product(rank, tensors), _count(arguments, mine)
        left = rank.agree(max(until - time.monotonic(), 0.0))
        low, high = GPU if rank.device.type == "cuda" else HOST
        longest = min(high, max(LEAST, left / max(count, 1) / EACH))
        rank.record("probe", rate=rank.agree(rate), bandwidth=bandwidth, shortest=low,
                    longest=rank.agree(longest), most=rank.agree(memory / SHARE))  # fmt: skip
    probe = rank.records.finished["probe"]
    agreed = Limits(probe["rate"], rank.agree(probe["bandwidth"]),
                    *(probe[name] for name in ("shortest", "longest", "most")))  # fmt: skip
    wanted = sweep(agreed, _precisions(arguments, mine))
    for number, one in enumerate(wanted):
        if rank.finished(one.key):
            continue
        late = rank.agree(float(time.monotonic() > until)) > 0
        if late or not rank.go_on():
            rank.say(f"the time is up after {number} of {len(wanted)} kernels")
            return
        if number % 20 == 0:
            rank.say(f"{number + 1}/{len(wanted)} kernels, {until - time.monotonic():.0f} s left")
        rank.enter("measure", one.key, number + 1)
        _one(rank, tensors, one, agreed.longest)


def _one(rank: Rank, tensors: Any, one: Any, longest: float) -> None:
    """Time a kernel and record it; one that the library refuses is recorded with its word."""
    import torch

    from oracle.executor.kernel_calls import call, seconds

    if rank.device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = one.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = one.precision == "tf32"
    each, why = [], ""
    try:
        each = seconds(call(one, tensors), longest, lambda: _wait(rank), _clock(rank))
    except (RuntimeError, MemoryError) as error:
        why = str(error).splitlines()[0][:200]
    rank.record(one.key, family=one.family, part=one.part, precision=one.precision,
                shape=list(one.shape), each=each, why=why)  # fmt: skip


def _precisions(
    arguments: Mapping[str, Any], mine: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """What each family is timed in: 32 bits, and on GPUs what their matrix units take."""
    asked, generation = tuple(arguments["precision"]), mine.get("generation", "")
    modern = generation in ("ampere", "ada", "hopper", "blackwell")
    if mine["backend"] != "nccl":
        own: tuple[str, ...] = ("fp32",)
    else:
        own = ("fp32", "tf32", "bf16") if modern else ("fp32", "fp16")
    by = {"gemm": own, "conv": own[-2:], "conv3d": own[-2:], "attention": own[-1:],
          "stream": ("fp32",), "norm": ("fp32",), "pool": ("fp32",)}  # fmt: skip
    mixed = ("stream", "norm", "pool")
    return {name: asked if asked and name not in mixed else kinds for name, kinds in by.items()
            if name in arguments["families"]}  # fmt: skip


def _count(arguments: Mapping[str, Any], mine: Mapping[str, Any]) -> int:
    precisions = _precisions(arguments, mine)
    return sum(COUNTS[name] * len(kinds) * len(PARTS.get(name, ("",)))
               for name, kinds in precisions.items())  # fmt: skip


def copied(rank: Rank, tensors: Any, memory: float) -> float:
    """Bytes a second of a + b into c, large enough for no cache; all ranks at once."""
    import torch

    from oracle.executor.kernel_calls import seconds, undisturbed

    count = int(min(max(4 * tensors.cache, 2**26), 2**31, memory / 16) // 12)
    a, b, c = (tensors("fp32", count) for _ in range(3))
    rank.agree(0)
    each = seconds(lambda: torch.add(a, b, out=c), 0.1, lambda: _wait(rank), _clock(rank))
    return 12 * count / undisturbed(each)


def product(rank: Rank, tensors: Any) -> float:
    """FLOP a second of square products of 32 bits, up to one that takes a hundredth of one."""
    import torch

    from oracle.executor.kernel_calls import seconds, undisturbed

    side, rate, longest = 256, 0.0, 0.0
    while longest < 0.01 and side <= 8192:
        a, b = tensors("fp32", side, side), tensors("fp32", side, side)
        each = seconds(partial(torch.mm, a, b), 0.05, lambda: _wait(rank), _clock(rank))
        rate = max(rate, 2 * side**3 / undisturbed(each))
        longest, side = rank.agree(undisturbed(each)), 2 * side
    return rate

"""Measures one machine in a few minutes: kernels, launches, memory, a disk.

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

from oracle.executor.measure.hardware import hardware, kernel_text, quota
from oracle.executor.measure.kernel_shapes import COUNTS, PARTS, Limits, sweep
from oracle.executor.question import PACKAGE, installed, refuse_changed
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import TIMEOUT, Host, Outcome, Say, launch, silent
from oracle.executor.ranks.world import rank_count

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

DISK = 0.06  # of the budget
KERNELS = 0.85  # of what is then left
EACH = 12  # times the longest timing that a kernel takes with all around it
HOST, GPU = (2e-5, 0.2), (4e-6, 0.05)  # seconds of the smallest and the largest kernel, at most
LEAST = 2e-3  # seconds of the largest, however little time there is
SHARE = 24  # a kernel's tensors may take one of so many parts of the memory
CHAIN = 48  # layers of the network that tells what a launch costs
GENERATIONS = {6: "pascal", 7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell"}


@dataclass(frozen=True)
class Asked:
    """What to measure, within how many seconds."""

    seconds: float
    folder: str  # on the disk to measure; empty: no disk
    families: tuple[str, ...] = tuple(COUNTS)
    precision: tuple[str, ...] = ()  # empty: those that the device is made for

    def question(self, ranks: int, backend: str, threads: str) -> dict[str, Any]:
        """The facts that a run must share with an earlier one to take it up."""
        return {"ranks": ranks, "backend": backend, "threads": threads,
                "families": list(self.families), "precision": list(self.precision)}  # fmt: skip


def measure_machine(
    parts: Path, request: Asked, *, ranks: int | None = None, timeout: float = TIMEOUT,
    backend: str = "gloo", say: Say = silent, host: Host | None = None, threads: int = 1,
) -> Outcome:  # fmt: skip
    """Measure into the folder `parts`; what an earlier run left finished there is kept."""
    size = rank_count(ranks, os.environ)
    question = request.question(size, backend, str(threads))
    if first := next(records.lines(parts / "rank-00000.jsonl"), None):
        refuse_changed(parts, first.get("asked", {}), question)
    arguments = {"asked": question, "seconds": request.seconds, "folder": request.folder,
                 "families": question["families"], "precision": question["precision"]}  # fmt: skip
    task = "oracle.executor.measure.machine:task"
    return launch(task, arguments, parts, ranks=ranks, timeout=timeout, say=say, host=host,
                  backend=backend)  # fmt: skip


def measured_records(parts: Path) -> list[dict[str, Any]]:
    """The records of all ranks by key, with the facts of the machine first."""
    first = next(records.lines(parts / "rank-00000.jsonl"), None)
    size = int(first["facts"]["ranks"]) if first and "facts" in first else 0
    return [{"key": key, "ranks": rank_records} for key, rank_records in
            (records.of_all_ranks(parts, size) if size else {}).items()]  # fmt: skip


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Measure all that is not finished; run by each rank."""
    import torch

    torch.set_grad_enabled(False)
    began = time.monotonic()
    if not rank.finished("facts"):
        rank.record("facts", facts=facts(rank), oracle=installed(PACKAGE),
                    date=date.today().isoformat(), asked=arguments["asked"])  # fmt: skip
    machine = rank.records.finished["facts"]["facts"]
    if not rank.finished("host"):
        rank.say("what a launch costs")
        rank.enter("measure", "launches")
        rank.record("host", seconds=launches(rank))
    left = arguments["seconds"]
    if arguments["folder"]:
        left -= DISK * left
        _disk(rank, arguments["folder"], DISK * arguments["seconds"])
    _kernels(rank, arguments, machine, began + KERNELS * left)


def facts(rank: Rank) -> dict[str, Any]:
    """The machine as its kernel and torch describe it, without names."""
    import torch

    machine = hardware()
    fields = {"ranks": rank.size, "ranks_per_node": rank.ranks_per_host,
              "nodes": len(set(rank.hosts)), "backend": rank.backend, "torch": torch.__version__,
              "threads": torch.get_num_threads(), "share": share(rank),
              "hardware": machine}  # fmt: skip
    if rank.device.type != "cuda":
        return fields
    gpu = torch.cuda.get_device_properties(rank.device)
    major, minor = torch.cuda.get_device_capability(rank.device)
    machine["gpu"] = gpu.name
    generation = {(7, 5): "turing", (8, 9): "ada"}.get((major, minor), GENERATIONS.get(major, ""))
    cache = getattr(gpu, "L2_cache_size", 0)
    nvidia = not getattr(torch.version, "hip", None)
    return fields | {"memory": gpu.total_memory, "processors": gpu.multi_processor_count,
                     "cache": cache, "generation": generation if nvidia else "",
                     "library": "nccl" if nvidia else ""}  # fmt: skip


def launches(rank: Rank) -> float:
    """Seconds of the host for each kernel that a framework launches in a training step.

    Timed on dense layers and activations of next to no work, forward and backward; kernels are
    counted as predictions count them.
    """
    import torch

    from oracle.executor.measure.kernel_calls import undisturbed
    from oracle.kernels.rows import DISPATCHED

    layers = [layer for _ in range(CHAIN // 2)
              for layer in (torch.nn.Linear(8, 8), torch.nn.ReLU())]  # fmt: skip
    network, clock = torch.nn.Sequential(*layers).to(rank.device), _clock(rank)
    x = torch.randn(4, 8, device=rank.device)
    kernels = CHAIN // 2 * sum(DISPATCHED["gemm"] + DISPATCHED["stream"])
    seconds = []
    with torch.enable_grad():
        for _ in range(25):
            _wait(rank)
            began = clock()
            network(x).sum().backward()
            _wait(rank)
            seconds.append((clock() - began) / kernels)
    return undisturbed(seconds[5:])


def share(rank: Rank) -> float:
    """The share of its time that quotas allow a rank's one thread; 1 where nothing limits it."""
    import torch

    if rank.device.type != "cpu" or torch.get_num_threads() > 1:
        return 1.0
    return min(1.0, quota() / rank.ranks_per_host)


def _clock(rank: Rank) -> Callable[[], float]:
    """The clock in whose seconds kernels are timed."""
    allowed = share(rank)
    if allowed == 1:
        return time.perf_counter
    return lambda: time.thread_time() / allowed


def _wait(rank: Rank) -> None:
    import torch

    if rank.device.type == "cuda":
        torch.cuda.synchronize()


def _disk(rank: Rank, folder: str, seconds: float) -> None:
    """Measure a disk by one rank of every host, all hosts at once."""
    from oracle.executor.measure.disk import RAM, kind_of, rates

    if rank.finished("disk"):
        return
    rank.say("writing a file to disk and reading it back")
    rank.enter("measure", "disk")
    kind = kind_of(Path(folder).absolute(), kernel_text(Path("/proc/mounts")))
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


def _kernels(rank: Rank, arguments: Mapping[str, Any], machine: Mapping[str, Any],
             until: float) -> None:  # fmt: skip
    """Probe the device, then time the kernels that the probes allow."""
    from oracle.executor.measure.kernel_calls import Tensors

    cache = machine.get("cache") or machine["hardware"]["processor"]["cache"]
    tensors = Tensors(rank.device, cache)
    if not rank.finished("probe"):
        rank.say("memory and a large product")
        rank.enter("measure", "memory")
        memory = machine.get("memory") or machine["hardware"]["memory"] / machine["ranks_per_node"]
        bandwidth = copied(rank, tensors, memory)
        rate, count = product(rank, tensors), _count(arguments, machine)
        left = rank.agree(max(until - time.monotonic(), 0.0))
        low, high = GPU if rank.device.type == "cuda" else HOST
        longest = min(high, max(LEAST, left / max(count, 1) / EACH))
        rank.record("probe", rate=rank.agree(rate), bandwidth=bandwidth, shortest=low,
                    longest=rank.agree(longest), most=rank.agree(memory / SHARE))  # fmt: skip
    probe = rank.records.finished["probe"]
    agreed = Limits(probe["rate"], rank.agree(probe["bandwidth"]),
                    *(probe[name] for name in ("shortest", "longest", "most")))  # fmt: skip
    kernels = sweep(agreed, _precisions(arguments, machine))
    for number, kernel in enumerate(kernels):
        if rank.finished(kernel.key):
            continue
        late = rank.agree(float(time.monotonic() > until)) > 0
        if late or not rank.go_on():
            rank.say(f"the time is up after {number} of {len(kernels)} kernels")
            return
        if number % 20 == 0:
            rank.say(f"{number + 1}/{len(kernels)} kernels, {until - time.monotonic():.0f} s left")
        rank.enter("measure", kernel.key, number + 1)
        _time_kernel(rank, tensors, kernel, agreed.longest)


def _time_kernel(rank: Rank, tensors: Any, kernel: Any, longest: float) -> None:
    """Time a kernel and record it, or the reason why the library refuses it."""
    import torch

    from oracle.executor.measure.kernel_calls import call, seconds

    if rank.device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = kernel.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = kernel.precision == "tf32"
    samples, why = [], ""
    try:
        samples = seconds(call(kernel, tensors), longest, lambda: _wait(rank), _clock(rank))
    except (RuntimeError, MemoryError) as error:
        why = str(error).splitlines()[0][:200]
    rank.record(kernel.key, family=kernel.family, part=kernel.part, precision=kernel.precision,
                shape=list(kernel.shape), each=samples, why=why)  # fmt: skip


def _precisions(
    arguments: Mapping[str, Any], machine: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """The precisions of each family: 32 bits, and on GPUs those of their matrix units."""
    requested, generation = tuple(arguments["precision"]), machine.get("generation", "")
    modern = generation in ("ampere", "ada", "hopper", "blackwell")
    if machine["backend"] != "nccl":
        products: tuple[str, ...] = ("fp32",)
    else:
        products = ("fp32", "tf32", "bf16") if modern else ("fp32", "fp16")
    precisions = {
        "gemm": requested or products, "conv": requested or products[-2:],
        "conv3d": requested or products[-2:], "attention": requested or products[-1:],
        "stream": ("fp32",), "norm": ("fp32",), "pool": ("fp32",),
    }  # fmt: skip
    return {name: precisions[name] for name in precisions if name in arguments["families"]}


def _count(arguments: Mapping[str, Any], machine: Mapping[str, Any]) -> int:
    precisions = _precisions(arguments, machine)
    return sum(COUNTS[name] * len(kinds) * len(PARTS.get(name, ("",)))
               for name, kinds in precisions.items())  # fmt: skip


def copied(rank: Rank, tensors: Any, memory: float) -> float:
    """Bytes a second of a + b into c, too large for any cache; all ranks at once."""
    import torch

    from oracle.executor.measure.kernel_calls import seconds, undisturbed

    count = int(min(max(4 * tensors.cache, 2**26), 2**31, memory / 16) // 12)
    a, b, c = (tensors("fp32", count) for _ in range(3))
    rank.agree(0)
    samples = seconds(lambda: torch.add(a, b, out=c), 0.1, lambda: _wait(rank), _clock(rank))
    return 12 * count / undisturbed(samples)


def product(rank: Rank, tensors: Any) -> float:
    """FLOP a second of square products of 32 bits, up to one that takes a hundredth of one."""
    import torch

    from oracle.executor.measure.kernel_calls import seconds, undisturbed

    side, rate, longest = 256, 0.0, 0.0
    while longest < 0.01 and side <= 8192:
        a, b = tensors("fp32", side, side), tensors("fp32", side, side)
        samples = seconds(partial(torch.mm, a, b), 0.05, lambda: _wait(rank), _clock(rank))
        rate = max(rate, 2 * side**3 / undisturbed(samples))
        longest, side = rank.agree(undisturbed(samples)), 2 * side
    return rate

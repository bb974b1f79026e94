"""Bytes a second of the memory and of exchanges, exact enough to see whether they are right."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from oracle.executor.measure.hardware import hardware
from oracle.executor.measure.kernel_calls import Tensors
from oracle.executor.measure.machine import copied
from oracle.executor.messages.calls import CALLS, ProcessGroups

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

LARGE = {"nccl": 2**28, "gloo": 2**24, "ordered": 2**24, "mpi": 2**26}  # bytes of a message
REPEATS = 7
OPERATIONS = ("allreduce", "sendrecv")


def memory(rank: Rank) -> float:
    """Bytes a second of a + b into c, all ranks at once."""
    machine = hardware()
    if rank.device.type == "cuda":
        gpu = torch.cuda.get_device_properties(rank.device)
        cache, room = getattr(gpu, "L2_cache_size", 0), gpu.total_memory
    else:
        cache, room = machine["processor"]["cache"], machine["memory"] / rank.ranks_per_host
    return copied(rank, Tensors(rank.device, cache), room)


def exchanged(rank: Rank, groups: ProcessGroups, operation: str) -> float:
    """Bytes a second that a rank sends in a large exchange of all ranks."""
    p, size = groups.shape.size, LARGE[rank.backend]
    call, nbytes = CALLS[operation](rank, groups, size)
    sent = nbytes * (2 * (p - 1) / p if operation == "allreduce" else 1.0)
    seconds = []
    for _ in range(REPEATS + 2):
        dist.barrier(group=rank.control)
        began = time.perf_counter()
        call()
        if rank.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(rank.agree(time.perf_counter() - began))
    return sent / statistics.median(seconds[2:])

"""The worker process of one rank, and what it offers to the task that it runs."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.ranks import faults
from oracle.executor.ranks.faults import RankFault
from oracle.executor.ranks.heartbeat import Heartbeat
from oracle.executor.ranks.peers import device_index, me, meet, refuse_unlike
from oracle.executor.ranks.records import Records, write_whole
from oracle.executor.ranks.world import host_name
from oracle.spec.files import LOG, read_json

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


class Rank:
    """What a task gets: its rank, and ways to report progress and to keep results."""

    def __init__(
        self, heartbeat: Heartbeat, attempt: Path, rank: int, size: int, local: int
    ) -> None:
        self.heartbeat, self.attempt = heartbeat, attempt
        self.rank, self.size, self.local = rank, size, local
        self.hosts: list[str] = []
        self.device: torch.device
        self.control: dist.ProcessGroup
        self.backend = "gloo"
        self.records = Records(attempt.parent / f"rank-{rank:05d}.jsonl")
        self.asked_to_stop = False

    def enter(self, phase: str, operation: str = "", step: int | None = None) -> None:
        """Report which phase and operation begins, for the message of a failure."""
        self.heartbeat.enter(phase, operation, step)

    def say(self, text: str) -> None:
        """Show a line of progress; from rank 0 only."""
        if self.rank == 0:
            with open(self.attempt / "progress", "a", encoding="utf-8") as file:
                file.write(json.dumps({"said": text}) + "\n")

    def agree(self, value: float) -> float:
        """The largest of all ranks' values, on all ranks."""
        import torch
        import torch.distributed as dist

        largest = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.control)
        return float(largest.item())

    def go_on(self) -> bool:
        """Whether to go on; False on all ranks at once after any was asked to stop."""
        return self.agree(float(self.asked_to_stop)) == 0

    def finished(self, key: str) -> bool:
        """Whether every rank has finished this sample, now or in an earlier run."""
        return self.agree(float(key not in self.records.finished)) == 0

    def record(self, key: str, **values: Any) -> None:
        """Keep a finished sample, on disk at once."""
        self.records.append({"key": key, "rank": self.rank, **values})

    @property
    def ranks_per_host(self) -> int:
        return max(self.hosts.count(host) for host in self.hosts)

    def _note_stop(self, *_: Any) -> None:
        self.asked_to_stop = True


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; at once if it has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Run the task of one rank; started by `launch` as `python -m oracle.executor.ranks.rank`."""
    die_with(int(os.environ["ORACLE_SUPERVISOR"]))
    attempt = Path(os.environ["ORACLE_ATTEMPT"])
    number, size = map(int, os.environ["ORACLE_WORLD"].split())
    heartbeat = Heartbeat(attempt, number, host_name(os.environ))
    rank = Rank(heartbeat, attempt, number, size, int(os.environ["ORACLE_LOCAL"]))
    signal.signal(signal.SIGTERM, rank._note_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor gets it and asks ranks
    try:
        job = _job(attempt)
        _join(rank, job)
        module, _, name = job["task"].partition(":")
        heartbeat.enter("start", f"importing {module}")
        task: Callable[[Rank, Mapping[str, Any]], None] = getattr(
            importlib.import_module(module), name
        )
        task(rank, job["arguments"])
        rank.enter("end")
        rank.records.close()
        rank.agree(0)  # no rank leaves while another may still be sending to it
        heartbeat.state("stopped" if rank.asked_to_stop else "done")
    except BaseException as error:
        status, (kind, detail) = heartbeat.status, faults.of_exception(error)
        fault = RankFault(number, status.host, kind, detail, status.activity(), time.time())
        faults.report(attempt, fault)
        traceback.print_exc()
        _exit(1)
    _exit(0)


def _exit(code: int) -> None:
    """End at once: destructors of process groups whose peers are gone may wait for ever."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _job(attempt: Path) -> dict[str, Any]:
    while not (attempt / "job.json").is_file():  # written by rank 0's supervisor
        time.sleep(0.05)
    job: dict[str, Any] = read_json(attempt / "job.json", "job", LOG)
    return job


def _join(rank: Rank, job: Mapping[str, Any]) -> None:
    """Join torch.distributed among all ranks, by a store that needs no agreed port."""
    rank.heartbeat.enter("start", "importing torch")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rank.heartbeat.enter("start", "rendezvous")
    # longer than the supervisor's patience: torch would blame the first rank to notice
    patience = timedelta(seconds=2 * float(job["timeout"]) + 60)
    if os.environ["ORACLE_JOINED"] == "0":
        store: dist.Store = dist.FileStore(str(rank.attempt / "store"), rank.size)
        store.set_timeout(patience)
    else:
        store = _meet_over_tcp(rank, patience)
    rank.backend = job["backend"]
    on_gpu = rank.backend == "nccl"
    if not on_gpu:
        keep_freed_memory()
    rank.device = torch.device("cpu")
    if on_gpu:
        rank.device = torch.device("cuda", device_index(rank.local, torch.cuda.device_count()))
        torch.cuda.set_device(rank.device)
    elif rank.backend == "ordered":
        from oracle.executor.ranks.ordered import register

        register()
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else rank.backend,
        store=store,
        rank=rank.rank,
        world_size=rank.size,
        timeout=patience,
    )
    plain = rank.backend == "gloo"
    rank.control = dist.group.WORLD if plain else dist.new_group(backend="gloo")
    peers = meet(me(rank.backend), rank.size, rank.control)
    refuse_unlike(peers)
    rank.hosts = [peer.host for peer in peers]


def keep_freed_memory() -> None:
    """Keep freed memory with this process, as a GPU's allocator does, where glibc can.

    Otherwise each step asks the kernel anew for the pages of its activations, which takes a tenth
    of its time.
    """
    if adjust := getattr(ctypes.CDLL(None), "mallopt", None):
        adjust(_M_MMAP_MAX, 0)
        adjust(_M_TRIM_THRESHOLD, -1)


def _meet_over_tcp(rank: Rank, patience: timedelta) -> dist.TCPStore:
    """Meet over TCP: rank 0 listens on a free port and writes the address down."""
    import socket

    import torch.distributed as dist

    address = rank.attempt / "address"
    if rank.rank == 0:
        name = os.environ.get("ORACLE_ADDRESS") or socket.gethostname()
        if rank.size == rank_count_here():
            name = "127.0.0.1"
        store = dist.TCPStore(name, 0, rank.size, True, patience, wait_for_workers=False)
        write_whole(address, json.dumps({"host": name, "port": store.port}))
        return store
    while not address.is_file():
        time.sleep(0.05)
    listening = read_json(address)
    return dist.TCPStore(listening["host"], listening["port"], rank.size, False, patience)


def rank_count_here() -> int:
    """The number of ranks on this host by the launcher; 0 when it does not say."""
    from oracle.executor.ranks.world import LAUNCHERS

    names = (row[3] for row in LAUNCHERS.values() if row[3])
    values = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in values if re.fullmatch("[0-9]{1,9}", text)), 0)


if __name__ == "__main__":
    main()

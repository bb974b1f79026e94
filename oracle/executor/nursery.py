"""Ranks of one host that are forks of one process: what they all import is imported once.

A supervisor starts `python -m oracle.executor.nursery FILE`, which says the module of the task, and
of each rank its variables and where its log goes. It prints a line for each rank that began and one
for each that ended, and ends with the last. Nothing that it imports may start a thread or touch a
device, or a fork would find half of it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from oracle.executor import rank as worker
from oracle.executor.records import write_whole
from oracle.spec.files import LOG, read_json

# what tasks import when they run, the slowest first
SHARED = (
    "torch", "torch.distributed", "oracle.executor.timed_steps",
    "oracle.executor.steps", "oracle.executor.ordered", "oracle.predict.evaluate",
)  # fmt: skip


class Fork:
    """A rank that a nursery started, as a supervisor sees it: like a `subprocess.Popen`."""

    def __init__(self, nursery: Nursery) -> None:
        self.nursery = nursery
        self.pid = 0  # none yet
        self.code: int | None = None
        self._asked: list[int] = []

    def poll(self) -> int | None:
        """Its exit code; of one that was killed, minus the signal; None while it runs."""
        self.nursery.listen()
        return self.code

    def send_signal(self, number: int) -> None:
        """Now, or as soon as it has begun."""
        if self.pid:
            os.kill(self.pid, number)
        else:
            self._asked.append(number)

    def began(self, pid: int) -> None:
        """It runs from now on."""
        self.pid = pid
        for number in self._asked:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def wait(self, timeout: float) -> int | None:
        """Its exit code, once its nursery has ended."""
        self.nursery.process.wait(timeout)
        return self.poll()


class Nursery:
    """The process that forks ranks, at the supervisor's end."""

    def __init__(
        self, file: Path, module: str, environments: Mapping[int, Mapping[str, str]],
        logs: Mapping[int, Path],
    ) -> None:  # fmt: skip
        write_whole(file, json.dumps({"module": module, "ranks": [
            {"rank": rank, "environment": dict(environments[rank]), "log": str(logs[rank])}
            for rank in environments
        ]}))  # fmt: skip
        first = next(iter(environments))
        shared = {**environments[first], "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with open(logs[first], "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oracle.executor.nursery", str(file)], env=shared,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.forks = {rank: Fork(self) for rank in environments}
        assert self.process.stdout
        self._pipe = self.process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._heard = b""

    def listen(self) -> None:
        """Take in what it has said since."""
        assert self.process.stdout
        if self.process.stdout.closed:
            return
        over = False
        with contextlib.suppress(BlockingIOError):
            while not over:
                piece = os.read(self._pipe, 2**16)
                over, self._heard = not piece, self._heard + piece
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            rank, what, number = line.split()
            if what == b"began":
                self.forks[int(rank)].began(int(number))
            else:
                self.forks[int(rank)].code = int(number)
        if over and (code := self.process.poll()) is not None:
            for fork in self.forks.values():  # those of whom it can tell no more
                fork.code = fork.code if fork.code is not None else code or 1

    def end(self) -> None:
        """Wait until its ranks, which were killed, have ended; kill it where some never began."""
        self.listen()
        if all(fork.pid for fork in self.forks.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.listen()
        assert self.process.stdout
        self.process.stdout.close()


def main() -> None:
    """`python -m oracle.executor.nursery`, as `Nursery` starts it."""
    worker.die_with(int(os.environ["ORACLE_SUPERVISOR"]))
    asked = read_json(Path(sys.argv[1]), "ranks to start", LOG)
    for name in (*SHARED, asked["module"]):
        with contextlib.suppress(Exception):  # a rank that misses it will say so
            importlib.import_module(name)
    gc.freeze()  # what is never collected is never copied
    rank_of: dict[int, int] = {}
    for one in asked["ranks"]:
        pid = os.fork()
        if pid == 0:
            _grow_up(one["environment"], one["log"])
        rank_of[pid] = one["rank"]
        _say(f"{one['rank']} began {pid}")
    while rank_of:
        pid, status = os.wait()
        if pid in rank_of:
            _say(f"{rank_of.pop(pid)} ended {os.waitstatus_to_exitcode(status)}")


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _grow_up(environment: Mapping[str, str], log: str) -> None:
    """Become a rank, as if it had been started by itself; never returns."""
    nursery = os.getppid()
    os.setsid()
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND
                                                             | os.O_CREAT, 0o666)  # fmt: skip
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.clear()
    os.environ.update(environment, ORACLE_SUPERVISOR=str(nursery))
    worker.main()


def shares(environments: Sequence[Mapping[str, str]], own: Sequence[str]) -> bool:
    """Whether ranks differ in nothing but `own` variables, which nothing reads while it loads."""
    rest = [{k: v for k, v in each.items() if k not in own} for each in environments]
    return len(rest) > 1 and all(each == rest[0] for each in rest)


if __name__ == "__main__":
    main()

"""Ranks of one host as forks of one process, so that what they all import is imported once.

A supervisor starts `python -m oracle.executor.ranks.forked_ranks FILE`. The file names the module
of the task, and for each rank its variables and where its log goes. The process prints a line for
each rank that began and one for each that ended, and ends with the last. Nothing that it imports
may start a thread or touch a device, or a fork would find half of it.
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

from oracle.executor.ranks import rank as worker
from oracle.executor.ranks.records import write_whole
from oracle.spec.files import LOG, read_json

# what tasks import when they run, the slowest first
SHARED = (
    "torch", "torch.distributed", "oracle.executor.measure.timed_steps",
    "oracle.executor.steps.trainer", "oracle.executor.ranks.ordered", "oracle.predict.evaluate",
)  # fmt: skip


class Fork:
    """A rank that a fork server forked, with the interface of a `subprocess.Popen`."""

    def __init__(self, fork_server: ForkServer) -> None:
        self.fork_server = fork_server
        self.pid = 0  # none yet
        self.code: int | None = None
        self._asked: list[int] = []

    def poll(self) -> int | None:
        """The exit code; minus the signal of one that was killed; None while it runs."""
        self.fork_server.listen()
        return self.code

    def send_signal(self, number: int) -> None:
        """Send a signal now, or as soon as the rank has begun."""
        if self.pid:
            os.kill(self.pid, number)
        else:
            self._asked.append(number)

    def began(self, pid: int) -> None:
        """Note that the rank runs from now on."""
        self.pid = pid
        for number in self._asked:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def wait(self, timeout: float) -> int | None:
        """The exit code, once the fork server has ended."""
        self.fork_server.process.wait(timeout)
        return self.poll()


class ForkServer:
    """The process that forks ranks, as its supervisor sees it."""

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
                [sys.executable, "-m", "oracle.executor.ranks.forked_ranks", str(file)], env=shared,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.forks = {rank: Fork(self) for rank in environments}
        assert self.process.stdout
        self._pipe = self.process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._heard = b""

    def listen(self) -> None:
        """Take in the lines that the process has printed since."""
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
            rank, event, number = line.split()
            if event == b"began":
                self.forks[int(rank)].began(int(number))
            else:
                self.forks[int(rank)].code = int(number)
        if over and (code := self.process.poll()) is not None:
            for fork in self.forks.values():  # ranks of which it can tell no more
                fork.code = fork.code if fork.code is not None else code or 1

    def end(self) -> None:
        """Wait until the killed ranks have ended; kill the process where some never began."""
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
    """Fork the ranks of a file and report when each begins and ends."""
    worker.die_with(int(os.environ["ORACLE_SUPERVISOR"]))
    order = read_json(Path(sys.argv[1]), "ranks to start", LOG)
    for name in (*SHARED, order["module"]):
        with contextlib.suppress(Exception):  # a rank that lacks the module will say so
            importlib.import_module(name)
    gc.freeze()  # memory that is never collected is never copied
    rank_of: dict[int, int] = {}
    for entry in order["ranks"]:
        pid = os.fork()
        if pid == 0:
            _grow_up(entry["environment"], entry["log"])
        rank_of[pid] = entry["rank"]
        _say(f"{entry['rank']} began {pid}")
    while rank_of:
        pid, status = os.wait()
        if pid in rank_of:
            _say(f"{rank_of.pop(pid)} ended {os.waitstatus_to_exitcode(status)}")


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _grow_up(environment: Mapping[str, str], log: str) -> None:
    """Become a rank, as if it had been started by itself; never returns."""
    fork_server = os.getppid()
    os.setsid()
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND
                                                             | os.O_CREAT, 0o666)  # fmt: skip
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.clear()
    os.environ.update(environment, ORACLE_SUPERVISOR=str(fork_server))
    worker.main()


def shares(environments: Sequence[Mapping[str, str]], private: Sequence[str]) -> bool:
    """Whether ranks differ in `private` variables alone, which nothing reads while it loads."""
    common = [{k: v for k, v in variables.items() if k not in private}
              for variables in environments]  # fmt: skip
    return len(common) > 1 and all(variables == common[0] for variables in common)


if __name__ == "__main__":
    main()

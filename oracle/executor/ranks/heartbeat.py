"""Heartbeat of each rank: a small mapped file with its phase and operation, renewed each second.

The file is shared memory with a name: what a rank wrote last outlives a SIGKILL, and
others read it without an answer from it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from oracle.spec.files import read_json

_FILE_BYTES = 2048
INTERVAL = 1.0  # seconds between beats


@dataclass(frozen=True, slots=True)
class Status:
    """What a rank last reported of its place in the run."""

    rank: int
    host: str = "?"
    pid: int = 0
    beat: int = 0
    phase: str = "start"  # start, warm-up, measure, forward, backward, exchange, update, end
    operation: str = ""
    step: int = 0
    entered: int = 0  # operations begun so far; a rank that lags holds the others up
    state: str = "running"  # running, done, stopped

    def activity(self) -> str:
        """What the rank is doing, for messages: `step 3, exchange: allreduce of 1 MiB`."""
        step = f"step {self.step}, " if self.step else ""
        return f"{step}{self.phase}" + (f": {self.operation}" if self.operation else "")


class Heartbeat:
    """A rank's own heartbeat. `enter` costs about 10 µs."""

    def __init__(self, folder: Path, rank: int, host: str) -> None:
        self._status = Status(rank, host, os.getpid())
        self._lock = threading.Lock()
        path = folder / f"beat-{rank:05d}"
        path.write_bytes(b" " * _FILE_BYTES)
        with open(path, "r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), _FILE_BYTES)
        self._write()
        threading.Thread(target=self._beat, daemon=True).start()

    @property
    def status(self) -> Status:
        return self._status

    def enter(self, phase: str, operation: str = "", step: int | None = None) -> None:
        """Report which phase and operation begins now."""
        with self._lock:
            status = self._status
            self._status = replace(
                status,
                phase=phase,
                operation=operation[:200],
                step=status.step if step is None else step,
                entered=status.entered + 1,
            )
            self._write()

    def state(self, state: str) -> None:
        with self._lock:
            self._status = replace(self._status, state=state)
            self._write()
            self._mapped.flush()

    def _beat(self) -> None:
        while True:
            time.sleep(INTERVAL)
            with self._lock, contextlib.suppress(ValueError, OSError):
                self._status = replace(self._status, beat=self._status.beat + 1)
                self._write()
                self._mapped.flush()

    def _write(self) -> None:
        line = json.dumps(asdict(self._status)).encode()[: _FILE_BYTES - 1]
        self._mapped[:] = line.ljust(_FILE_BYTES - 1) + b"\n"


def last_status(folder: Path, rank: int) -> Status | None:
    """What `rank` last reported; None if it never started, or is just writing."""
    try:
        fields = read_json(folder / f"beat-{rank:05d}")
        return Status(**fields)
    except (OSError, ValueError, TypeError):
        return None

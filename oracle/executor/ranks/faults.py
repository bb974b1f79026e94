"""Failures of ranks: one file each, and the one that caused the others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from oracle.executor.ranks.heartbeat import Status
from oracle.executor.ranks.records import write_whole
from oracle.spec.files import read_json

# Causes before consequences: when a rank dies, those it talked to raise a lost connection within
# a second, and their errors say nothing. Within a kind, the first to be noticed is the cause.
KINDS = ("killed", "memory", "raised", "missing", "stalled", "connection")
_LOST = re.compile(
    r"connection (closed|reset|refused)|broken pipe|gloo.*(timed out|connect)|socket timeout"
    r"|timed out waiting|NCCL.*(remote|unhandled system)|peer.*(closed|terminated)|DistNetwork",
    re.IGNORECASE,
)
_MEMORY = re.compile(r"out of memory|can't allocate memory|cannot allocate memory", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RankFault:
    """One rank's failure, as whoever noticed it first reported it."""

    rank: int
    host: str
    kind: str  # one of KINDS
    detail: str
    activity: str = ""
    when: float = 0.0

    def __str__(self) -> str:
        place = f" at {self.activity}" if self.activity else ""
        return f"rank {self.rank} on {self.host} {self.detail}{place}"


def report(folder: Path, fault: RankFault) -> None:
    """Write a fault to its file; the first of a rank stands."""
    path = folder / f"fault-{fault.rank:05d}.json"
    if not path.exists():
        with contextlib.suppress(OSError):
            write_whole(path, json.dumps(asdict(fault)))


def reported(folder: Path) -> list[RankFault]:
    """All faults reported so far."""
    faults = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if name.startswith("fault-"):
                with contextlib.suppress(OSError, ValueError, TypeError):
                    faults.append(RankFault(**read_json(folder / name)))
    return faults


def root_cause(faults: Sequence[RankFault]) -> RankFault:
    """The fault that the others followed from."""
    return min(faults, key=lambda fault: (KINDS.index(fault.kind), fault.when))


def of_exception(error: BaseException) -> tuple[str, str]:
    """(kind, detail) of what a rank raised."""
    text = " ".join(str(error).split())[:300]
    name = type(error).__name__
    if isinstance(error, MemoryError) or name == "OutOfMemoryError" or _MEMORY.search(text):
        return "memory", f"ran out of memory ({name}: {text})"
    lost = isinstance(error, ConnectionError) or name == "DistNetworkError" or _LOST.search(text)
    return ("connection" if lost else "raised"), f"raised {name}: {text}"


def of_exit(code: int, status: Status | None) -> tuple[str, str]:
    """(kind, detail) of a process that ended without a report."""
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (the kernel does this when memory runs out)" if name == "SIGKILL" else ""
        return "killed", f"was killed by {name}{hint}"
    return "raised", f"ended with exit code {code}" + ("" if status else " before it began")

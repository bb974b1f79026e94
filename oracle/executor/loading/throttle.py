"""Limits of a storage that is played on this machine: each rank waits as a node of it would.

    reserve    t = max(now, free) + amount / rate;  free = t              wait until t

A limit that ranks share lies in a file that all of them map: its value is the time at which the
server that it stands for is free again, by the clock of the machine, so that who comes first is
served first. A read waits for operations on names, for its first byte, and then for the slowest of
its own stream, its node and all nodes together.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oracle.spec.storage import Disk, SharedFiles
from oracle.storage.file_system import OPERATIONS

_DOUBLE = struct.Struct("d")


@dataclass(frozen=True, slots=True)
class Played:
    """What is played: the storage of a system, how its nodes are joined, and who is on which."""

    shared: SharedFiles | None
    local: Disk | None
    ports: float = 0.0  # B/s out of a node; 0: as fast as it goes
    latency: float = 0.0
    each: int = 1  # ranks of a node


class Clock:
    """Times in a file that all ranks map, each a limit's next free moment."""

    def __init__(self, path: Path, count: int) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.ftruncate(handle, count * _DOUBLE.size)
        self._handle, self._map = handle, mmap.mmap(handle, count * _DOUBLE.size)
        self._mine = threading.Lock()

    def reserve(self, slot: int, seconds: float) -> float:
        """The moment at which so many seconds of work are done, after all that came before."""
        at = slot * _DOUBLE.size
        with self._mine:
            fcntl.lockf(self._handle, fcntl.LOCK_EX)
            try:
                (free,) = _DOUBLE.unpack_from(self._map, at)
                done: float = max(time.monotonic(), free) + seconds
                _DOUBLE.pack_into(self._map, at, done)
            finally:
                fcntl.lockf(self._handle, fcntl.LOCK_UN)
        return done

    def close(self) -> None:
        self._map.close()
        os.close(self._handle)


def until(moment: float) -> None:
    """Sleep until a moment of the machine's clock."""
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


ALL, NAMING, FIRST = 0, 1, 2  # slots: all nodes' bytes, operations on names, then four a node
NODE, DISK, PORT, WRITE = range(4)


class Throttle:
    """Waits of one rank; without anything played, none."""

    def __init__(
        self, played: Played | None = None, folder: Path | None = None, rank: int = 0, size: int = 1
    ) -> None:
        self.played = played
        if played is None or folder is None:
            self.played = None
            return
        self.node, nodes = rank // played.each, -(-size // played.each)
        self.clock = Clock(folder / "throttle", FIRST + 4 * nodes)

    def _slot(self, which: int) -> int:
        return FIRST + 4 * self.node + which

    def named(self, count: float) -> None:
        """Operations on names alone."""
        limits = self.played.shared if self.played else None
        if limits is not None and limits.metadata:
            until(self.clock.reserve(NAMING, count / limits.metadata))

    def shared(self, nbytes: float) -> None:
        """A file of those that all share, or a part of it: opened, read and closed."""
        limits = self.played.shared if self.played else None
        if limits is None:
            return
        begun = time.monotonic() + (limits.open or 0.0)
        if limits.metadata:  # a part of what opening takes
            names = OPERATIONS[limits.kind]
            begun = max(begun, self.clock.reserve(NAMING, names / limits.metadata))
        until(begun)
        done = [self.clock.reserve(ALL, nbytes / limits.bandwidth)]
        if limits.per_node:
            done.append(self.clock.reserve(self._slot(NODE), nbytes / limits.per_node))
            done.append(begun + nbytes * (limits.streams or 1) / limits.per_node)
        until(max(done))

    def disk(self, nbytes: float) -> None:
        """A read from the node's own disks."""
        limits = self.played.local if self.played else None
        if limits is not None:
            time.sleep(limits.open or 0.0)
            until(self.clock.reserve(self._slot(DISK), nbytes / limits.read))

    def kept(self, nbytes: float) -> None:
        """A write to the node's own disks."""
        limits = self.played.local if self.played else None
        if limits is not None and limits.write:
            until(self.clock.reserve(self._slot(WRITE), nbytes / limits.write))

    def writing(self, nbytes: float) -> float:
        """The moment at which so many bytes are written: to shared files, else to own disks."""
        if self.played is None:
            return 0.0
        shared, local = self.played.shared, self.played.local
        if shared is None:
            rate = local.write if local else None
            return self.clock.reserve(self._slot(WRITE), nbytes / rate) if rate else 0.0
        done = self.clock.reserve(ALL, nbytes / (shared.write or shared.bandwidth))
        if shared.per_node:
            done = max(done, self.clock.reserve(self._slot(NODE), nbytes / shared.per_node))
        return done

    def sent(self, nbytes: float, messages: int = 1) -> None:
        """Bytes out of the node."""
        if self.played is not None and self.played.ports:
            until(self.clock.reserve(self._slot(PORT), nbytes / self.played.ports)
                  + messages * self.played.latency)  # fmt: skip


def played_of(said: Sequence[object] | None) -> Played | None:
    """What was handed to a rank as JSON."""
    if said is None:
        return None
    shared, local, ports, latency, each = said
    assert isinstance(ports, int | float)
    assert isinstance(latency, int | float)
    assert isinstance(each, int)
    return Played(
        SharedFiles(**shared) if isinstance(shared, dict) else None,
        Disk(**local) if isinstance(local, dict) else None,
        ports, latency, each,
    )  # fmt: skip

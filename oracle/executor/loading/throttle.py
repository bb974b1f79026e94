"""Plays the limits of a storage on this machine: each rank waits as a node of it would.

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
    """The storage of a system that is played, how its nodes are joined, and where ranks are."""

    shared: SharedFiles | None
    local: Disk | None
    ports: float = 0.0  # B/s out of a node; 0: no limit is played
    latency: float = 0.0
    ranks_per_node: int = 1  # ranks of a node


class Clock:
    """A file that all ranks map: the next free moment of each limit."""

    def __init__(self, path: Path, count: int) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.ftruncate(handle, count * _DOUBLE.size)
        self._handle, self._map = handle, mmap.mmap(handle, count * _DOUBLE.size)
        self._mine = threading.Lock()

    def reserve(self, slot: int, seconds: float) -> float:
        """Reserve so many seconds of work after all that came before; the moment it is done."""
        offset = slot * _DOUBLE.size
        with self._mine:
            fcntl.lockf(self._handle, fcntl.LOCK_EX)
            try:
                (free,) = _DOUBLE.unpack_from(self._map, offset)
                done: float = max(time.monotonic(), free) + seconds
                _DOUBLE.pack_into(self._map, offset, done)
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
    """Makes one rank wait for the storage that is played, if any is."""

    def __init__(
        self, played: Played | None = None, folder: Path | None = None, rank: int = 0, size: int = 1
    ) -> None:
        self.played = played
        if played is None or folder is None:
            self.played = None
            return
        self.node, nodes = rank // played.ranks_per_node, -(-size // played.ranks_per_node)
        self.clock = Clock(folder / "throttle", FIRST + 4 * nodes)

    def _slot(self, which: int) -> int:
        return FIRST + 4 * self.node + which

    def named(self, count: float) -> None:
        """Wait for operations on names alone."""
        limits = self.played.shared if self.played else None
        if limits is not None and limits.metadata:
            until(self.clock.reserve(NAMING, count / limits.metadata))

    def shared(self, nbytes: float) -> None:
        """Wait for a shared file, or a part of it, to be opened, read and closed."""
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

    def local_read(self, nbytes: float) -> None:
        """Wait for a read from the node's own disks."""
        limits = self.played.local if self.played else None
        if limits is not None:
            time.sleep(limits.open or 0.0)
            until(self.clock.reserve(self._slot(DISK), nbytes / limits.read))

    def local_write(self, nbytes: float) -> None:
        """Wait for a write to the node's own disks."""
        limits = self.played.local if self.played else None
        if limits is not None and limits.write:
            until(self.clock.reserve(self._slot(WRITE), nbytes / limits.write))

    def writing(self, nbytes: float) -> float:
        """Reserve a write to shared files, else to own disks; the moment it is done."""
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
        """Wait for bytes to leave the node."""
        if self.played is not None and self.played.ports:
            until(self.clock.reserve(self._slot(PORT), nbytes / self.played.ports)
                  + messages * self.played.latency)  # fmt: skip


def played_of(fields: Sequence[object] | None) -> Played | None:
    """The storage to play that a rank was handed as JSON."""
    if fields is None:
        return None
    shared, local, ports, latency, ranks_per_node = fields
    assert isinstance(ports, int | float)
    assert isinstance(latency, int | float)
    assert isinstance(ranks_per_node, int)
    return Played(
        SharedFiles(**shared) if isinstance(shared, dict) else None,
        Disk(**local) if isinstance(local, dict) else None,
        ports, latency, ranks_per_node,
    )  # fmt: skip

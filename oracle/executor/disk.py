"""Bytes a second of a disk: a file is written, pushed out of memory, read back, and removed."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PIECE = 2**23  # bytes of one reading
SYNCED = 8 * PIECE  # bytes after which they are waited for: a checkpoint is not one piece either
LARGEST = 2**30  # of the file
SPARE = 4  # of what is free on the disk, at most a part
RAM = ("tmpfs", "ramfs")
SHARED = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "fuse.sshfs")


def kind_of(folder: Path, mounts: str) -> str:
    """The file system that holds a folder, by the lines of /proc/mounts."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        at = fields[1].replace("\\040", " ")
        inside = str(folder) == at or str(folder).startswith(at.rstrip("/") + "/")
        if inside and len(at) >= len(best):
            best, kind = at, fields[2]
    return kind


def rates(
    folder: Path, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float, int]:
    """(bytes read a second, written, bytes of the file), in at most so many seconds for both.

    What is written counts when it is on the disk. The file's pages are dropped
    before it is read; a hypervisor's cache cannot be.
    """
    status = os.statvfs(folder)
    most = min(LARGEST, status.f_bavail * status.f_frsize // SPARE)
    if most < PIECE:
        return 0.0, 0.0, 0
    piece = os.urandom(PIECE)  # nothing that a disk could write shorter
    handle, name = tempfile.mkstemp(prefix=".oracle-disk-", dir=folder)
    try:
        written, began = 0, clock()
        while written + PIECE <= most and clock() - began < 0.5 * seconds:
            written += os.write(handle, piece)
            if written % SYNCED == 0:
                os.fsync(handle)
        os.fsync(handle)
        writing = written / max(clock() - began, 1e-9)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(handle, 0, os.SEEK_SET)
        began, found = clock(), 0
        while clock() - began < 0.5 * seconds and (got := len(os.read(handle, PIECE))):
            found += got
        return found / max(clock() - began, 1e-9), writing, written
    finally:
        os.close(handle)
        os.unlink(name)

"""Measures the bytes a second of a disk by a file that is written, read back and removed."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PIECE = 2**23  # bytes of one reading
SYNCED = 8 * PIECE  # bytes after which they are flushed: a checkpoint is not one piece either
LARGEST = 2**30  # of the file
SPARE = 4  # the file takes at most one of so many parts of the free space
RAM = ("tmpfs", "ramfs")
SHARED = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "fuse.sshfs")


def kind_of(folder: Path, mounts: str) -> str:
    """The file system that holds a folder, by the lines of /proc/mounts."""
    longest_mount, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        inside = str(folder) == mount or str(folder).startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(longest_mount):
            longest_mount, kind = mount, fields[2]
    return kind


def rates(
    folder: Path, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float, int]:
    """(bytes read a second, bytes written a second, bytes of the file), both in so many seconds.

    Bytes count as written when they are on the disk. The file's pages are dropped from memory
    before it is read; a hypervisor's cache cannot be dropped.
    """
    status = os.statvfs(folder)
    file_bytes = min(LARGEST, status.f_bavail * status.f_frsize // SPARE)
    if file_bytes < PIECE:
        return 0.0, 0.0, 0
    piece = os.urandom(PIECE)  # random, so that no disk compresses it
    handle, name = tempfile.mkstemp(prefix=".oracle-disk-", dir=folder)
    try:
        written, began = 0, clock()
        while written + PIECE <= file_bytes and clock() - began < 0.5 * seconds:
            written += os.write(handle, piece)
            if written % SYNCED == 0:
                os.fsync(handle)
        os.fsync(handle)
        writing = written / max(clock() - began, 1e-9)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(handle, 0, os.SEEK_SET)
        began, bytes_read = clock(), 0
        while clock() - began < 0.5 * seconds and (piece_bytes := len(os.read(handle, PIECE))):
            bytes_read += piece_bytes
        return bytes_read / max(clock() - began, 1e-9), writing, written
    finally:
        os.close(handle)
        os.unlink(name)

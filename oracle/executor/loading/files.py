"""Reads and writes files of samples, and pushes them out of the page cache.

Only regular files are opened, and never through a symbolic link: a folder of samples may be of
other people.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oracle.spec.document import refusal

PIECE = 2**22  # bytes of one reading
MOST = 2_000_000  # files of a folder
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def listed(folder: Path) -> list[tuple[str, int]]:
    """(path, bytes) of all regular files below a folder, by name, without hidden ones and links."""
    files: list[tuple[str, int]] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(place, name)
            status = os.lstat(path)
            if name.startswith(".") or not stat.S_ISREG(status.st_mode) or not status.st_size:
                continue
            files.append((path, status.st_size))
            if len(files) > MOST:
                raise refusal(str(folder), f"more than {MOST:,} files", "name a smaller folder")
    if not files:
        raise refusal(str(folder), "there is no file in it", "name a folder of samples", "E100")
    return files


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a regular file; its descriptor."""
    handle = os.open(path, os.O_RDONLY | _SAFELY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is no regular file")
        yield handle
    finally:
        os.close(handle)


def read(path: str, runs: Sequence[tuple[int, int]]) -> bytes:
    """The bytes of some runs (offset, length) of a file, one after the other."""
    with opened(path) as handle:
        return b"".join(_run(handle, path, offset, count) for offset, count in runs)


def _run(handle: int, path: str, offset: int, count: int) -> bytes:
    parts = []
    while count > 0:
        part = os.pread(handle, min(count, PIECE), offset)
        if not part:
            raise OSError(f"{path} ends before its samples do")
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return b"".join(parts)


def dropped(path: str) -> bool:
    """Push a file out of the page cache; whether it is out, as far as the kernel tells."""
    with opened(path) as handle:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(handle, [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:  # the file system does not tell
            return True
    return False


def write(path: Path, content: bytes) -> None:
    """Write a new file and flush it to disk, so that it can be pushed out of memory."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(path, flags, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)

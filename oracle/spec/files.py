"""Atomic file writes: a file is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write(place: Path, content: bytes) -> None:
    """Put a file in its place in one step; a device or a pipe is simply written to."""
    if place.exists() and not place.is_file() and not place.is_dir():
        place.write_bytes(content)
        return
    beside = place.with_name(f".{place.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except OSError as error:  # of the file that was asked for, not of the one beside it
        raise OSError(error.errno, error.strerror, str(place)) from None
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

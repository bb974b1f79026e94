"""Checkpoints in a folder: each complete and checked, or not there.

    FOLDER/step-00000005/rank-00000.state        bytes of weights and optimizer state
                         rank-00000.json         which they are, where, and the checksum of each
                         manifest.json           the question that they belong to; written last

All is written in `step-00000005.partial` and gets its name when every file of it is on disk, so a
failure while one is written leaves the one before. Links are not followed, and nothing but files of
these names is ever removed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oracle.executor.loading.throttle import Throttle, until
from oracle.executor.question import digest
from oracle.executor.ranks.records import write_whole
from oracle.spec.document import SpecError, refusal
from oracle.spec.files import LOG, opened, read_json
from oracle.storage.file_system import OPERATIONS

SCHEMA = 1
MANIFEST = "manifest.json"
_STEP = re.compile(r"step-([0-9]{8,})(\.partial)?")
_OURS = re.compile(r"rank-[0-9]{5,}\.(state|json)|manifest\.json|\..*\.[0-9a-f]{8}")


class Damaged(Exception):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Section:
    """Where a part of a tensor lies: elements begin to end of what is kept of it, in a file."""

    op: int
    name: str
    kept: str  # intervals of the whole tensor, by axis
    kind: str  # weights, or which slot of the optimizer
    begin: int
    end: int
    at: int = 0  # in its file
    nbytes: int = 0
    checksum: int = 0

    @property
    def key(self) -> tuple[int, str, str, str]:
        return self.op, self.name, self.kept, self.kind


def place(folder: Path, step: int, partial: bool = False) -> Path:
    return folder / f"step-{step:08d}{'.partial' * partial}"


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints that were written to their end, the newest first."""
    with os.scandir(folder) as listed:
        names = [_STEP.fullmatch(entry.name) for entry in listed
                 if entry.is_dir(follow_symlinks=False)]  # fmt: skip
    return sorted((int(entry[1]) for entry in names if entry and not entry[2]), reverse=True)


def claim(folder: Path) -> int:
    """Lock a folder for one training until this process ends; the handle of the lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(folder / ".lock", flags, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        problem = "another training keeps its checkpoints here"
        raise refusal(str(folder), problem, "another folder; or wait until it has ended") from None
    except OSError as error:  # not every file system has locks
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise
    return handle


def clear(folder: Path) -> None:
    """Remove what a failure left half-written."""
    for entry in os.listdir(folder):
        name = _STEP.fullmatch(entry)
        if name and name[2]:
            remove(folder / entry)


def remove(checkpoint: Path) -> None:
    """Remove a checkpoint, unless something else lies in its folder."""
    if checkpoint.is_symlink():
        raise refusal(str(checkpoint), "this is a symbolic link", "remove it", "E100")
    if all(map(_OURS.fullmatch, os.listdir(checkpoint))):
        # when half removed it must not look complete
        (checkpoint / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(checkpoint)


class StateFile:
    """A file of state that is being written by one rank."""

    def __init__(self, folder: Path, step: int, rank: int, throttle: Throttle) -> None:
        self.folder, self.rank = place(folder, step, partial=True), rank
        self.throttle, self.due = throttle, 0.0
        self.folder.mkdir(exist_ok=True)
        if self.folder.is_symlink():
            raise refusal(str(self.folder), "this is a symbolic link", "remove it", "E100")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        throttle.named(OPERATIONS["files"])
        self._file = os.open(self.folder / f"rank-{rank:05d}.state", flags, 0o644)
        self.sections: list[Section] = []
        self.random: dict[str, str] = {}  # the state of each rank's random numbers
        self.end = 0

    def add(self, section: Section, content: memoryview) -> None:
        self.due = max(self.due, self.throttle.writing(len(content)))
        checksum, left = zlib.crc32(content), content
        while left:
            left = left[os.write(self._file, left) :]
        placed = asdict(section) | {"at": self.end, "nbytes": len(content), "checksum": checksum}
        self.sections.append(Section(**placed))
        self.end += len(content)

    def finish(self) -> None:
        """Flush the file to disk, then write the index that tells others that it is complete."""
        os.fsync(self._file)
        os.close(self._file)
        until(self.due)
        about = {"sections": [asdict(section) for section in self.sections], "random": self.random}
        index = self.folder / f"rank-{self.rank:05d}.json"
        write_whole(index, json.dumps(_sealed(about)))


def all_written(folder: Path, step: int, files: int) -> bool:
    """Whether so many ranks have written their files to the end."""
    return len(list(place(folder, step, partial=True).glob("rank-*.json"))) == files


def commit(folder: Path, step: int, about: Mapping[str, Any], keep: int) -> None:
    """Give a checkpoint its name, once all files of it are on disk; remove the oldest."""
    partial, final = place(folder, step, partial=True), place(folder, step)
    files = {file.name: file.stat().st_size for file in sorted(partial.glob("rank-*.state"))}
    fields = {"schema": SCHEMA, "step": step, **about, "files": files}
    write_whole(partial / MANIFEST, json.dumps(_sealed(fields), indent=1))
    if final.exists():  # one of a training that went on from an earlier checkpoint
        remove(final)
    partial.rename(final)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    for old in steps(folder)[keep:]:
        remove(place(folder, old))


def manifest(folder: Path, step: int) -> dict[str, Any]:
    """The manifest of a checkpoint, all of whose files are there and as long as they were."""
    checkpoint = place(folder, step)
    fields = _unsealed(checkpoint / MANIFEST)
    if fields.get("schema") != SCHEMA or fields.get("step") != step:
        raise Damaged(f"{checkpoint.name}: its manifest is of another checkpoint")
    for name, size in fields["files"].items():
        try:
            nbytes = os.lstat(checkpoint / name).st_size
        except OSError:
            raise Damaged(f"{checkpoint.name}: {name} is gone") from None
        if nbytes != size:
            raise Damaged(f"{checkpoint.name}: {name} has {nbytes} bytes of {size}")
    return fields


def _sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"sha256": digest(fields), **fields}


def _unsealed(path: Path) -> dict[str, Any]:
    try:
        fields = read_json(path, "checkpoint", LOG, links=False)
        seal = fields.pop("sha256")
    except (SpecError, AttributeError, KeyError, TypeError):
        raise Damaged(f"{path.parent.name}: {path.name} cannot be read") from None
    if digest(fields) != seal:
        raise Damaged(f"{path.parent.name}: {path.name} is not what was written")
    return dict(fields)


class SavedState:
    """A checkpoint that is read back, section by section."""

    def __init__(self, folder: Path, step: int) -> None:
        self.step, self.manifest = step, manifest(folder, step)
        self.place, self.read = place(folder, step), 0
        self.random: dict[str, str] = {}
        self.sections: dict[tuple[int, str, str, str], list[tuple[str, Section]]] = {}
        for name in self.manifest["files"]:
            index = _unsealed(self.place / name.replace(".state", ".json"))
            self.random |= index["random"]
            for section in (Section(**fields) for fields in index["sections"]):
                self.sections.setdefault(section.key, []).append((name, section))

    def overlapping(self, need: Section) -> Sequence[tuple[Section, bytes]]:
        """The sections that hold these elements, read and checked; all elements are in them."""
        overlaps = [(name, section) for name, section in self.sections.get(need.key, ())
                    if section.begin < need.end and need.begin < section.end]  # fmt: skip
        elements = sum(min(need.end, section.end) - max(need.begin, section.begin)
                       for _, section in overlaps)  # fmt: skip
        if elements != need.end - need.begin:
            raise Damaged(f"{self.place.name}: {need.name} of operation {need.op} is not whole")
        return [(section, self._content(name, section)) for name, section in overlaps]

    def _content(self, name: str, section: Section) -> bytes:
        try:
            with opened(self.place / name, "checkpoint", 2**63 - 1, links=False) as file:
                file.seek(section.at)
                content = file.read(section.nbytes)
        except (OSError, SpecError):
            raise Damaged(f"{self.place.name}: {name} cannot be read") from None
        self.read += len(content)
        if zlib.crc32(content) != section.checksum:
            raise Damaged(f"{self.place.name}: {name} is not what was written")
        return content


def newest(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The manifest of the newest checkpoint that can be read, and why newer ones cannot."""
    passed: list[str] = []
    for step in steps(folder) if folder.is_dir() else ():
        try:
            return manifest(folder, step), passed
        except Damaged as why:
            passed.append(str(why))
    return None, passed

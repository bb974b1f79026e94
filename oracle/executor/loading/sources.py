"""Where samples come from, in each mode of reading.

shared    from their files, and out of the page cache again
cached    the same, but for what this rank's memory keeps: those that came first, while it has room
staged    from a folder of the rank's own, to which they are copied before the first step: its part
          where samples stay with their ranks (local shuffling), else all of them, each read from
          the shared files once and passed on
striped   from such folders of all ranks, each of which has a part and serves it to the others
spatial   as shared, of each sample the part that the rank works on
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oracle.executor.loading import files
from oracle.executor.loading.samples import Box, SampleSet, runs
from oracle.executor.loading.store import Store
from oracle.executor.loading.throttle import Throttle
from oracle.executor.local.parts import deal
from oracle.spec.document import refusal

SPARE = 1.05  # free space that is needed, in sizes of what is staged


@dataclass(frozen=True)
class Place:
    """The number of this rank among those that read, and where it may keep samples."""

    number: int
    readers: int
    folder: Path  # the reader's own; made when it is needed
    everywhere: bool  # any sample may be asked for, not only those of its part

    def part(self, count: int, number: int | None = None) -> range:
        """The samples that a reader keeps."""
        reader = self.number if number is None else number
        return range(*deal(count, self.readers)[reader])

    def owner(self, count: int, sample: int) -> int:
        share, remainder = divmod(count, self.readers)
        in_larger = (share + 1) * remainder
        if sample < in_larger:
            return sample // (share + 1)
        return remainder + (sample - in_larger) // max(share, 1)


class Source:
    """Reads samples from the files themselves."""

    stores = False  # whether it serves others

    def __init__(self, data: SampleSet, throttle: Throttle, place: Place, box: Box | None) -> None:
        self.data, self.throttle, self.place, self.box = data, throttle, place, box

    def prepare(self, report: Callable[[int], None]) -> None:
        """Do what is done once before the first step; `report` is called with each sample."""

    def share(self, report: Callable[[int], None]) -> None:
        """Do what is done once after all ranks have prepared."""

    def fetch(self, sample: int) -> bytes:
        return self.from_files(sample)

    def from_files(self, sample: int) -> bytes:
        located = self.data.samples[sample]
        byte_runs = runs(located, self.box)
        self.throttle.shared(float(sum(count for _, count in byte_runs)))
        content = files.read(located.path, byte_runs)
        files.dropped(located.path)
        return content

    def close(self) -> None:
        """Leave nothing behind."""


class Cached(Source):
    """Reads samples from files, and keeps them in memory while it has room."""

    room = 0.0

    def __init__(self, data: SampleSet, throttle: Throttle, place: Place, box: Box | None) -> None:
        super().__init__(data, throttle, place, box)
        self.known: dict[int, bytes] = {}
        self.bytes_cached = 0
        self._moved = threading.Lock()

    def fetch(self, sample: int) -> bytes:
        content = self.known.get(sample)
        if content is not None:
            return content
        content = self.from_files(sample)
        with self._moved:
            if sample not in self.known and self.bytes_cached + len(content) <= self.room:
                self.known[sample] = content
                self.bytes_cached += len(content)
        return content


class Staged(Source):
    """Reads samples from the rank's own folder, to which they are copied first."""

    @property
    def stores(self) -> bool:  # type: ignore[override]
        return self.place.everywhere and self.place.readers > 1

    store: Store | None = None

    def prepare(self, report: Callable[[int], None]) -> None:
        self.place.folder.mkdir(parents=True)
        part = self.place.part(len(self.data))
        self.enough(range(len(self.data)) if self.place.everywhere else part)
        for sample in part:
            self.keep(sample, self.from_files(sample))
            report(sample)

    def enough(self, samples_kept: Sequence[int]) -> None:
        """Refuse to stage more than the disk has room for."""
        need = SPARE * sum(self.data.samples[k].nbytes for k in samples_kept)
        free = os.statvfs(self.place.folder)
        have = free.f_bavail * free.f_frsize
        if need > have:
            problem = f"staging takes {need:.3g} bytes, and {have:.3g} are free"
            raise refusal(str(self.place.folder), problem, "another --stage FOLDER")

    def share(self, report: Callable[[int], None]) -> None:
        if not self.stores:
            return
        assert self.store is not None
        count = len(self.data)
        for step in range(1, self.place.readers):  # at any time each rank asks another one
            owner = (self.place.number + step) % self.place.readers
            for sample in self.place.part(count, owner):
                self.keep(sample, self.store.get(owner, sample))
                report(sample)

    def path(self, sample: int) -> Path:
        return self.place.folder / f"{sample:08d}"

    def keep(self, sample: int, content: bytes) -> None:
        self.throttle.local_write(len(content))
        files.write(self.path(sample), content)

    def fetch(self, sample: int) -> bytes:
        return self.staged_sample(sample)

    def staged_sample(self, sample: int) -> bytes:
        """Read a sample from this rank's own folder."""
        nbytes = self.data.samples[sample].nbytes
        self.throttle.local_read(nbytes)
        content = files.read(str(self.path(sample)), [(0, nbytes)])
        files.dropped(str(self.path(sample)))
        return content

    def sample_for_others(self, sample: int) -> bytes | None:
        """Read a sample for other ranks; its reading is not played a second time."""
        if sample not in self.place.part(len(self.data)):
            return None
        return files.read(str(self.path(sample)), [(0, self.data.samples[sample].nbytes)])

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
        shutil.rmtree(self.place.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # the folders of other ranks may still lie in it
            self.place.folder.parent.rmdir()


class Striped(Staged):
    """Reads samples from the folders of all ranks, each of which stages a part."""

    @property
    def stores(self) -> bool:  # type: ignore[override]
        return self.place.readers > 1

    def enough(self, samples_kept: Sequence[int]) -> None:
        super().enough(self.place.part(len(self.data)))

    def share(self, report: Callable[[int], None]) -> None:
        """Share nothing: samples are asked for when they are needed."""

    def fetch(self, sample: int) -> bytes:
        owner = self.place.owner(len(self.data), sample)
        if owner == self.place.number:
            return self.staged_sample(sample)
        assert self.store is not None
        return self.store.get(owner, sample)

    def sample_for_others(self, sample: int) -> bytes | None:
        in_own_part = sample in self.place.part(len(self.data))
        return self.staged_sample(sample) if in_own_part else None


MODES: dict[str, type[Source]] = {
    "shared": Source, "cached": Cached, "staged": Staged, "striped": Striped, "spatial": Source,
}  # fmt: skip

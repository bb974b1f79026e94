"""A data set: how many samples, how large they are, and in what files they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from oracle.spec.schema import Between, Clash, Count, Ratio
from oracle.spec.units import Bytes, BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a training is evaluated on the way: forward passes over samples of their own."""

    samples: Count
    every: Annotated[float, Between(1e-6, 1e6)] = 1.0  # epochs


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set: how many samples, how large they are, and in what files they lie."""

    name: str
    samples: Count
    source: str
    sample: tuple[Count, ...] = ()  # channels, then extents
    size: Bytes | None = None  # on disk, all of it
    files: Count | None = None
    directories: Count | None = None
    # how a file holds samples: one each; one after another (TFRecord, WebDataset); hdf5 and
    # array, of which a part of a sample can be read alone
    format: Literal["files", "records", "hdf5", "array"] | None = None
    spread: Ratio = 0.0  # of samples' sizes: their standard deviation by their mean
    compression: Annotated[float, Between(1, 1000)] = 1.0  # times smaller, packed for a store
    unpack: BytesPerSecond | None = None  # of one core, bytes that come out
    decode: Seconds | None = None  # of one core, to make a sample of what was read
    title: str = ""
    evaluation: Evaluation | None = None

    def check(self) -> Iterator[Clash]:
        if self.compression > 1 and self.unpack is None:
            what = "packed samples take a core some time, which is not said"
            yield Clash("compression", what, "`unpack`, bytes a second of one core")
        if self.files and self.directories and self.directories > self.files:
            yield Clash("directories", "more directories than files", "count those with files")

"""The samples of a folder: which bytes of which file each is, and which tensor they become.

Arrays as NumPy writes them (`.npy`, of one sample or of many along their first axis, not
compressed) are what they are, and a part of a sample can be read alone. Every other file is one
sample, of whose bytes as many numbers are made as the model takes.
"""

from __future__ import annotations

import ast
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from oracle.executor.loading import files
from oracle.spec.document import refusal

MAGIC, HEADER = b"\x93NUMPY", 1024  # bytes of a header that says dtype and shape
KINDS = ("f", "u", "i", "b")
RUNS = 65_536  # pieces of a sample that are read one by one, at most
Box = Sequence[tuple[int, int]]  # the wanted part of each extent


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: a file, and where in it; dtype and shape where it is an array."""

    path: str
    offset: int
    nbytes: int
    dtype: str = ""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleSet:
    """All samples of a folder, in the order of their names."""

    samples: tuple[Sample, ...]
    files: int

    @property
    def nbytes(self) -> int:
        return sum(sample.nbytes for sample in self.samples)

    def __len__(self) -> int:
        return len(self.samples)


def of_folder(folder: Path) -> SampleSet:
    """The samples in a folder and all below it."""
    if not folder.is_dir():
        raise refusal(str(folder), "there is no such folder", "--data FOLDER, or synthetic", "E100")
    listed = files.listed(folder)
    samples = [sample for path, size in listed for sample in _samples(path, size)]
    return SampleSet(tuple(samples), len(listed))


def _samples(path: str, size: int) -> list[Sample]:
    if not path.endswith(".npy") or size < 16:
        return [Sample(path, 0, size)]
    try:
        dtype, shape, begin = _header(files.read(path, [(0, min(size, HEADER))]))
    except (ValueError, SyntaxError, KeyError, TypeError, OSError, MemoryError, RecursionError):
        return [Sample(path, 0, size)]
    if size - begin != math.prod(shape) * np.dtype(dtype).itemsize or not shape:
        return [Sample(path, 0, size)]
    return [Sample(path, begin, size - begin, dtype, shape)]


def _header(head: bytes) -> tuple[str, tuple[int, ...], int]:
    """(dtype, shape, first byte) in the header of an array's file."""
    if head[:6] != MAGIC:
        raise ValueError("no array")
    wide = 2 if head[6] == 1 else 4
    begin = 8 + wide
    length = int.from_bytes(head[8:begin], "little")
    fields = ast.literal_eval(head[begin : begin + length].decode("latin-1"))
    shape = tuple(int(extent) for extent in fields["shape"])
    dtype = np.dtype(str(fields["descr"]))
    if fields["fortran_order"] or dtype.kind not in KINDS or min(shape, default=0) < 1:
        raise ValueError("no plain numbers, row by row")
    return dtype.str, shape, begin + length


def of_shape(samples_found: SampleSet, shape_wanted: Sequence[int]) -> SampleSet:
    """Split arrays of many samples into samples of the wanted shape.

    Files that are no arrays stay as they are; arrays of another shape are refused.
    """
    shape, samples = tuple(shape_wanted), list[Sample]()
    for sample in samples_found.samples:
        if not sample.dtype or sample.shape == shape:
            samples.append(sample)
        elif sample.shape[1:] == shape:
            size = sample.nbytes // sample.shape[0]
            samples += [Sample(sample.path, sample.offset + k * size, size, sample.dtype, shape)
                        for k in range(sample.shape[0])]  # fmt: skip
        else:
            content = f"{os.path.basename(sample.path)} holds {_by(sample.shape)}"
            hint = "arrays of one sample, or of many along their first axis"
            raise refusal("data", f"{content}, and the model takes {_by(shape)}", hint)
    return SampleSet(tuple(samples), samples_found.files)


def _by(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def runs(sample: Sample, box: Box | None = None) -> list[tuple[int, int]]:
    """Where in its file a sample lies, or the part of it in a box of its last extents."""
    if box is None or not sample.dtype:
        return [(sample.offset, sample.nbytes)]
    item, shape = np.dtype(sample.dtype).itemsize, sample.shape
    spans = [(0, extent) for extent in shape[: len(shape) - len(box)]] + list(box)
    # the last extents that are wanted in full lie in one piece
    inner = len(shape)
    while inner > 0 and spans[inner - 1] == (0, shape[inner - 1]):
        inner -= 1
    if inner == 0:
        return [(sample.offset, sample.nbytes)]
    strides = [item * math.prod(shape[k + 1 :]) for k in range(len(shape))]
    low, high = spans[inner - 1]
    count = (high - low) * strides[inner - 1]
    outer = [range(a, b) for a, b in spans[: inner - 1]]
    if math.prod(len(positions) for positions in outer) > RUNS:
        raise refusal("data", f"a part of a sample lies in more than {RUNS} pieces",
                      "cut the first extents, spatial:4x1")  # fmt: skip
    return [
        (sample.offset + sum(i * s for i, s in zip(place, strides, strict=False)) + low
         * strides[inner - 1], count)
        for place in product(*outer)
    ]  # fmt: skip


def array(sample: Sample, content: bytes, shape: Sequence[int]) -> Any:
    """The numbers of a sample, or of a part of it, in this shape."""
    if sample.dtype:
        return np.frombuffer(content, np.dtype(sample.dtype)).reshape(tuple(shape))
    count = math.prod(shape)
    plain = np.frombuffer(content[:count], np.uint8)
    return np.resize(plain, count).reshape(tuple(shape)) / np.float32(256)


@dataclass(frozen=True, slots=True)
class Made:
    """A data set to make: so many samples of a size, which may vary, or arrays of a shape."""

    samples: int = 256
    size: float = 0.0  # bytes of one sample; 0: arrays
    spread: float = 0.0
    seed: int = 0

    def sizes(self) -> list[int]:
        """Bytes of each sample: lognormal, with the mean and the spread that were asked for."""
        sigma = math.sqrt(math.log1p(self.spread**2))
        dice = random.Random(self.seed)
        drawn = [dice.lognormvariate(-(sigma**2) / 2, sigma) for _ in range(self.samples)]
        mean = sum(drawn) / len(drawn)
        return [max(1, round(self.size * size / mean)) for size in drawn]


def make(folder: Path, spec: Made, shape: Sequence[int] = ()) -> None:
    """Write the files of a data set into a new folder."""
    folder.mkdir(parents=True)
    if spec.size:
        block = random.Random(spec.seed).randbytes(2**16)
        for k, size in enumerate(spec.sizes()):
            content = (block * (size // len(block) + 1))[:size]
            files.write(folder / f"{k:06d}.bin", content)
        return
    dice = np.random.default_rng(spec.seed)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (64 - (len(header) + 11) % 64) + "\n"
    head = MAGIC + b"\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    for k in range(spec.samples):
        content = dice.random(tuple(shape), dtype=np.float32).tobytes()
        files.write(folder / f"{k:06d}.npy", head + content)

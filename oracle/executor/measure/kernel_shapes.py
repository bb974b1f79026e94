"""Shapes of kernels to time on an unknown device: spread by work, drawn by a fixed seed.

The work of a family's kernels runs from what a device does in a moment up to the longest that the
budget allows, in equal ratios; the ratio of extents is drawn. A shape's numbers stand in the order
of `oracle.readers.kernels.SHAPES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

SEED = 20211
TRIES = 400  # draws until one has the work that is asked for
CHANNELS = (1, 3, 8, 16, 32, 64, 128, 256, 512)
VOLUMES = (2, 8, 16, 32, 64, 128)  # channels of three extents
SAMPLE_CHANNELS = 4  # most channels of a network's samples, whose gradient nobody wants
MOST_SAMPLES = {"conv": 256, "conv3d": 64}  # samples in the batch of a device, as plans leave them
NEAR = 1.6  # times more or less work than asked for, at most
COUNTS = {"gemm": 28, "conv": 28, "conv3d": 20, "attention": 20, "stream": 18, "norm": 18,
          "pool": 18}  # fmt: skip
PARTS = {"conv": ("forward", "data", "weight"), "conv3d": ("forward", "data", "weight"),
         "attention": ("forward", "backward"), "norm": ("forward", "backward"),
         "pool": ("forward", "backward")}  # fmt: skip
PASSES = {"norm": (3, 5)}  # passes over the tensor, forward and backward
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One kernel to time."""

    family: str
    part: str
    precision: str
    shape: Shape

    @property
    def key(self) -> str:
        """The key of the kernel's record."""
        numbers = "x".join(map(str, self.shape))
        return " ".join(filter(None, ("kernel", self.family, self.precision, self.part, numbers)))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device can do in the time that there is."""

    rate: float  # FLOP/s of a large product
    bandwidth: float  # B/s of a large copy
    shortest: float  # seconds of the smallest kernel
    longest: float
    tensor_bytes: float  # bytes of all tensors of a kernel


def sweep(limits: Limits, precisions: dict[str, tuple[str, ...]]) -> list[Wanted]:
    """Kernels of all families in turn, so that a sweep cut short has some of each."""
    groups = []
    for family, count in COUNTS.items():
        shapes = list(drawn(family, count, limits))
        for precision in precisions.get(family, ()):
            for part in PARTS.get(family, ("",)):
                groups.append([
                    Wanted(family, part, precision, passed(family, part, shape))
                    for shape in shapes
                    if part != "data" or shape[1] > SAMPLE_CHANNELS
                ])  # fmt: skip
    random = np.random.default_rng(SEED)
    orders = [random.permutation(len(group)).tolist() for group in groups]
    pairs, rounds = list(zip(groups, orders, strict=True)), max(map(len, groups), default=0)
    return [group[order[number]] for number in range(rounds) for group, order in pairs
            if number < len(group)]  # fmt: skip


def drawn(family: str, count: int, limits: Limits) -> Iterator[Shape]:
    """Shapes of a family from the least work to the most."""
    random = np.random.default_rng([SEED, len(family), ord(family[0])])
    draw, work = DRAWS[family]
    streamed = family in ("stream", "norm", "pool")
    pace = limits.bandwidth if streamed else limits.rate
    low, high = pace * limits.shortest, pace * limits.longest * (1 if streamed else 0.5)
    high = min(high, 0.5 * limits.tensor_bytes) if streamed else high
    yielded = set()
    for target in np.geomspace(low, high, count).tolist():
        for _ in range(TRIES):
            shape = draw(random, target)
            ratio = work(shape) / target
            fits = 4 * numbers_held(family, shape) < limits.tensor_bytes
            fits = fits and shape[0] <= MOST_SAMPLES.get(family, shape[0])
            if fits and 1 / NEAR < ratio < NEAR and shape not in yielded:
                yielded.add(shape)
                yield shape
                break


def _gemm(random: np.random.Generator, flop: float) -> Shape:
    side = np.cbrt(flop / 2)
    a, b = random.uniform(-2, 2, 2)
    m, n = side * 2**a, side * 2**b
    k = flop / 2 / (m * n)
    return (*(max(8, 8 * round(extent / 8)) for extent in (m, n, k)), 1)


def _conv(random: np.random.Generator, flop: float) -> Shape:
    side = int(random.choice([1, 1, 3, 3, 3, 5, 7]))
    stride = int(random.choice([1, 1, 2]))
    channels, out = int(random.choice(CHANNELS)), int(7 * 2 ** random.integers(0, 5))
    filters = int(max(channels, 8) * 2.0 ** random.integers(-1, 3))
    batch = max(1, round(flop / (2 * channels * filters * side**2 * out**2)))
    return (batch, channels, filters, 1, out, out, 1, side, side, 1, stride, stride, 1)


def _conv3d(random: np.random.Generator, flop: float) -> Shape:
    side, stride = int(random.choice([1, 3, 3, 3, 5])), int(random.choice([1, 1, 2]))
    channels, out = int(random.choice(VOLUMES)), int(2 ** random.integers(2, 7))
    filters = int(max(channels, 8) * 2.0 ** random.integers(-1, 3))
    batch = max(1, round(flop / (2 * channels * filters * side**3 * out**3)))
    return (batch, channels, filters, *(out,) * 3, *(side,) * 3, *(stride,) * 3, 1)


def _attention(random: np.random.Generator, flop: float) -> Shape:
    heads, width = int(random.choice([4, 8, 12, 16])), int(random.choice([32, 64, 128]))
    length, causal = int(2 ** random.integers(5, 13)), int(random.integers(0, 2))
    batch = max(1, round(flop * (1 + causal) / (4 * heads * length**2 * width)))
    return (batch, heads, heads, length, length, width, causal)


def _stream(random: np.random.Generator, nbytes: float) -> Shape:
    return (8 * max(1, round(nbytes / 8)),)


def _norm(random: np.random.Generator, nbytes: float) -> Shape:
    """Bytes, elements and blocks of a batch norm, read twice and written once."""
    channels, points = int(2 ** random.integers(4, 10)), int(7 * 2 ** random.integers(0, 5)) ** 2
    batch = max(1, round(nbytes / (12 * channels * points)))
    elements = 3 * batch * channels * points
    return (4 * elements, elements, channels)


def _pool(random: np.random.Generator, nbytes: float) -> Shape:
    """Bytes, elements and blocks of a pool of windows of 2 x 2."""
    side, blocks = int(14 * 2 ** random.integers(0, 5)), 0
    blocks = max(1, round(nbytes / (5 * side**2)))
    elements = blocks * (side**2 + side**2 // 4)
    return (4 * elements, elements, blocks)


def passed(family: str, part: str, shape: Shape) -> Shape:
    """The shape of one part of a kernel, with the bytes and elements of that part."""
    if family not in PASSES or part != "backward":
        return shape
    forward, backward = PASSES[family]
    nbytes, elements, blocks = shape
    return nbytes // forward * backward, elements // forward * backward, blocks


def _product(shape: Shape) -> float:
    return 2.0 * prod(shape)


def _convolved(shape: Shape) -> float:
    return 2.0 * prod(shape[:9])


def _attended(shape: Shape) -> float:
    batch, heads, _, queries, keys, width, causal = shape
    return 4.0 * batch * heads * queries * keys * width / (1 + causal)


def _moved(shape: Shape) -> float:
    return float(shape[0])


DRAWS: dict[str, tuple[Callable[[np.random.Generator, float], Shape], Callable[[Shape], float]]] = {
    "gemm": (_gemm, _product), "conv": (_conv, _convolved), "conv3d": (_conv3d, _convolved),
    "attention": (_attention, _attended), "stream": (_stream, _moved), "norm": (_norm, _moved),
    "pool": (_pool, _moved),
}  # fmt: skip


def work(family: str, shape: Shape) -> float:
    """FLOP of a kernel, as `oracle.calibration.kernels.size` counts them; bytes of a stream."""
    return DRAWS[family][1](shape)


def numbers_held(family: str, shape: Shape) -> float:
    """How many numbers all tensors of a kernel hold."""
    if family == "gemm":
        m, n, k, count = shape
        return float(count * (m * k + k * n + m * n))
    if family in ("conv", "conv3d"):
        batch, channels, filters = shape[:3]
        out, window, strides = (prod(shape[first : first + 3]) for first in (3, 6, 9))
        return float(batch * (channels * strides + filters) * out + channels * filters * window)
    if family == "attention":
        batch, heads, _, queries, keys, width, _ = shape
        return float(batch * heads * (8 * queries * width + queries * keys))
    return shape[0] / 4

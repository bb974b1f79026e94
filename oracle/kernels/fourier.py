"""Convolutions by Fourier transforms of tiles: seconds, and bytes of workspace.

    S         = t (t/2 + 1)                complex numbers of a real tile of t×t, t = 16 or 32
    T         = ⌈H' / (t+1-K)⌉ ⌈W' / (t+1-K)⌉          tiles of a plane, for a window of K×K
    workspace = 8 S (C·F + n T (C + F))                all three tensors, transformed, in fp32
    seconds   = transforms, each a pass over a tensor and what it is transformed to
              + S products of complex matrices, four real multiplications for each [mathieu2014]

cuDNN transforms tiles of 16×16 and 32×32 in one kernel each (`fft2d_r2c_16x16`, `fft2d_r2c_32x32`
in profiles of apache/mxnet, issue 14684). A plane that one tile holds is transformed whole. The
products are those of the device's curve of matrix products, in tiles of 32×32, however few samples
there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from oracle.kernels.box import Box
from oracle.kernels.curve import curve, duration
from oracle.kernels.stream import stream
from oracle.models.model import Floats
from oracle.spec.device import Device

TILES = (16, 32)
LEAST = 5  # side of a window: 3×3 ones Winograd's tiles serve as well, without the traffic
COMPLEX = 8.0  # bytes
BLOCK = 32.0  # rows and columns of a product that a kernel computes at least


def fourier(device: Device, box: Box) -> Iterator[tuple[Floats, Floats]]:
    """(seconds, bytes of workspace) by each size of tile; endless where it cannot be used."""
    if not np.any((np.asarray(box.side) >= LEAST) & (np.asarray(box.high) > 0)):
        return
    for tile in TILES:
        may = (box.side >= LEAST) & (box.side < tile) & (box.high > 0)
        may = may & (box.taps == box.side**2) & (box.strides == 1)
        room, tiles = workspace(box, tile)
        yield np.where(may, _seconds(device, box, tile, tiles), np.inf), room


def workspace(box: Box, tile: int) -> tuple[Floats, Floats]:
    """Bytes of what is transformed, and tiles of a plane."""
    made = np.maximum(tile + 1.0 - box.side, 1.0)
    tiles = np.ceil(np.maximum(box.high, 1.0) / made) * np.ceil(np.maximum(box.wide, 1.0) / made)
    each = COMPLEX * numbers(tile)
    pairs = box.inner * box.outer + box.batch * tiles * (box.inner + box.outer)
    return each * box.groups * pairs, tiles


def numbers(tile: int) -> int:
    """Complex numbers that a real tile is transformed to."""
    return tile * (tile // 2 + 1)


def _seconds(device: Device, box: Box, tile: int, tiles: Floats) -> Floats:
    each = COMPLEX * numbers(tile)
    planes = box.batch * box.points
    tensors = (
        (planes * box.inner, box.batch * tiles * box.inner),
        (planes * box.outer, box.batch * tiles * box.outer),
        (box.inner * box.outer * box.taps, box.inner * box.outer),
    )
    seconds = sum(
        (stream(device, box.width * plain + each * there, queued=True) for plain, there in tensors),
        np.zeros(()),
    )
    rows, inner, outer = box.batch * tiles, box.inner, box.outer
    m, n, k = {
        "forward": (rows, outer, inner), "data": (rows, inner, outer),
        "weight": (inner, outer, rows),
    }[box.part]  # fmt: skip
    used = replace(curve(device, "gemm", "fp32"), tile=BLOCK, waves=False)
    moved = each * sum((there for _, there in tensors), np.zeros(()))
    products = duration(used, device, device.peak["fp32"], m, n, k, 4.0 * numbers(tile), moved)
    return np.asarray(seconds + products)

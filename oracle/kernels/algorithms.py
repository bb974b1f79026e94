"""The algorithms of a convolution: what each takes, in seconds and in workspace.

    implicit     the matrix product, its operand gathered as it goes         no workspace
    precomputed  the same with the gathered positions worked out before      4·P·K² bytes or so
    winograd     4×4 tiles transformed in the kernel itself, 2.25 times fewer products of a 3×3
                 window                                                      4²·4 bytes · C·F
    apart        6×6 tiles (`lavin2016`): transform, multiply, transform back, 4 times fewer
                 products                            6²·4 bytes · (C·F + tiles·(C + F))
    direct       one filter a channel, by its bytes                          no workspace

The library takes the fastest that its workspace allows: `fastest` prices it, `chosen` names it.
DeepBench says what cuDNN took forward. Matrix units have the precomputed kernel alone. On vector
units it gathers faster on Pascal, and no faster than the plain one from Volta on; of Winograd's
tiles Pascal's library takes the small ones, later ones the large where there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.kernels.curve import curve, duration, fitted
from oracle.models.model import Flags, Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Curve, Device

TRANSFORM = 6  # points of a Winograd tile along height and along width
SMALL = 4  # of a tile that is transformed in the same kernel
INDEX = 4.0  # bytes of a position that is worked out before


@dataclass(frozen=True, slots=True)
class Box:
    """One part of a convolution, in numbers or arrays; channels and filters of one group."""

    part: str
    batch: Floats
    points: Floats  # of the output
    inner: Floats
    outer: Floats
    taps: Floats  # of the window
    strides: Floats
    groups: Floats
    side: Floats  # of a square window; 0 where it is none
    width: float  # bytes of an element
    most: float = np.inf  # channels that an inner loop may take at least

    @property
    def elements(self) -> Floats:
        """Of input and output."""
        return self.groups * self.batch * self.points * (self.inner * self.strides + self.outer)

    @property
    def weights(self) -> Floats:
        """Elements of all groups' windows."""
        return self.groups * self.inner * self.outer * self.taps

    @property
    def moved(self) -> Floats:
        """Bytes of both tensors and of the weights."""
        return self.width * (self.elements + self.weights)

    @property
    def flop(self) -> Floats:
        """Multiplications and additions."""
        return 2 * self.batch * self.points * self.inner * self.outer * self.taps * self.groups


def product(three: tuple[Numbers, Numbers, Numbers]) -> Floats:
    """The points of a box, as a float array."""
    depth, height, width = three
    return np.asarray(depth, float) * height * width


def shape(used: Curve, box: Box) -> tuple[Floats, Floats, Floats]:
    """m, n, k of the matrix product that this part of a convolution is, of one group."""
    inner, outer, taps, strides = box.inner, box.outer, box.taps, box.strides
    granule = min(used.granule, box.most)
    if box.part == "forward":
        return box.batch * box.points, outer, np.sqrt(inner * inner + granule**2) * taps
    if box.part == "data":
        looped = taps / strides + used.zeros * (1 - 1 / strides)
        if used.strided > 1:  # no kernel of its own for it
            looped = looped * np.where((strides > 1) & (taps > strides), used.strided, 1.0)
        deep = np.sqrt(outer * outer + granule**2)
        return box.batch * box.points * strides, inner, deep * looped
    if box.part == "weight":
        return outer, np.sqrt(inner * inner + granule**2) * taps, box.batch * box.points
    raise ValueError(f"a convolution has the parts forward, data and weight, not {box.part!r}")


def implicit(device: Device, family: str, own: str, box: Box) -> Floats:
    """Seconds as an implicit matrix product, by the family's curve for this part."""
    used = curve(device, family, own, box.part)
    rate = device.peak.get(own, max(device.peak.values()))
    moved = box.moved
    if used.sweeps:
        moved = moved + used.sweeps * box.batch * box.weights * box.width
    return duration(used, device, rate, *shape(used, box), box.groups, moved)


def fastest(device: Device, own: str, box: Box, workspace: float) -> Floats:
    """Seconds of the fastest algorithm for planes that the workspace allows."""
    seconds = implicit(device, "conv", own, box)
    for saved, may, _ in _tiled(device, own, box, workspace):
        seconds = np.where(may, np.minimum(seconds, saved), seconds)
    return seconds


def chosen(
    device: Device, own: str, box: Box, workspace: float = np.inf, *, matrix: bool = False
) -> NDArray[np.str_]:
    """Which algorithm the library takes for planes, by its name above."""
    seconds = implicit(device, "conv", own, box)
    early = device.generation in ("", "pascal")
    room = INDEX * box.points * box.taps <= workspace
    name = np.where(room & (matrix or early), "precomputed", "implicit")
    if matrix:
        return name
    for saved, may, tile in _tiled(device, own, box, workspace):
        large = tile == TRANSFORM and not early
        name = np.where(may & (saved < seconds), "apart" if large else "winograd", name)
        seconds = np.where(may, np.minimum(seconds, saved), seconds)
    return name


def _tiled(
    device: Device, own: str, box: Box, workspace: float
) -> Iterator[tuple[Floats, Flags, int]]:
    """Seconds by Winograd's tiles, the largest first; where they may be used; their side."""
    quick = fitted(device, "winograd", own, box.part)
    if quick is None:
        return
    rate: Any = device.peak[own]
    # a tile makes 4×4 outputs of a 3×3 window, 2×2 of a 5×5
    square = (box.side >= 3) & (box.side <= 5) & (box.taps == box.side**2)
    square = square & (box.strides == 1)
    for tile, room in _tiles(box):
        made = np.maximum(tile + 1 - box.side, 1)
        saving = box.taps * (made / tile) ** 2
        saved = duration(quick, device, rate * saving, *shape(quick, box), box.groups, box.moved)
        yield saved, square & (room <= workspace) & (tile > box.side), tile
        if np.isinf(workspace):  # the largest tiles are the fastest
            break


def _tiles(box: Box) -> Iterator[tuple[int, Floats]]:
    """Winograd's tiles, the largest first: their side, and the bytes of workspace they ask for."""
    channels, filters = box.inner * box.groups, box.outer * box.groups
    made = np.maximum(TRANSFORM + 1 - box.side, 1) ** 2
    tiles = box.batch * box.points / made
    yield TRANSFORM, 4.0 * TRANSFORM**2 * (channels * filters + tiles * (channels + filters))
    if box.part != "weight":
        yield SMALL, 4.0 * SMALL**2 * channels * filters


def direct(device: Device, box: Box) -> Floats:
    """Seconds of one filter a channel: vector units, both tensors read or written once."""
    used = curve(device, "depthwise", "", box.part)
    rate = device.peak.get("fp32", max(device.peak.values()))
    one = np.ones(1)
    return duration(
        used, device, rate, box.batch * box.points, np.maximum(box.outer, one),
        box.taps * np.maximum(box.inner, one), box.groups, box.moved,
    )  # fmt: skip

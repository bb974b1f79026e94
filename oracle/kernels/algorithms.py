"""The algorithms of a convolution: what each takes, in seconds and in workspace.

    implicit     the matrix product, its operand gathered as it goes         no workspace
    precomputed  the same with the gathered positions worked out before      4·P·K² bytes or so
    winograd     4×4 tiles transformed in the kernel itself, 2.25 times fewer products of a 3×3
                 window                                                      4²·4 bytes · C·F
    apart        6×6 tiles (`lavin2016`): transform, multiply, transform back, 4 times fewer
                 products                            6²·4 bytes · (C·F + tiles·(C + F))
    fourier      tiles of 16×16 or 32×32 in frequencies, of windows from 5×5 on (`fourier`)
    direct       one filter a channel, by its bytes                          no workspace

A product of what was gathered before, as a matrix of its own, takes n·P·C·K²·δ bytes and more time
than the implicit one: it is never taken. The library takes the fastest that its workspace allows.
DeepBench says what cuDNN took forward. Matrix units have the precomputed kernel alone. On vector
units it gathers faster on Pascal, and no faster than the plain one from Volta on; of Winograd's
tiles Pascal's library takes the small ones, later ones the large where there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.kernels.box import Box, shape
from oracle.kernels.curve import curve, duration, fitted
from oracle.kernels.divisions import Offer, named
from oracle.kernels.fourier import fourier
from oracle.models.model import Floats
from oracle.spec.device import Device

TRANSFORM = 6  # points of a Winograd tile along height and along width
SMALL = 4  # of a tile that is transformed in the same kernel
INDEX = 4.0  # bytes of a position that is worked out before


def implicit(device: Device, family: str, own: str, box: Box) -> Floats:
    """Seconds as an implicit matrix product, by the family's curve for this part."""
    used = curve(device, family, own, box.part)
    rate = device.peak.get(own, max(device.peak.values()))
    moved = box.moved
    if used.sweeps:
        moved = moved + used.sweeps * box.batch * box.weights * box.width
    return duration(used, device, rate, *shape(used, box), box.groups, moved)


def offers(
    device: Device, own: str, box: Box, *, matrix: bool = False, limited: bool = True,
    every: bool = False,
) -> Iterator[Offer]:  # fmt: skip
    """What the library takes for planes; not `limited`, what a larger workspace beats is left out.

    Transforms to frequencies are among them where `every` algorithm is timed: of 5×5 windows none
    of DeepBench's on Pascal is run so, and of all 376 convolutions five.

    Of equals the first is taken. The curve of Winograd's tiles was fitted as if they were large:
    Pascal's small ones for windows of 3×3, forward and for the data, are as fast as it says.
    """
    seconds = implicit(device, "conv", own, box)
    cuda = device.platform == "cuda"
    early = not cuda or device.generation == "pascal"  # its library has but small tiles forward
    if cuda and (matrix or early):  # others have no such library
        yield Offer("precomputed", seconds, INDEX * box.points * box.taps)
    yield Offer("implicit", seconds, np.zeros(()))
    quick = None if matrix else fitted(device, "winograd", own, box.part)
    if quick is None:
        return
    # a tile makes 4×4 outputs of a 3×3 window, 2×2 of a 5×5
    square = (box.side >= 3) & (box.side <= 5) & (box.taps == box.side**2)
    square = square & (box.strides == 1)
    for tile, room in _tiles(box):
        made = np.maximum(tile + 1 - box.side, 1)
        saving = box.taps * (made / tile) ** 2
        rate: Any = device.peak[own]
        saved = duration(quick, device, rate * saving, *shape(quick, box), box.groups, box.moved)
        may = square & (tile > box.side)
        if tile == TRANSFORM and early and box.part != "weight":
            fused = may & (box.side == 3)
            yield Offer("winograd", np.where(fused, saved, np.inf), _small(box))
        yield Offer(
            "apart" if tile == TRANSFORM else "winograd", np.where(may, saved, np.inf), room
        )
        if not limited:  # the largest tiles are the fastest
            break
    if every and own == "fp32" and cuda:
        for seconds, room in fourier(device, box):
            yield Offer("fourier", seconds, room)


def chosen(
    device: Device, own: str, box: Box, workspace: float = np.inf, *, matrix: bool = False
) -> NDArray[np.str_]:
    """Which algorithm the library takes for planes, by its name above."""
    return named([*offers(device, own, box, matrix=matrix)], workspace)


def _tiles(box: Box) -> Iterator[tuple[int, Floats]]:
    """Winograd's tiles, the largest first: their side, and the bytes of workspace they ask for."""
    channels, filters = box.inner * box.groups, box.outer * box.groups
    made = np.maximum(TRANSFORM + 1 - box.side, 1) ** 2
    tiles = box.batch * box.points / made
    yield TRANSFORM, 4.0 * TRANSFORM**2 * (channels * filters + tiles * (channels + filters))
    if box.part != "weight":
        yield SMALL, _small(box)


def _small(box: Box) -> Floats:
    """Bytes of windows that are transformed for the small tiles."""
    return 4.0 * SMALL**2 * box.inner * box.outer * box.groups**2


def direct(device: Device, box: Box) -> Floats:
    """Seconds of one filter a channel: vector units, both tensors read or written once."""
    used = curve(device, "depthwise", "", box.part)
    rate = device.peak.get("fp32", max(device.peak.values()))
    one = np.ones(1)
    return duration(
        used, device, rate, box.batch * box.points, np.maximum(box.outer, one),
        box.taps * np.maximum(box.inner, one), box.groups, box.moved,
    )  # fmt: skip

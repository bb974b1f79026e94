"""Convolutions of one, two or three dimensions, forward and both gradients.

As an implicit matrix product (`chetlur2014`), with P output points, F filters, C channels
and a window of K points:

    forward  m = B·P          n = F/g   k = C/g·K
    data     m = B·P·strides  n = C/g   k = F/g·K/strides      the same FLOP, by the input's points
    weight   m = F/g          n = C/g·K k = B·P

and, where it may be, by Winograd's 6×6 tiles (`lavin2016`: 4 times fewer products of a 3×3
window) or, one filter a channel, directly; the library picks the fastest of its algorithms,
hence the minimum. Tiles are transformed in a workspace, which a framework may limit:

    apart    6²·4 bytes · (C·F + tiles·(C + F))      transform, multiply, transform back
    at once  4²·4 bytes · C·F                        4×4 tiles, 2.25 times fewer products; no part
                                                     of the weight's gradient
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from oracle.kernels.curve import (
    OPERAND_BYTES,
    curve,
    duration,
    fitted,
    powered,
    precision_on,
)
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Curve, Device

Three: TypeAlias = tuple[Numbers, Numbers, Numbers]  # depth, height, width; 1 where there is none
TRANSFORM = 6  # points of a Winograd tile along height and along width
SMALL = 4  # of a tile that is transformed in the same kernel


def conv(
    device: Device,
    precision: str,
    batch: Numbers,
    channels: Numbers,
    filters: Numbers,
    extents_out: Three,
    window: Three,
    stride: Three = (1, 1, 1),
    groups: Numbers = 1,
    part: str = "forward",
    *,
    workspace: float = np.inf,
    queued: bool = False,
) -> Floats:
    """Seconds of a convolution's forward pass, data gradient or weight gradient."""
    own = precision_on(device, precision)
    rate, batch = device.peak[own], np.asarray(batch, float)
    points, taps, strides = (product(three) for three in (extents_out, window, stride))
    inner, outer = np.asarray(channels, float) / groups, np.asarray(filters, float) / groups
    moved = OPERAND_BYTES[precision] * groups * (
        batch * (inner * points * strides + outer * points) + inner * outer * taps
    )  # fmt: skip
    used = curve(device, "conv", own, part)
    form = (part, batch, points, inner, outer, taps, strides)
    seconds = duration(used, device, rate, *shape(used, *form), groups, moved)
    quick = fitted(device, "winograd", own, part)
    if quick is not None:
        side = np.asarray(window[2])
        square = (side >= 3) & (side <= 5) & (window[1] == side) & (taps == side**2)
        # a tile makes 4×4 outputs of a 3×3 window, 2×2 of a 5×5
        square = square & (strides == 1)
        for tile, room in _tiles(part, batch, points, inner * groups, outer * groups, side):
            made = np.maximum(tile + 1 - side, 1)
            saving = taps * (made / tile) ** 2
            saved = duration(quick, device, rate * saving, *shape(quick, *form), groups, moved)
            may = square & (room <= workspace) & (tile > side)
            seconds = np.where(may, np.minimum(seconds, saved), seconds)
            if np.isinf(workspace):  # the largest tiles are the fastest
                break
    if np.any(np.asarray(groups) > 1):
        plain = curve(device, "direct", "fp32", part)
        vector = device.peak.get("fp32", rate)
        by_hand = duration(plain, device, vector, *shape(plain, *form), groups, moved)
        seconds = np.where(np.asarray(groups) > 1, np.minimum(seconds, by_hand), seconds)
    flop = 2 * batch * points * inner * outer * taps * groups
    return powered(device, own, seconds, flop, queued)


def _tiles(
    part: str, batch: Floats, points: Floats, channels: Floats, filters: Floats, side: Floats
) -> Iterator[tuple[int, Floats]]:
    """Winograd's tiles, the largest first: their side, and the bytes of workspace they ask for."""
    made = np.maximum(TRANSFORM + 1 - side, 1) ** 2
    tiles = batch * points / made
    yield TRANSFORM, 4.0 * TRANSFORM**2 * (channels * filters + tiles * (channels + filters))
    if part != "weight":
        yield SMALL, 4.0 * SMALL**2 * channels * filters


def shape(
    used: Curve, part: str, batch: Floats, points: Floats, inner: Floats, outer: Floats,
    taps: Floats, strides: Floats,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """m, n, k of the matrix product that this part of a convolution is, of one group."""
    if part == "forward":
        return batch * points, outer, np.sqrt(inner * inner + used.granule**2) * taps
    if part == "data":
        looped = taps / strides + used.zeros * (1 - 1 / strides)
        deep = np.sqrt(outer * outer + used.granule**2)
        return batch * points * strides, inner, deep * looped
    if part == "weight":
        return outer, np.sqrt(inner * inner + used.granule**2) * taps, batch * points
    raise ValueError(f"a convolution has the parts forward, data and weight, not {part!r}")


def product(three: Three) -> Floats:
    """The points of a box, as a float array."""
    depth, height, width = three
    return np.asarray(depth, float) * height * width

"""Convolutions of one, two or three dimensions, forward and both gradients.

As an implicit matrix product (`chetlur2014`), with P output points, F filters, C channels
and a window of K points:

    forward  m = B·P          n = F/g   k = C/g·K
    data     m = B·P·strides  n = C/g   k = F/g·K/strides      the same FLOP, by the input's points
    weight   m = F/g          n = C/g·K k = B·P

and, where it may be, by Winograd's F(2×2, 3×3) (`lavin2016`: 2.25 times fewer products) or, one
filter a channel, directly; the library picks the fastest of its algorithms, hence the minimum.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from oracle.compute.curve import WIDTH, curve, duration, fitted, launched, precision_on
from oracle.specs import Device

Number: TypeAlias = "np.ndarray | float"
Three: TypeAlias = "tuple[Number, Number, Number]"  # depth, height, width; 1 where there is none
WINOGRAD = 2.25  # products saved by F(2×2, 3×3)


def conv(
    device: Device,
    precision: str,
    batch: Number,
    channels: Number,
    filters: Number,
    extents_out: Three,
    window: Three,
    stride: Three = (1, 1, 1),
    groups: Number = 1,
    part: str = "forward",
    *,
    queued: bool = False,
) -> np.ndarray:
    """Seconds of a convolution's forward pass, data gradient or weight gradient."""
    own = precision_on(device, precision)
    rate, batch = device.peak[own], np.asarray(batch, float)
    points, taps, strides = (product(three) for three in (extents_out, window, stride))
    inner, outer = np.asarray(channels, float) / groups, np.asarray(filters, float) / groups
    # a stride beyond the window skips input that is never read
    seen = points * np.minimum(strides, taps)
    m, n, k = shape(part, batch, points, inner, outer, taps, np.minimum(strides, taps))
    moved = WIDTH[precision] * groups * (
        batch * (inner * seen + outer * points) + inner * outer * taps
    )  # fmt: skip
    used = curve(device, "conv", own, part)
    seconds = duration(used, device, rate, m, n, k, groups, moved)
    quick = fitted(device, "winograd", own, part)
    if quick is not None:
        square = (window[0] == np.asarray(1)) & (window[1] == np.asarray(3))
        square = square & (window[2] == np.asarray(3)) & (strides == 1)
        saved = duration(quick, device, rate * WINOGRAD, m, n, k, groups, moved)
        seconds = np.where(square, np.minimum(seconds, saved), seconds)
    if np.any(np.asarray(groups) > 1):
        plain = curve(device, "direct", "fp32", part)
        vector = device.peak.get("fp32", rate)
        by_hand = duration(plain, device, vector, m, n, k, groups, moved)
        seconds = np.where(np.asarray(groups) > 1, np.minimum(seconds, by_hand), seconds)
    return launched(device, seconds, queued)


def shape(
    part: str, batch: Number, points: Number, inner: Number, outer: Number, taps: Number,
    strides: Number,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """m, n, k of the matrix product that this part of a convolution is, of one group."""
    if part == "forward":
        return batch * points, outer, inner * taps
    if part == "data":
        return batch * points * strides, inner, outer * taps / strides
    if part == "weight":
        return outer, inner * taps, batch * points
    raise ValueError(f"a convolution has the parts forward, data and weight, not {part!r}")


def product(three: Three) -> np.ndarray:
    """The points of a box, as a float array."""
    depth, height, width = three
    return np.asarray(depth, float) * height * width

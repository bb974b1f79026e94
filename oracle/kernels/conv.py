"""Convolutions of planes and volumes, dense, grouped and by channel: all three parts of each.

As an implicit matrix product (`chetlur2014`), with P output points, F filters, C channels
and a window of K points:

    forward  m = B·P          n = F/g   k = C/g·K
    data     m = B·P·strides  n = C/g   k = F/g·K/strides      the same FLOP, by the input's points
    weight   m = F/g          n = C/g·K k = B·P

What else a library has for a family, it takes where that is faster (`algorithms`):

    conv       planes: Winograd's tiles (`lavin2016`)
    conv3d     volumes, without Winograd, on matrix units
               or on vector units
    grouped    some channels to a group: as many small products; with channels last, on matrix
               units only where a group has 4, 8, 16 or 32 of them, else as depthwise ones are
    depthwise  one filter a channel: every element is read once and used for K products, so that
               memory sets the pace of all three parts

A library's matrix units want channels last, 16 bytes of them at a time: 8 in fp16, 4 in TF32
(NVIDIA, Convolutional Layers User's Guide). Curves that were fitted to tensors with channels first
take more of them at least. Where a framework keeps them first, tensors are turned
before and after: a pass over |x| + |y|, read and written, for each part.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from oracle.kernels.algorithms import Box, direct, fastest, implicit, product
from oracle.kernels.curve import OPERAND_BYTES, powered, precision_on
from oracle.kernels.stream import stream
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Device

Three: TypeAlias = tuple[Numbers, Numbers, Numbers]  # depth, height, width; 1 where there is none
MATRIX = ("tf32", "fp16", "bf16", "fp8")
ALIGNED = 16.0  # bytes of channels that matrix units take at a time, where channels stand last
# channels of a group that matrix units have kernels for where channels stand last: of ResNeXt's
# layers, only those of 64 to a group ran cuDNN's conv2d_grouped_direct_kernel, which is the kernel
# of depthwise ones too (pytorch/pytorch, issues 34977, 70954)
GROUPED = (4.0, 8.0, 16.0, 32.0)


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
    family: str | None = None,
    layout: str = "",
    workspace: float = np.inf,
    strided: str = "matrix",
    queued: bool = False,
) -> Floats:
    """Seconds of a convolution's forward pass, data gradient or weight gradient.

    `layout` is the framework's, where the channels stand: "first", "last", or "turned": last, and
    first for the library, with windows of more than one point. `strided` is the library's units for
    data gradients of volumes, channels first, whose windows are wider than their strides.
    """
    own = precision_on(device, precision)
    points, taps, strides = (product(three) for three in (extents_out, window, stride))
    inner, outer = np.asarray(channels, float) / groups, np.asarray(filters, float) / groups
    side = np.where(np.asarray(window[1]) == window[2], window[2], 0)
    width = OPERAND_BYTES[precision]
    most = ALIGNED / width if layout == "last" and matrix(device, own) else np.inf
    box = Box(part, np.asarray(batch, float), points, inner, outer, taps, strides,
              np.asarray(groups, float), side, width, most)  # fmt: skip
    if family is None:
        family = family_of(channels, filters, groups)
    own_turns: Numbers = 0.0
    if layout == "turned":
        layout, own_turns = "first", np.where(taps > 1, passes(device, box), 0.0)
    if family == "depthwise":
        seconds = direct(device, box)
    elif family == "grouped" and layout == "last" and matrix(device, own):
        quick = np.isin(inner, GROUPED) & (inner == outer)
        seconds = np.where(quick, aligned(device, family, own, box, layout), direct(device, box))
    elif family == "conv" and not (layout == "first" and matrix(device, own)):
        seconds = fastest(device, own, box, workspace)
    else:
        seconds = aligned(device, family, own, box, layout)
    late = strided == "vector" and (family, layout, part) == ("conv3d", "first", "data")
    if late and "fp32" in device.peak:
        vector = implicit(device, family, "fp32", box)
        seconds = np.where((strides > 1) & (taps > strides), vector, seconds)
    return powered(device, own, seconds + own_turns, box.flop, queued)


def family_of(channels: Numbers, filters: Numbers, groups: Numbers, rank: int = 2) -> str:
    """Which kernels run it: by its groups, and by how many extents it has."""
    if np.all(np.asarray(groups) <= 1):
        return "conv3d" if rank > 2 else "conv"
    return "depthwise" if np.all(np.asarray(channels) <= groups) else "grouped"


def aligned(device: Device, family: str, own: str, box: Box, layout: str) -> Floats:
    """Seconds of an implicit product on matrix units, or on vector units where those are faster.

    With channels first a library takes vector units for few channels: nothing is turned there.
    """
    fast = implicit(device, family, own, box) + turned(device, own, box, layout)
    if layout != "first" or not matrix(device, own) or "fp32" not in device.peak:
        return fast
    return np.minimum(fast, implicit(device, family, "fp32", box))


def matrix(device: Device, own: str) -> bool:
    """Whether numbers of this precision are multiplied by matrix units."""
    return own in MATRIX and device.generation not in ("", "pascal")


def turned(device: Device, own: str, box: Box, layout: str) -> Floats:
    """Seconds to bring both tensors of a part into the layout that matrix units want.

    Volta's kernels for planes take channels first as they are: DeepBench's timings have no such
    pass in them.
    """
    return passes(device, box) if layout == "first" and matrix(device, own) else np.zeros(1)


def passes(device: Device, box: Box) -> Floats:
    """Seconds to read and write both tensors of a part."""
    return stream(device, 2 * box.width * box.elements, queued=True)

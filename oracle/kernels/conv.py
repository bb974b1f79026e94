"""Convolutions of planes and volumes, dense, grouped and by channel: all three parts of each.

As an implicit matrix product (`chetlur2014`), with P output points, F filters, C channels
and a window of K points:

    forward  m = B·P          n = F/g   k = C/g·K
    data     m = B·P·strides  n = C/g   k = F/g·K/strides      the same FLOP, by the input's points
    weight   m = F/g          n = C/g·K k = B·P

What else a library has for a family, it takes where that is faster (`algorithms`):

    conv       planes: Winograd's tiles (`lavin2016`), Fourier transforms
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

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from oracle.kernels.algorithms import direct, implicit, offers
from oracle.kernels.box import Box, product
from oracle.kernels.curve import OPERAND_BYTES, powered, precision_on
from oracle.kernels.divisions import Menu, Offer
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
    workspace: Numbers = np.inf,
    **more: Any,
) -> Floats:
    """Seconds of a convolution's forward pass, data gradient or weight gradient.

    `more` is as `menu` has it.
    """
    shapes = batch, channels, filters, extents_out, window, stride, groups, part
    limited = bool(np.any(np.isfinite(workspace)))
    return menu(device, precision, *shapes, limited=limited, **more).best(workspace).seconds


def menu(
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
    strided: str = "matrix",
    queued: bool = False,
    limited: bool = True,
    micro: bool = False,
    every: bool = False,
) -> Menu:
    """What a library offers for one part of a convolution, and with `micro` for pieces of it.

    `layout` is the framework's, where the channels stand: "first", "last", or "turned": last, and
    first for the library, with windows of more than one point. `strided` is the library's units for
    data gradients of volumes, channels first, whose windows are wider than their strides. With
    `every`, algorithms too that a library takes only where all of them are timed.
    """
    own = precision_on(device, precision)
    points, taps, strides = (product(three) for three in (extents_out, window, stride))
    inner, outer = np.asarray(channels, float) / groups, np.asarray(filters, float) / groups
    side = np.where(np.asarray(window[1]) == window[2], window[2], 0)
    width = OPERAND_BYTES[precision]
    most = ALIGNED / width if layout == "last" and matrix(device, own) else np.inf
    family = family_of(channels, filters, groups) if family is None else family
    high, wide = extents_out[1:] if family == "conv" else (0.0, 0.0)
    whole = Box(part, np.asarray(batch, float), points, inner, outer, taps, strides,
                np.asarray(groups, float), side, width, most, high, wide)  # fmt: skip
    turns, layout = layout == "turned", "first" if layout == "turned" else layout

    def offered(samples: Floats) -> list[Offer]:
        box = replace(whole, batch=samples)
        own_turns = np.where(taps > 1, passes(device, box), 0.0) if turns else 0.0
        return [
            Offer(name, powered(device, own, seconds + own_turns, box.flop, queued), room)
            for name, seconds, room in _kernels(
                device, own, family, layout, strided, box, limited, every
            )
        ]

    return Menu(whole.batch, offered, micro)


def _kernels(
    device: Device, own: str, family: str, layout: str, strided: str, box: Box, limited: bool,
    every: bool,
) -> Iterator[tuple[str, Floats, Floats]]:  # fmt: skip
    """Name, seconds and bytes of workspace of each kernel that a family has."""
    none, units = np.zeros(()), matrix(device, own)
    if family == "depthwise":
        yield "direct", direct(device, box), none
    elif family == "grouped" and layout == "last" and units:
        quick = np.isin(box.inner, GROUPED) & (box.inner == box.outer)
        dense = implicit(device, family, own, box)
        yield "implicit", np.where(quick, dense, direct(device, box)), none
    elif family == "conv" and not (layout == "first" and units):
        vector = own == "tf32" and "fp32" in device.peak  # units that may do the same
        for one in (own, "fp32")[: 1 + vector]:
            known = matrix(device, one)
            for each in offers(device, one, box, matrix=known, limited=limited, every=every):
                yield each.name, each.seconds, each.room
    else:
        yield from _aligned(device, own, family, layout, strided, box)


def _aligned(
    device: Device, own: str, family: str, layout: str, strided: str, box: Box
) -> Iterator[tuple[str, Floats, Floats]]:
    """An implicit product on matrix units, or on vector units where those are faster.

    With channels first matrix units take both tensors turned, in a workspace; a library takes
    vector units for few channels, and where it has no room: nothing is turned there.
    """
    fast, none = implicit(device, family, own, box), np.zeros(())
    if layout != "first" or not matrix(device, own):
        yield "implicit", fast, none
        return
    fast = fast + passes(device, box)
    if "fp32" not in device.peak:
        yield "turned", fast, none
        return
    vector = implicit(device, family, "fp32", box)
    if strided == "vector" and (family, box.part) == ("conv3d", "data"):
        fast = np.where((box.strides > 1) & (box.taps > box.strides), np.inf, fast)
    yield "turned", fast, box.width * box.elements
    yield "implicit", vector, none


def family_of(channels: Numbers, filters: Numbers, groups: Numbers, rank: int = 2) -> str:
    """Which kernels run it: by its groups, and by how many extents it has."""
    if np.all(np.asarray(groups) <= 1):
        return "conv3d" if rank > 2 else "conv"
    return "depthwise" if np.all(np.asarray(channels) <= groups) else "grouped"


def matrix(device: Device, own: str) -> bool:
    """Whether numbers of this precision are multiplied by matrix units."""
    return own in MATRIX and device.platform == "cuda" and device.generation != "pascal"


def passes(device: Device, box: Box) -> Floats:
    """Seconds to read and write both tensors of a part."""
    return stream(device, 2 * box.width * box.elements, queued=True)

"""Prices kernels as they were timed, with casts and copies, and rejects impossible ones.

Servers of models time a layer's product together with the cast of what goes in, and the products
of experts together with what deals tokens to them and adds their results up. What passes through
memory beside a product is counted at the rate of copies, so that a curve is of the product alone.

    linear    cast of A + product
    experts   cast, dealing of tokens, first products, gate, second products, weighted sum

A kernel that is over before its FLOP fit into the device's peak did less than its row says: a
window of keys, fewer experts. Where that is so of more than one in a hundred of a series, such as
attention of one width, the others of the series are as doubtful, and none is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from oracle.calibration.fit import Floats
from oracle.kernels import attention, gemm, stream
from oracle.kernels.counted import counted
from oracle.kernels.curve import OPERAND_BYTES
from oracle.readers.kernels import SHAPES, Kernel
from oracle.spec.device import Device
from oracle.spec.precision import NARROW

WIDE = 2.0  # bytes of an element between kernels
# of one that is cast: read in 16 bits, written narrow; a tensor's one scale is known beforehand
CAST = {kind: WIDE + OPERAND_BYTES[kind] for kind in NARROW}
FASTER = 1.05  # factor by which a clock may be faster than the datasheet's
SERIES = 0.01  # share of a series that may be impossible before none of it is believed
UNCACHED = 1e9  # bytes that no cache holds
JUDGED = ("gemm", "linear", "experts", "attention", "latent")


def linear(
    device: Device, precision: str, m: Floats, n: Floats, k: Floats, count: Floats
) -> Floats:
    """Seconds of a layer's product whose input is cast first."""
    cast = stream(device, CAST[precision] * m * k * count, queued=True)
    return np.asarray(cast + gemm(device, precision, m, n, k, count, written=WIDE, queued=True))


def experts(
    device: Device, precision: str, tokens: Floats, hidden: Floats, ffn: Floats, visits: Floats,
    number: Floats, devices: Floats, gated: Floats,
) -> Floats:  # fmt: skip
    """Seconds of a layer of experts on one of the devices that they are dealt to."""
    experts_here, dealt = number / devices, tokens * visits / devices
    width, up = OPERAND_BYTES[precision], ffn * (1 + gated)
    products = sum(
        gemm(device, precision, dealt / experts_here, *sides, experts_here, family="experts",
             written=WIDE, queued=True)
        for sides in ((up, hidden), (hidden, ffn))
    )  # fmt: skip
    copied = (
        tokens * hidden * (CAST.get(precision, 0.0) + WIDE)
        + dealt * (hidden * (2 * width + WIDE) + WIDE * up + width * ffn)
    )  # fmt: skip
    return np.asarray(products + stream(device, copied, queued=True))


def scan(
    device: Device, precision: str, batch: Floats, tokens: Floats, heads: Floats, width: Floats,
    state: Floats, groups: Floats, chunk: Floats,
) -> Floats:  # fmt: skip
    """Seconds of a Mamba-2 scan: FLOP and bytes as `models.layers.scan` counts them."""
    inner, size = heads * width, np.minimum(chunk, tokens)
    moved = WIDE * batch * tokens * inner * (3 + 8 * state / size)
    flop = scanned(batch, tokens, heads, width, state, groups, chunk)
    streamed = stream(device, moved, queued=True)
    return np.asarray(counted(device, "scan", precision, "forward", flop, streamed))


def scanned(
    batch: Floats, tokens: Floats, heads: Floats, width: Floats, state: Floats, groups: Floats,
    chunk: Floats,
) -> Floats:  # fmt: skip
    """FLOP of a Mamba-2 scan."""
    inner, size = heads * width, np.minimum(chunk, tokens)
    within = size * state * groups + size * inner / 2
    return np.asarray(2 * batch * tokens * (within + 2 * state * inner))


def attended(device: Device, family: str, precision: str, part: str, shapes: Floats) -> Floats:
    """Seconds of attention, masked or not."""
    batch, heads, kv_heads, queries, keys, width, causal = shapes
    masked, full = (
        np.asarray(attention(
            device, precision, batch, heads, kv_heads, queries, keys, width, mask, part,
            family=family, queued=True,
        ))
        for mask in (True, False)
    )  # fmt: skip
    return np.where(causal > 0, masked, full)


def believable(
    samples: Iterable[Kernel], device: Device, size: Callable[[str, Floats], Floats]
) -> tuple[list[Kernel], list[str]]:
    """The kernels that the device can have run, and the refused ones in words."""
    series: dict[tuple[str, ...], list[Kernel]] = {}
    for kernel in samples:
        width = kernel.shape[SHAPES[kernel.family].index("width")] if _attends(kernel) else 0.0
        name = f"heads of {width:g}" if width else ""
        series.setdefault((kernel.family, kernel.precision, kernel.part, name), []).append(kernel)
    believed: list[Kernel] = []
    refused: list[str] = []
    for key, kernels in series.items():
        possible = _possible(kernels, device, size)
        wrong = len(kernels) - sum(possible)
        all_of_it = wrong > SERIES * len(kernels) and _attends(kernels[0])
        believed += [k for k, can in zip(kernels, possible, strict=True) if can and not all_of_it]
        if wrong:
            title, outcome = " ".join(filter(None, key)), "none" if all_of_it else "the others"
            refused.append(f"{title}: {wrong} of {len(kernels)} kernels are faster than "
                           f"{device.name} can be; {outcome} taken")  # fmt: skip
    return believed, refused


def _attends(kernel: Kernel) -> bool:
    return kernel.family in ("attention", "latent")


def _possible(
    kernels: Sequence[Kernel], device: Device, size: Callable[[str, Floats], Floats]
) -> list[bool]:
    """Whether the work of each kernel can be done in its seconds."""
    family, precision = kernels[0].family, kernels[0].precision
    if family not in JUDGED or precision not in device.peak:
        return [True] * len(kernels)
    shapes = np.array([kernel.shape for kernel in kernels]).T
    seconds = np.array([kernel.seconds for kernel in kernels]) * FASTER
    possible = size(family, shapes) <= device.peak[precision] * seconds
    if family == "experts":
        _, hidden, ffn, _, number, devices, gated = shapes
        weight_bytes = OPERAND_BYTES[precision] * number / devices * hidden * ffn * (2 + gated)
        possible &= (weight_bytes < UNCACHED) | (weight_bytes <= device.memory_bandwidth * seconds)
    return [bool(can) for can in possible]

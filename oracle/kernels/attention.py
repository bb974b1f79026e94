"""Attention, as one fused (flash) kernel or as products and softmax passes through memory."""

from __future__ import annotations

import numpy as np

from oracle.kernels.curve import OPERAND_BYTES, curve, duration, powered, precision_on
from oracle.kernels.gemm import gemm
from oracle.kernels.stream import stream
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Device

# FlashAttention-2 reaches up to 73 % of an A100's peak forward and 63 % backward (dao2023, §4)
BACKWARD = 63 / 73
# of the peak, forward and backward, by version of FlashAttention [dao2023, §1 and §4]; where matrix
# units came after it, with fp8, it reaches less: 35 % forward on an H100 [shah2024, §1]
REACHES = {1: (0.50, 0.35), 2: (0.73, 0.63)}
SINCE = 0.35 / 0.73
NEWER = ("hopper", "blackwell")


def attention(
    device: Device,
    precision: str,
    batch: Numbers,
    heads: Numbers,
    kv_heads: Numbers,
    queries: Numbers,
    keys: Numbers,
    width: Numbers,
    causal: bool = True,
    part: str = "forward",
    flash: bool = True,
    dropout: bool = False,
    *,
    version: int = 0,
    queued: bool = False,
) -> Floats:
    """Seconds of softmax(QKᵀ)V of every head, or of its backward pass.

    Flash (`dao2023`): 2 products forward and 5 backward, of the pairs that the mask leaves; only
    Q, K, V, O pass through memory; no faster than its `version` is, where that is said. Else the
    scores do: 2 or 4 batched products, then scale, mask and softmax in one pass, dropout in
    another.
    """
    batch, queries, keys, width = (
        np.asarray(each, float) for each in (batch, queries, keys, width)
    )
    if not flash:
        return unfused(
            device, precision, batch * heads, queries, keys, width, part, dropout, queued
        )
    own = precision_on(device, precision)
    masked = np.minimum(queries, keys) / 2 if causal else 0.0
    seen = keys - masked * np.minimum(queries, keys) / queries  # keys that a query looks at
    products, passes = (2, 1) if part == "forward" else (5, 2)
    once = OPERAND_BYTES[precision] * batch * width * 2 * (heads * queries + kv_heads * keys)
    fitted = curve(device, "attention", own, part)
    rate = device.peak[own] * (1 if fitted.part or part == "forward" else BACKWARD)
    # a kernel works down the queries of one head; the width is the inner loop of its products
    seconds = duration(
        fitted, device, rate, queries, width, seen,
        products * batch * heads, passes * once,
    )  # fmt: skip
    flop = 2 * products * batch * heads * queries * seen * width
    if version:
        reach = REACHES[version][part != "forward"] * (SINCE if device.generation in NEWER else 1.0)
        seconds = np.maximum(seconds, fitted.start + flop / (device.peak[own] * reach))
    return powered(device, own, seconds, flop, queued)


def unfused(
    device: Device, precision: str, count: Floats, queries: Floats, keys: Floats, width: Floats,
    part: str, dropout: bool, queued: bool,
) -> Floats:  # fmt: skip
    """The same through memory: products, softmax (2 passes, 3 backward), dropout and its mask."""
    scores = count * queries * keys
    size = OPERAND_BYTES[precision]
    into = batched(device, precision, queries, keys, width, count, width, queued)  # QKᵀ, dP
    out = batched(device, precision, queries, width, keys, count, width, queued)  # PV, dQ
    back = batched(device, precision, keys, width, queries, count, width, queued)  # dK, dV
    softmax = stream(device, scores * size * (2 if part == "forward" else 3), queued=queued)
    seconds = into + out + softmax + (0 if part == "forward" else 2 * back)
    if dropout:
        seconds = seconds + stream(device, scores * (2 * size + 1), queued=queued)
    return seconds


def batched(
    device: Device, precision: str, m: Floats, n: Floats, k: Floats, count: Floats, width: Floats,
    queued: bool,
) -> Floats:  # fmt: skip
    """Seconds of `count` products over heads of `width` elements.

    Matrix units load 16 bytes at a time. A single product of another width is padded by the
    library; heads lie side by side in memory, are not, and go without matrix units [cublas].
    """
    seconds = gemm(device, precision, m, n, k, count, queued=queued)
    apart = width * OPERAND_BYTES[precision] % 16 != 0
    if OPERAND_BYTES[precision] < 4 and apart.any():
        seconds = np.where(apart, gemm(device, "fp32", m, n, k, count, queued=queued), seconds)
    return seconds

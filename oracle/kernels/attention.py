"""Attention, as one fused (flash) kernel or as products and softmax passes through memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oracle.kernels.curve import OPERAND_BYTES, curve, duration, powered, precision_on
from oracle.kernels.gemm import gemm
from oracle.kernels.stream import stream
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Curve, Device

# FlashAttention-2 reaches up to 73 % of an A100's peak forward and 63 % backward (dao2023, §4),
# FlashAttention-3 on an H100 648 and 561 TFLOP/s [shah2024, figures 5 and 6]
BACKWARD = 63 / 73
# kernels of NVIDIA's on a B200 1,460 and 1,000, where shared memory sets the pace going back
# (deepseek-ai/FlashMLA@066b5ba, README.md)
SLOWER_BACK = {"blackwell": 1000 / 1460}
# where matrix units came after a kernel it reaches less of their peak [shah2024, §1]: H100 over
# A100, fitted as below
SINCE = 0.533
NEWER = ("hopper", "blackwell")


@dataclass(frozen=True, slots=True)
class Version:
    """How fast a FlashAttention of its time is, both passes together.

    Fitted to what its authors print of their benchmarks, `python -m benchmarks.attention`; how
    the passes compare is their paper's word [dao2023, §1 and §4.1].
    """

    share: tuple[float, float]  # of an A100's peak, heads of 64 and of 128 channels
    lead: float  # keys that a row of queries takes as long as before and after its loop
    masked: float  # of the rate, where a mask is looked at
    ahead: float  # rate of the forward pass over that of the backward pass

    def reach(self, width: Numbers, causal: bool, part: str) -> Floats:
        """Part of an A100's peak that a pass reaches on long sequences."""
        narrow, wide = self.share
        both = narrow + (wide - narrow) * np.clip(np.log2(np.asarray(width) / 64.0), 0.0, 1.0)
        forward = both * (1 + 2.5 * self.ahead) / 3.5  # 2 products forward, 5 backward
        own = forward if part == "forward" else forward / self.ahead
        return np.asarray(own * (self.masked if causal else 1.0))


VERSIONS = {
    1: Version((0.332, 0.277), 57, 0.94, 0.50 / 0.35),
    2: Version((0.592, 0.676), 162, 0.964, 0.73 / 0.63),
}
# what frameworks take on Ampere in 16 bits where no version is said: cuDNN's has preference from
# Hopper on (NVIDIA/TransformerEngine, v2.8 pytorch/attention/dot_product_attention/utils.py)
NEWEST = 2
DIAGONAL = 64  # keys of half a tile, which the mask leaves out and the kernel does not


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
    family: str = "attention",
    version: int = 0,
    queued: bool = False,
) -> Floats:
    """Seconds of softmax(QKᵀ)V of every head, or of its backward pass.

    Flash (`dao2023`): 2 products forward and 5 backward, of the pairs that the mask leaves; only
    Q, K, V, O pass through memory; as fast as its `version` is, where that is said. Else the
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
    fitted = curve(device, family, own, part)
    rate: Numbers = device.peak[own] * (
        1 if fitted.part or part == "forward" else SLOWER_BACK.get(device.generation, BACKWARD)
    )
    flop = 2 * products * batch * heads * queries * seen * width
    if queued and device.generation == "ampere" and OPERAND_BYTES[own] == 2:
        version = version or NEWEST
    if version:
        fitted, rate = versioned(VERSIONS[version], fitted, device, own, width, causal, part)
        seen = seen + DIAGONAL * causal
    # a kernel works down the queries of one head; the width is the inner loop of its products
    seconds = duration(
        fitted, device, rate, queries, width, seen,
        products * batch * heads, passes * once,
    )  # fmt: skip
    return powered(device, own, seconds, flop, queued)


def versioned(
    known: Version, fitted: Curve, device: Device, own: str, width: Floats, causal: bool, part: str
) -> tuple[Curve, Floats]:
    """The curve and the rate of a version; what starts and idles is the device's."""
    reach = known.reach(width, causal, part) * (SINCE if device.generation in NEWER else 1.0)
    alone = replace(fitted, sustained=1.0, traffic=1.0, tile=0.0, prologue=known.lead, waves=False)
    return alone, device.peak[own] * reach


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

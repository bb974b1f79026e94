"""Matrix products: dense layers, projections, and what convolutions become."""

from __future__ import annotations

import numpy as np

from oracle.kernels.curve import OPERAND_BYTES, curve, duration, fitted, powered, precision_on
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Device


def gemm(
    device: Device,
    precision: str,
    m: Numbers,
    n: Numbers,
    k: Numbers,
    count: Numbers = 1,
    *,
    written: Numbers | None = None,
    family: str = "gemm",
    queued: bool = False,
) -> Floats:
    """Seconds of C(m×n) = A(m×k)·B(k×n), `count` of them batched in one kernel.

    `written` are the bytes moved for an element of C, if it isn't as wide as those of A and B: a
    product that adds up reads and writes it.
    Products of another `family` are as fast, where nobody fitted them apart.
    The gradients of a dense layer are two more: (m, k, n) for the data, (k, n, m) for the weight.
    """
    m, n, k = np.asarray(m, float), np.asarray(n, float), np.asarray(k, float)
    own = precision_on(device, precision)
    width = OPERAND_BYTES[precision]
    made = width if written is None else np.asarray(written, float)
    moved = count * (width * (m * k + k * n) + made * m * n)
    used = (family != "gemm" and fitted(device, family, own)) or curve(device, "gemm", own)
    seconds = duration(used, device, device.peak[own], m, n, k, count, moved)
    return powered(device, own, seconds, 2 * m * n * k * count, queued)

"""Matrix products: dense layers, projections, and what convolutions become."""

from __future__ import annotations

import numpy as np

from oracle.kernels.curve import OPERAND_BYTES, curve, duration, powered, precision_on
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
    queued: bool = False,
) -> Floats:
    """Seconds of C(m×n) = A(m×k)·B(k×n), `count` of them batched in one kernel.

    The gradients of a dense layer are two more: (m, k, n) for the data, (k, n, m) for the weight.
    """
    m, n, k = np.asarray(m, float), np.asarray(n, float), np.asarray(k, float)
    own = precision_on(device, precision)
    moved = OPERAND_BYTES[precision] * count * (m * k + k * n + m * n)
    used = curve(device, "gemm", own)
    seconds = duration(used, device, device.peak[own], m, n, k, count, moved)
    return powered(device, own, seconds, 2 * m * n * k * count, queued)

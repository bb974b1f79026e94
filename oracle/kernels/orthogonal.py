"""Muon's orthogonal updates: five Newton-Schulz iterations of each matrix [jordan2024]."""

from __future__ import annotations

import numpy as np

from oracle.kernels.gemm import gemm
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Device

ITERATIONS = 5


def orthogonal(device: Device, rows: Numbers, columns: Numbers, count: Numbers = 1) -> Floats:
    """Seconds of A = XXᵀ, B = bA + cAA, X = aX + BX in bf16, X the matrix with no more rows.

    2 · 5 · (2 a² b + a³) FLOP of a matrix of a × b, a ≤ b.
    """
    precision = "bf16" if "bf16" in device.peak else "fp16" if "fp16" in device.peak else "fp32"
    narrow, wide = np.minimum(rows, columns), np.maximum(rows, columns)
    products = ((narrow, narrow, wide), (narrow, narrow, narrow), (narrow, wide, narrow))
    each = (gemm(device, precision, *shape, count, queued=True) for shape in products)
    return np.asarray(ITERATIONS * sum(each, np.zeros(1)))

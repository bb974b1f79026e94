"""Work that is known by its FLOP and bytes alone: scans, tables, transforms, recurrent cells.

    seconds = max(FLOP / (peak · sustained), bytes / (bandwidth · traffic))     of its family
    small products: a batch of them by the curve of single ones
    a recurrent cell: as many products as there are steps, one after the other, of the samples at
    hand with a square matrix of as many weights; its weights' gradient is one product

Nobody has measured these families on a device that is shipped: their curves are round figures,
doubted by a factor of two to three. `SETTLED_BY` says which measurement would replace them.
"""

from __future__ import annotations

import numpy as np

from oracle.kernels.curve import curve
from oracle.kernels.gemm import gemm
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Device

SETTLED_BY = {
    "gemm": "matrix products of its sizes in the same precision",
    "conv": "convolutions of its sizes, forward and both gradients",
    "attention": "attention of its heads and lengths, forward and backward",
    "latent": "latent attention of its heads and lengths, forward and backward",
    "conv1d": "a Mamba-2 layer's convolution along the tokens",
    "stream": "copies and sums of tensors of its sizes",
    "norm": "batch, group or instance norms of tensors of its sizes",
    "pool": "pools of tensors of its sizes",
    "conv3d": "convolutions of volumes, forward and both gradients, in the framework's layout",
    "grouped": "grouped convolutions, forward and both gradients",
    "depthwise": "convolutions of one filter a channel, forward and both gradients",
    "scan": "Mamba-2's scan, forward and backward, by heads, state and chunk",
    "tables": "bags of rows looked up in tables larger than the cache, and their update",
    "experts": "products of a mixture's experts at their sizes, all in one launch",
    "products": "batches of small matrix products of its sizes",
    "recurrent": "an LSTM of the same width and batch, forward and backward",
    "fft": "transforms of the same length and batch",
    "counted": "the operators themselves, at their shapes",
}


def counted(
    device: Device, family: str, own: str, part: str, flop: Numbers, streamed: Numbers
) -> Floats:
    """Seconds by FLOP or bytes; `streamed` are those of a kernel that streams as many bytes."""
    used = curve(device, family, own, part)
    math = np.asarray(flop) / (device.peak[own] * used.sustained)
    slower = 1.0 if family == "counted" else curve(device, "stream").traffic / used.traffic
    return np.maximum(math, np.asarray(streamed) * slower)


def products(device: Device, precision: str, part: str, sizes: Floats, count: Numbers) -> Floats:
    """Seconds of a batch of small products of activations: C = AB, or both gradients."""
    m, n, k = sizes
    if part == "weight":
        return np.zeros(1)
    if part == "forward":
        return gemm(device, precision, m, n, k, count, family="products", queued=True)
    one, other = (gemm(device, precision, *shape, count, family="products", queued=True)
                  for shape in ((m, k, n), (k, n, m)))  # fmt: skip
    return np.asarray(one + other)


def recurrent(
    device: Device, precision: str, part: str, batch: Numbers, weights: Numbers, steps: Numbers
) -> Floats:
    """Seconds of a cell's products, one step after the other."""
    side = np.sqrt(weights)
    if part == "weight":
        rows = np.asarray(batch, float) * steps
        return gemm(device, precision, side, side, rows, family="recurrent", queued=True)
    step = gemm(device, precision, batch, side, side, family="recurrent", queued=True)
    return np.asarray(steps * step)

"""Memory-bound kernels: norms, activations, softmax, embeddings, weight updates."""

from __future__ import annotations

import numpy as np

from oracle.kernels.curve import curve, launched
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Device

# passes over fp32 values per weight (reads and writes, gradient in fp32), and kernels:
# one fused kernel against one pass for each term of the rule as written
#   sgd       w -= η g
#   momentum  v = μ v + g;  w -= η v
#   adam      m, v, w of kingma2015: reads w g m v, writes w m v
#   lars      momentum at a rate scaled by |w| / |g| of each layer (you2017): one more reading
#   lamb      adam's direction, then scaled by |w| / |direction| (you2020): three stages
#   adam8     adam with m and v in 8 bits [dettmers2022]: one kernel, 14 bytes a weight
#   kfac      momentum, of a gradient that was preconditioned beside this [martens2015]
#   muon      v = μ v + g, w -= η u, u of 16 bits made orthogonal beside this [jordan2024]
FUSED = {"sgd": (3, 1), "momentum": (5, 1), "adam": (7, 1), "lars": (7, 2), "lamb": (12, 3),
         "adam8": (3.5, 1), "kfac": (5, 1), "muon": (6, 2)}  # fmt: skip
PLAIN = {"sgd": (3, 1), "momentum": (6, 2), "adam": (17, 6), "lars": (10, 5), "lamb": (24, 11),
         "adam8": (3.5, 1), "kfac": (6, 2), "muon": (9, 4)}  # fmt: skip


def stream(
    device: Device, nbytes: Numbers, *, family: str = "stream", queued: bool = False
) -> Floats:
    """Seconds to read and write `nbytes` in all: start + bytes / (bandwidth · share).

    A share that saturates with size, b / (b + half), gives the same line: the start holds `half`.
    """
    used = curve(device, family)
    rate = device.memory_bandwidth * used.traffic
    return launched(device, used.start + np.asarray(nbytes, float) / rate, queued)


def reduction(
    device: Device, family: str, nbytes: Numbers, elements: Numbers, blocks: Numbers,
    part: str = "",
) -> Floats:  # fmt: skip
    """Seconds of norms and pools that work down one channel after the other.

        start + max(bytes / (bandwidth · share), elements / (pace · min(blocks, processors)))

    Each of the `blocks` (channels, or samples' channels) is one processor's work, which takes its
    elements one by one: few channels leave processors idle, and 16 bits are no faster than 32.
    """
    used = curve(device, family, part=part)
    rate = device.memory_bandwidth * used.traffic
    seconds = np.asarray(nbytes, float) / rate
    if used.pace:
        busy = np.minimum(np.asarray(blocks, float), device.processors)
        seconds = np.maximum(seconds, np.asarray(elements, float) / (used.pace * busy))
    return np.asarray(used.start + seconds)


def update(
    device: Device,
    precision: str,
    optimizer: str,
    weights: Numbers,
    tensors: Numbers = 1,
    *,
    fused: bool = True,
    queued: bool = False,
) -> Floats:
    """Seconds to update `weights` parameters: memory-bound, by the optimizer's passes.

    Mixed precision reads 2-byte gradients and writes 2-byte weights beside fp32 masters. Not
    fused, every term is a kernel of its own for each of the `tensors`.
    """
    passes, kernels = (FUSED if fused else PLAIN)[optimizer]
    # fused, a 2-byte gradient saves what the 2-byte copy of the weight costs
    casts = 0 if fused or precision in ("fp32", "tf32") else 12
    moved = np.asarray(weights, float) * (4 * passes + casts)
    calls = kernels * np.asarray(1 if fused else tensors, float)
    return np.asarray(calls * stream(device, moved / calls, queued=queued))


def update_calls(optimizer: str) -> int:
    """Kernels for each tensor where the optimizer's terms are kernels of their own."""
    return PLAIN[optimizer][1]

"""Copies that put a part of each sample amid the borders that its windows see.

    forward    |x| read, |x| + borders written
    backward   the same for the weights' gradient, and of dL/dy for that of the input

Borders are as deep as half a window on each side that was cut. A pool needs none on its way back:
it adds what came in.
"""

from __future__ import annotations

import numpy as np

from oracle.kernels.stream import stream
from oracle.models import masks
from oracle.models.model import Floats
from oracle.models.shard import Array, Shard
from oracle.spec.device import Device


def copies(shard: Shard, device: Device) -> tuple[Floats, Floats, Floats]:
    """Seconds of each row: forward, for the gradient of its input, for that of its weights."""
    model = shard.model
    x, y = amid(shard)
    wide = (shard.x * (1 + x), shard.y * (1 + y) * ~masks.entries(model), shard.x * (1 + x))
    conv = model.mask(lambda row: row.work == "conv")
    here = x > 1
    bytes_each = (shard.delta * shard.micro * elements for elements in wide)
    forward, data, weight = (
        np.where(here & (nbytes > 0), stream(device, nbytes, queued=True), 0.0)
        for nbytes in bytes_each
    )
    return forward, data * conv, weight * conv


def amid(shard: Shard) -> tuple[Array, Array]:
    """How many times as large x and dL/dy are with their borders; 1 where no sample is cut."""
    model, (x, y) = shard.model, np.ones((2, 1, 1))
    pictures = model.mask(lambda row: not row.made.tokens)
    for i, (part, made) in enumerate(zip(shard.given, shard.made, strict=True)):
        k, s = model.window[i], model.stride[i]
        sides = np.minimum(np.round(model.given[i] / np.maximum(part, 1.0)) - 1, 2)
        deep = pictures * sides * np.floor(k / 2) * (k > s)
        x = x * (1 + deep / np.maximum(part, 1.0))
        y = y * (1 + deep / s / np.maximum(made, 1.0))
    return x, y

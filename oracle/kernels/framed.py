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
from oracle.models.model import Flags, Floats
from oracle.models.shard import Array, Shard
from oracle.spec.device import Device


def copies(shard: Shard, device: Device) -> tuple[Floats, Floats, Floats]:
    """Seconds of each row: forward, for the gradient of its input, for that of its weights."""
    model, (x, y) = shard.model, amid(shard)
    conv = model.mask(lambda row: row.work == "conv")

    def copied(elements: Floats, where: Flags) -> Floats:
        seconds = stream(device, shard.delta * shard.micro * elements, queued=True)
        return np.where((x > 1) & where, seconds, 0.0)

    of_x = copied(shard.x * (1 + x), np.ones(len(model), bool))
    of_y = copied(shard.y * (1 + y), conv & ~masks.entries(model))
    return of_x, of_y, of_x * conv


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

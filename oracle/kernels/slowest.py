"""The slowest of many devices: chips of one make differ in speed, and a step waits for all.

    slowest of p = 1 + variation · Φ⁻¹((p − 3/8) / (p + 1/4))        the mean of the greatest of p
                                                                  normal numbers [blom1958]

Chips that come out of a factory need different voltages for the same clock, so under one limit
of power they keep up different clocks; what memory sets the pace of does not differ [sinha2022].
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from oracle.kernels.passes import Passes
from oracle.models.masks import streams
from oracle.models.model import Floats, Model
from oracle.spec.device import Device


def slowest(device: Device, devices: Floats) -> Floats:
    """How many times as long the slowest of so many devices takes as the mean of them."""
    known = {p: greatest(p) for p in {*np.ravel(devices).tolist()}}
    found = np.array([known[p] for p in np.ravel(devices).tolist()])
    return 1 + device.variation * found.reshape(np.shape(devices))


@lru_cache(4096)
def greatest(p: float) -> float:
    """The mean of the greatest of p normal numbers."""
    return NormalDist().inv_cdf((p - 0.375) / (p + 0.25))


def in_step(times: Passes, model: Model, device: Device, devices: Floats) -> Passes:
    """The same passes, at the pace of the slowest of each plan's devices."""
    if not device.variation:
        return times
    by = np.where(streams(model), 1.0, slowest(device, np.reshape(devices, (-1, 1))))
    return replace(
        times, forward=times.forward * by, data=times.data * by, weight=times.weight * by
    )

"""The slowest of many devices: chips of one make differ in speed, and a step waits for all.

    slowest of p = 1 + variation · Φ⁻¹((p − 3/8) / (p + 1/4))        the mean of the greatest of p
                                                                  normal numbers [blom1958]

Who waits for all but b of them waits for the (p − b)-th: p − b in place of p above; who waits for
nobody goes at the pace of the mean.

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


def slowest(device: Device, devices: Floats, waited: Floats | float = 1.0) -> Floats:
    """How many times as long the slowest of so many devices takes as the mean of them.

    Of a part of them that is `waited` for; 0: nobody waits.
    """
    devices, waited = np.broadcast_arrays(devices, waited)
    each = [*zip(np.ravel(devices).tolist(), np.ravel(waited).tolist(), strict=True)]
    known = {(p, part): greatest(p, part) for p, part in {*each}}
    found = np.array([known[one] for one in each])
    return 1 + device.variation * found.reshape(np.shape(devices))


@lru_cache(4096)
def greatest(p: float, waited: float = 1.0) -> float:
    """The mean of the greatest of p normal numbers, or of a part of them, the smallest."""
    rank = max(waited * p, 1.0) if waited else (p + 1) / 2
    return NormalDist().inv_cdf((rank - 0.375) / (p + 0.25))


def in_step(
    times: Passes, model: Model, device: Device, devices: Floats, waited: Floats | float = 1.0
) -> Passes:
    """The same passes, at the pace of the slowest of each plan's devices that is waited for."""
    if not device.variation:
        return times
    pace = slowest(device, np.reshape(devices, (-1, 1)), waited)
    by = np.where(streams(model), 1.0, pace)
    return replace(
        times, forward=times.forward * by, data=times.data * by, weight=times.weight * by
    )

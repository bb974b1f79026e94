"""The load of a plan's devices: their share of the power between idle and busy.

    u = w (½ + ½ min(1, FLOP/(T F λ) + bytes/(T W)))

w is the share of a step's T seconds in which a device has work, its own or a message; F and W are
its peak rate and its memory's bandwidth, λ the share of F that power allows (`loaded`). Energy goes
into FLOP and bytes, and into being awake: clocks, leakage, kernels that wait. It is assumed that
the latter is half, and that u is known to ± 0.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.predict.estimate import Estimate
from oracle.predict.local_work import amounts

AWAKE = 0.5  # share of the power above idle that any work takes
DOUBT = 0.2  # of u, either way, 90 %


@dataclass(frozen=True, slots=True)
class Load:
    """u, and its bounds."""

    share: float
    low: float
    high: float

    def during(self, share: float) -> Load:
        """Return the load of devices that work a share of the time, and idle for the rest."""
        return Load(self.share * share, self.low * share, self.high * share)


def load_of(predicted: Estimate, row: int = 0) -> Load:
    """Return the load of one plan's devices."""
    device, seconds = predicted.machine("power", row).device, float(predicted.seconds[row])
    read = predicted.reading[row]
    waits = float(predicted.compute["bubble"][row]) + (0.0 if read is None else read["exposed"])
    at_work = min(max(1 - waits / seconds, 0.0), 1.0)
    flop, moved = amounts(predicted, row)
    peak = device.peak[predicted.computed_in(device)]
    hard = flop / (seconds * peak * device.loaded) + moved / (seconds * device.memory_bandwidth)
    return load(at_work, hard)


def load(at_work: float, hard: float) -> Load:
    """Return u of a device with work for a share of the time, and its use of both roofs."""
    share = at_work * (AWAKE + (1 - AWAKE) * min(hard, 1.0))
    return Load(share, max(share - DOUBT, 0.0), min(share + DOUBT, 1.0))

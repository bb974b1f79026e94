"""How hard a plan works its devices: what share of the power between idle and busy they draw.

    u = w (½ + ½ min(1, FLOP/(T F λ) + bytes/(T W)))

w is the share of a step's T seconds in which a device has work, its own or a message; F and W are
its peak rate and its memory's bandwidth, λ the share of F that power allows (`loaded`). Energy is
spent on FLOP and bytes, and on being awake: clocks, leakage, kernels that are held up. That the
latter is half is assumed; so is that u is known to ± 0.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.predict.estimate import Estimate
from oracle.predict.local_work import amounts

AWAKE = 0.5  # of what work adds to idling, spent whatever the work is
DOUBT = 0.2  # of u, either way, 90 %


@dataclass(frozen=True, slots=True)
class Load:
    """u, and between what it lies."""

    share: float
    low: float
    high: float

    def during(self, share: float) -> Load:
        """The same of devices that are at it for a share of the time, and idle for the rest."""
        return Load(self.share * share, self.low * share, self.high * share)


def load_of(shown: Estimate, row: int = 0) -> Load:
    """How hard one plan works its devices."""
    device, seconds = shown.machine("power", row).device, float(shown.seconds[row])
    read = shown.reading[row]
    waits = float(shown.compute["bubble"][row]) + (0.0 if read is None else read["exposed"])
    at_work = min(max(1 - waits / seconds, 0.0), 1.0)
    flop, moved = amounts(shown, row)
    peak = device.peak[shown.computed_in(device)]
    hard = flop / (seconds * peak * device.loaded) + moved / (seconds * device.memory_bandwidth)
    return load(at_work, hard)


def load(at_work: float, hard: float) -> Load:
    """u of a device with work for a share of the time, with so much of either roof in all."""
    share = at_work * (AWAKE + (1 - AWAKE) * min(hard, 1.0))
    return Load(share, max(share - DOUBT, 0.0), min(share + DOUBT, 1.0))

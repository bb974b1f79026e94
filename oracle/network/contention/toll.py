"""What the steps of a schedule cost, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.network.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Toll:
    """What each step of some costs: seconds to start, seconds per byte, alone and as it is."""

    turns: Floats  # (steps, levels + 1): part of the flows that turn at each level
    alpha: Floats  # of the farthest flow
    shared: Floats
    solo: Floats
    worst: Ints  # the link that sets the pace
    times: Floats

    def chased(self, latency: Floats) -> float:
        """Seconds to start where what travels passes on at once: the mean α of a step's flows."""
        return float(self.times @ (self.turns @ latency))

    def stepped(self, latency: Floats) -> float:
        """Seconds to start where every step waits for the farthest of the one before."""
        return float(self.times @ np.where(self.turns > 0, latency, 0.0).max(axis=1))

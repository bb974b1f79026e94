"""What the steps of a schedule cost, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.network.topology.fabric import Ids, Numbers


@dataclass(frozen=True, eq=False)
class Toll:
    """What each step of some costs: seconds to start, seconds per byte, alone and as it is."""

    turns: Numbers  # (steps, levels + 1): part of the flows that turn at each level
    alpha: Numbers  # of the farthest flow
    shared: Numbers
    solo: Numbers
    worst: Ids  # the link that sets the pace
    times: Numbers

    def chased(self, latency: Numbers) -> float:
        """Seconds to start where what travels passes on at once: the mean α of a step's flows."""
        return float(self.times @ (self.turns @ latency))

    def stepped(self, latency: Numbers) -> float:
        """Seconds to start where every step waits for the farthest of the one before."""
        return float(self.times @ np.where(self.turns > 0, latency, 0.0).max(axis=1))

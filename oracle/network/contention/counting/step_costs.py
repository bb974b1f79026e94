"""Cost of each step of a schedule: seconds to start and seconds per byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from oracle.network.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class StepCosts:
    """Cost of some steps, an entry each: seconds to start, seconds per byte alone and shared."""

    by_level: Floats  # (steps, levels + 1): part of the flows whose ends meet at each level
    alpha: Floats  # of the farthest flow
    shared: Floats
    solo: Floats
    fullest: Ints  # the link that sets the pace
    times: Floats

    def __getitem__(self, part: slice) -> StepCosts:
        return StepCosts(*(getattr(self, field.name)[part] for field in fields(self)))

    @staticmethod
    def joined(parts: Sequence[StepCosts]) -> StepCosts:
        """The steps of several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return StepCosts(*(np.concatenate([getattr(part, field.name) for part in parts])
                           for field in fields(StepCosts)))  # fmt: skip

    def start(self, latency: Floats, pipelined: bool) -> float:
        """Seconds to start at the given α of each level.

        Pipelined, pieces pass on at once: the mean α of a step's flows. Otherwise every step
        waits for the farthest flow of the one before.
        """
        if pipelined:
            return float(self.times @ (self.by_level @ latency))
        return float(self.times @ np.where(self.by_level > 0, latency, 0.0).max(axis=1))

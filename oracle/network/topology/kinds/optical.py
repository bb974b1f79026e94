"""Hybrid of electrical and optical: a packet switch, and circuits that close a ring of units."""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Bools, Ints
from oracle.network.topology.fabric import NOWHERE, Fabric


class Optical(Fabric):
    """A packet switch for small and stray messages, circuits for the big flows of a fixed ring.

    Every unit has `ports` into an electrical switch, and circuits to the next and the last unit.
    `shape` is (times, µs): a circuit carries that multiple of a port's bandwidth, and setting
    the circuits takes that many microseconds. The circuits serve once they are set; contention
    prices an exchange both ways, so that a short message never waits for a mirror
    [nguyen2019optical].
    """

    kind = "optical"
    usual_routing = "affinity"
    tree = False

    @property
    def period(self) -> int:
        return self.unit

    @property
    def setting(self) -> float:
        """Seconds it takes to set the circuits."""
        return self.level.shape[1] * 1e-6 if len(self.level.shape) > 1 else 0.0

    def count_inside(self) -> int:
        return 2 * self.width

    def bypass(self, start: Ints, end: Ints) -> Bools | bool:
        distance = (end - start) % self.width
        neighbours = (distance == 1) | (distance == self.width - 1)
        return np.asarray(neighbours & self.circuits, np.bool_)

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        """The circuit from unit to unit, where they are neighbours on the ring."""
        ahead = (end - start) % self.width == 1
        return [np.where(self.bypass(start, end), 2 * start + 1 - ahead, NOWHERE)]

    def inside(self) -> list[tuple[int, int, float, str]]:
        times = self.level.shape[0] if self.level.shape else 1
        rate, n = times * self.level.bandwidth, self.width
        return [(unit, (unit + way) % n, rate, "circuits") for unit in range(n) for way in (1, -1)]

"""Rail-optimised leaf and spine: port j of every node on leaf switch j."""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Ints
from oracle.network.topology.fabric import NOWHERE, Fabric


class Rail(Fabric):
    """Each port of a unit leads to its own leaf (rail); rails meet at the spine only.

    A flow leaves by the port of its device and arrives at the port of its target; where the two
    are on different rails it crosses the spine. A rail has `units / oversubscription` links up
    [wang2023rail], striped.
    """

    kind = "rail"
    usual_routing = "affinity"

    @property
    def tree(self) -> bool:  # type: ignore[override]
        return not self.count_inside()

    @property
    def period(self) -> int:
        return self.unit

    def default_ports(self, inner: float) -> float:
        return float(self.unit)

    def count_inside(self) -> int:
        """Return the links of rails to the spine and back; at full bisection only ports count."""
        return 0 if self.level.oversubscription <= 1 else 2 * max(1, round(self.ports))

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        """Return a flow's links from its rail to the spine and on, where its ends' rails differ."""
        count = self.count_inside() // 2
        leave = source % self.unit * count // self.unit
        enter = target % self.unit * count // self.unit
        differ = leave != enter
        return [np.where(differ, leave, NOWHERE), np.where(differ, count + enter, NOWHERE)]

    def inside(self) -> list[tuple[int, int, float, str]]:
        count, spine = self.count_inside() // 2, self.width + self.count_inside() // 2
        rate = self.width * self.level.bandwidth / self.level.oversubscription
        up = [(self.width + j, spine, rate, "rails to the spine") for j in range(count)]
        return up + [(spine, self.width + j, rate, "spine to the rails") for j in range(count)]

    def port_switch(self, unit: int, lane: int) -> int:
        return self.width + lane

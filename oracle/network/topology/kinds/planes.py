"""Rails and planes that never meet: a message to another rail changes over inside its node."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oracle.network.arrays import Ints
from oracle.network.topology.fabric import NOWHERE, Fabric
from oracle.spec.level import Level


class RailOnly(Fabric):
    """Port j of every unit on switch j, and no spine: units pass on what is for another rail.

    A flow leaves its unit by the port of its *target's* place, having crossed to that port's
    device inside the unit [wang2023rail]; what devices pass on so is counted on a link of theirs
    as fast as the one by which they hang on their unit.
    """

    kind: ClassVar[str] = "rail-only"
    tree = False

    def __init__(
        self, level: Level, below: Level | None, inner: float, devices: int, circuits: bool = False
    ) -> None:
        self.forwarding = (below.bandwidth * (below.ports or 1)) if below else level.bandwidth
        super().__init__(level, below, inner, devices, circuits)

    def default_routing(self, depth: int, switches: bool) -> str:
        return "affinity"

    def default_ports(self, inner: float) -> float:
        return float(self.unit)

    @property
    def period(self) -> int:
        return self.level.devices

    @property
    def repeats(self) -> int:
        return self.level.devices

    @property
    def plane_links(self) -> int:
        """Links inside each plane, one way."""
        return 0

    def count_inside(self) -> int:
        return self.width * self.lanes + 2 * self.lanes * self.plane_links

    def lane_of(self, device: Ints) -> Ints:
        """Return the rail that a device's port is on."""
        return np.asarray(device % self.unit * self.lanes // self.unit)

    def port(self, device: Ints, key: Ints, salt: Ints) -> Ints:
        """Return a unit's port on the rail of the target, which `key` numbers, also upwards."""
        return np.asarray(device // self.unit * self.lanes + self.lane_of(key))

    def port_number(self, device: Ints, key: Ints) -> Ints:
        return self.lane_of(key)

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        rail = self.lane_of(target)
        over = (start != end) & (self.lane_of(source) != rail)
        return [np.where(over, start * self.lanes + rail, NOWHERE)]

    def inside(self) -> list[tuple[int, int, float, str]]:
        # from the unit to its port on a rail: what its devices pass on
        return [(unit, unit, self.forwarding, "forwarding")
                for unit in range(self.width) for _ in range(self.lanes)]  # fmt: skip

    def port_switch(self, unit: int, lane: int) -> int:
        return self.width + lane


class MultiPlane(RailOnly):
    """Planes side by side, each a leaf-and-spine tree that port j of every unit hangs on.

    `shape` is (units per leaf); without it each plane is one switch, `rail-only`. A leaf has
    `units / oversubscription` links up, filled evenly. Planes never meet: a message to a device of
    another plane changes over inside its node [deepseek2025isca].
    """

    kind = "multi-plane"

    @property
    def leaf(self) -> int:
        """Units of a leaf."""
        return self.level.shape[0] if self.level.shape else self.width

    @property
    def plane_links(self) -> int:
        return -(-self.width // self.leaf) if self.leaf < self.width else 0

    def default_ports(self, inner: float) -> float:
        return float(self.unit)

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        columns = super().path(start, end, source, target)
        if not self.plane_links:
            return columns
        rail, first = self.lane_of(target), self.width * self.lanes
        leave, enter = start // self.leaf, end // self.leaf
        up = first + rail * self.plane_links + leave
        down = first + (self.lanes + rail) * self.plane_links + enter
        return [*columns, *(np.where(leave != enter, link, NOWHERE) for link in (up, down))]

    def inside(self) -> list[tuple[int, int, float, str]]:
        leaves = self.plane_links
        rate = self.leaf * self.lane_bandwidth / self.level.oversubscription
        spine, first = self.width, self.width + self.lanes
        up = [(first + rail * leaves + leaf, spine + rail, rate, "leaves to the spine")
              for rail in range(self.lanes) for leaf in range(leaves)]  # fmt: skip
        down = [(spine, leaf, rate, "spine to the leaves") for leaf, spine, _, _ in up]
        return super().inside() + up + down

    def port_switch(self, unit: int, lane: int) -> int:
        if not self.plane_links:
            return self.width + lane
        leaf = unit % self.width // self.leaf
        return self.width + self.lanes + lane * self.plane_links + leaf

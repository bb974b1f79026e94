"""Full mesh: a link of its own between every two units, as NVLink without a switch."""

from __future__ import annotations

from oracle.network.arrays import Ints
from oracle.network.topology.fabric import Fabric


class FullMesh(Fabric):
    """Every unit linked to every other; its ports are dealt evenly to its peers."""

    kind = "mesh"
    has_ports = False

    def default_ports(self, inner: float) -> float:
        return max(1, self.width - 1)

    def count_inside(self) -> int:
        return self.width * self.width

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        return [start * self.width + end]

    def inside(self) -> list[tuple[int, int, float, str]]:
        each = self.ports * self.level.bandwidth / max(1, self.width - 1)
        return [(a, b, each, "links") for a in range(self.width) for b in range(self.width)]

"""Meshes of links between pairs of units, as NVLink without a switch."""

from __future__ import annotations

from functools import cached_property
from itertools import product

import numpy as np

from oracle.network.arrays import Ints
from oracle.network.topology.fabric import NOWHERE, Fabric
from oracle.network.topology.rings import Links, relay


class FullMesh(Fabric):
    """Every unit linked to every other; its ports are dealt evenly to its peers.

    With `wires`, a link for each pair of units that they list: between two without one, messages
    go through the unit that is joined best to both.
    """

    kind = "mesh"
    has_ports = False

    @cached_property
    def links(self) -> Links:
        """The number of links between each two units, alike for all in a mesh without wires."""
        direct = np.zeros((self.width, self.width), np.int64)
        for a, b in self.level.joined_by(self.level.wires):
            direct[[a, b], [b, a]] += 1
        if not self.level.wires:
            links_to_a_peer = self.ports / max(1, self.width - 1)
            direct += int(links_to_a_peer) if links_to_a_peer == int(links_to_a_peer) else 1
            np.fill_diagonal(direct, 0)
        return tuple(tuple(row) for row in direct.tolist())

    @cached_property
    def first_stop(self) -> Ints:
        """The unit that a message from one to another goes to first."""
        every = range(self.width)
        return np.array([[b if self.links[a][b] or a == b else relay(self.links, a, b)
                          for b in every] for a in every])  # fmt: skip

    @property
    def repeats(self) -> int:
        return self.unit * self.width if self.level.wires else self.unit

    @property
    def period(self) -> int:
        return self.repeats

    def default_ports(self, inner: float) -> float:
        if self.level.wires:
            return 2 * len(self.level.wires) / self.width
        return max(1, self.width - 1)

    def count_inside(self) -> int:
        return self.width * self.width

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        if not self.level.wires:
            return [start * self.width + end]
        stop = self.first_stop[start, end]
        onward = np.where(stop == end, NOWHERE, stop * self.width + end)
        return [start * self.width + stop, onward]

    def inside(self) -> list[tuple[int, int, float, str]]:
        pairs = [*product(range(self.width), repeat=2)]
        if not self.level.wires:
            rate = self.ports * self.level.bandwidth / max(1, self.width - 1)
            return [(a, b, rate, "links") for a, b in pairs]
        # where there is no link no message goes
        return [(a, b, max(1, self.links[a][b]) * self.level.bandwidth, "links") for a, b in pairs]

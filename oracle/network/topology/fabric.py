"""One level of a network: its units, their ports, and the links between them.

A level joins units (devices, nodes, racks, …) `unit` devices wide. A flow that leaves a unit uses
one of its ports up, a flow that enters one uses a port down, and between two units of the level
it crosses the links of the level's own kind. Each kind is one file in `kinds`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oracle.network.arrays import Bools, Floats, Ints, ShortInts
from oracle.spec.system import Level

NOWHERE = -1  # a link number that stands for "no link here"


class Fabric:
    """One level of a network as flat arrays: one switch for all units, unless a kind says more.

    `routing` says which of its ports a unit sends a flow over: `striped` over all of them as if
    they were one, `adaptive` alike (load balanced by the switches, packet by packet), `affinity`
    by the device's place in its unit, `d-mod-k` by the target's port number modulo the ports
    [zahavi2012], `ecmp` by a hash of the two ends.
    """

    kind: ClassVar[str] = "switch"
    usual_routing: ClassVar[str] = ""  # of this kind; empty: by the level's depth
    has_ports: ClassVar[bool] = True
    tree: ClassVar[bool] = True  # a unit's traffic stays on that unit's own links
    spread: ClassVar[int] = 1  # ways of `path` that each carry as much of a flow

    def __init__(
        self, level: Level, below: Level | None, inner: float, devices: int, circuits: bool = False
    ) -> None:
        unit, depth = (below.devices, 1) if below else (1, 0)
        self.level, self.unit, self.devices, self.circuits = level, unit, devices, circuits
        self.unit_name = below.name if below else "device"
        self.width = max(1, level.devices // unit)  # units joined by one copy of the level
        self.units = -(-devices // unit)
        self.copies = -(-self.units // self.width)
        self.ports = level.ports or self.default_ports(inner)
        switches = below is not None and below.link == "network"
        self.routing = self.routing_of(level, depth, switches)
        striped = self.routing == "striped"
        self.lanes = 1 if striped else max(1, int(self.ports + 1e-9))
        self.lane_bandwidth = self.ports * level.bandwidth / self.lanes  # B/s of one of them
        self.port_links = self.units * self.lanes if self.has_ports else 0  # one way
        self.inner_links = self.count_inside()

    @classmethod
    def stages(cls, level: Level, unit: int) -> list[Level]:
        """Return the levels that one level of a spec stands for."""
        return [level]

    def default_ports(self, inner: float) -> float:
        """Return a unit's ports when the spec gives none: inner ports over the oversubscription."""
        return inner / self.level.oversubscription

    def routing_of(self, level: Level, depth: int, switches: bool) -> str:
        """Return the level's routing; with units that are `switches`, load can be balanced."""
        if level.routing == "adaptive":
            return "striped"
        if level.routing in ROUTINGS:
            return level.routing
        return self.default_routing(depth, switches)

    def default_routing(self, depth: int, switches: bool) -> str:
        """Return the routing of a level whose spec gives none."""
        if depth == 0:
            return "striped"
        return self.usual_routing or ("affinity" if self.level.ports else "d-mod-k")

    @property
    def repeats(self) -> int:
        """Devices after which the next are joined alike."""
        return self.unit

    @property
    def period(self) -> int:
        """Devices by which everything may be shifted and still look the same."""
        return self.unit

    def count_inside(self) -> int:
        """Return the number of links between the units of one copy, besides the ports."""
        return 0

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        """Return the links (columns) that lead from unit `start` of a copy to its unit `end`."""
        return []

    def bypass(self, start: Ints, end: Ints) -> Bools | bool:
        """Return which flows between two units of one copy need no port at all."""
        return False

    def inside(self) -> list[tuple[int, int, float, str]]:
        """Return the links of one copy: (from, to, B/s, kind in words).

        Units are 0 … width − 1, the level's own switches are numbered from `width` on.
        """
        return []

    def rate(self, rates: Floats) -> None:
        """Fill in the B/s of each link: ports up, ports down, then the inside of each copy."""
        rates[:] = self.lane_bandwidth
        if inside := [link[2] for link in self.inside()]:
            rates[2 * self.port_links :].reshape(self.copies, -1)[:] = inside

    def labels(self) -> tuple[list[str], ShortInts]:
        """Return the kinds of links in words, and each link's kind, in the order of `rate`."""
        unit, inside = self.unit_name, [link[3] for link in self.inside()]
        kinds = list(dict.fromkeys(inside))
        words = [f"{unit} uplinks", f"{unit} downlinks", *(f"{self.level.name} {k}" for k in kinds)]
        ports = np.repeat(np.arange(2, dtype=np.int16), self.port_links)
        inside_kinds = np.array([2 + kinds.index(kind) for kind in inside], np.int16)
        return words, np.concatenate([ports, np.tile(inside_kinds, self.copies)])

    def port(self, device: Ints, key: Ints, salt: Ints) -> Ints:
        """Return the port of its unit that a flow takes; `key` numbers the target's port."""
        if self.routing in ("striped", "affinity"):  # by the device's place in its unit
            return device * self.lanes // self.unit
        lane = (salt if self.routing == "ecmp" else key) % self.lanes
        return device // self.unit * self.lanes + lane

    def port_number(self, device: Ints, key: Ints) -> Ints:
        """Return the number of the port that a device hangs on, seen from the level above."""
        if self.routing != "affinity":
            return key
        return device * self.lanes // self.unit

    def port_switch(self, unit: int, lane: int) -> int:
        """Return which of the level's own switches a unit's port leads to."""
        return self.width + (lane if self.routing in ("d-mod-k", "ecmp") else 0)


ROUTINGS = ("striped", "affinity", "d-mod-k", "ecmp")

"""What every kind of network level has in common: units, their ports, and what lies between.

A level joins units (devices, nodes, racks, …) `unit` devices wide. A flow that leaves a unit uses
one of its ports up, a flow that enters one uses a port down, and between two units of the level
it crosses the links of the level's own kind. Each kind is one file beside this one.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from oracle.spec.system import Level

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]
NOWHERE = -1  # a link number that stands for "no link here"


class Fabric:
    """One level of a network as flat arrays: one switch for all units, unless a kind says more.

    `spread` says which of its ports a unit sends a flow over: `striped` over all of them as if
    they were one, `affinity` by the device's place in its unit, `d-mod-k` by the target's port
    number modulo the ports [zahavi2012], `ecmp` by a hash of the two ends.
    """

    kind: ClassVar[str] = "switch"
    spread: ClassVar[str] = ""  # of this kind; empty: by the level's place
    has_ports: ClassVar[bool] = True
    tree: ClassVar[bool] = True  # a unit's traffic stays on that unit's own links

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
        self.routing = level.routing if level.routing in ROUTINGS else self.habit(depth)
        striped = self.routing == "striped"
        self.lanes = 1 if striped else max(1, int(self.ports + 1e-9))
        self.lane = self.ports * level.bandwidth / self.lanes  # B/s of one of them
        self.gates = self.units * self.lanes if self.has_ports else 0
        self.inner_links = self.core()

    @classmethod
    def stages(cls, level: Level, unit: int) -> list[Level]:
        """The levels that one level of a spec stands for."""
        return [level]

    def default_ports(self, inner: float) -> float:
        """Ports of a unit when the spec gives none: its inner ports over the oversubscription."""
        return inner / self.level.oversubscription

    def habit(self, depth: int) -> str:
        """How flows choose among ports when the spec does not say."""
        if depth == 0:
            return "striped"
        return self.spread or ("affinity" if self.level.ports else "d-mod-k")

    @property
    def period(self) -> int:
        """Devices by which everything may be shifted and still look the same."""
        return self.unit

    def core(self) -> int:
        """Number of links between the units of one copy, besides the ports."""
        return 0

    def path(self, start: Ids, end: Ids, source: Ids, target: Ids) -> list[Ids]:
        """Links (columns) of one copy that lead from unit `start` to unit `end` of it."""
        return []

    def bypass(self, start: Ids, end: Ids) -> NDArray[np.bool_] | bool:
        """Which flows between two units of one copy need no port at all."""
        return False

    def inside(self) -> list[tuple[int, int, float, str]]:
        """The links of one copy: (from, to, B/s, what it is).

        Units are 0 … width − 1, the level's own switches are numbered from `width` on.
        """
        return []

    def capacities(self) -> Numbers:
        """B/s of each link: ports up, ports down, then the inside of each copy."""
        inside = np.array([link[2] for link in self.inside()] * self.copies, float)
        return np.concatenate([np.full(2 * self.gates, self.lane), inside])

    def labels(self) -> list[str]:
        """What each link is, in words, in the order of `capacities`."""
        unit, name = self.unit_name, self.level.name
        ports = [f"{unit} uplinks"] * self.gates + [f"{unit} downlinks"] * self.gates
        return ports + [f"{name} {link[3]}" for link in self.inside()] * self.copies

    def gate(self, device: Ids, key: Ids, salt: Ids) -> Ids:
        """The port of its unit that a device's flow takes; `key` numbers the target's port."""
        if self.routing == "striped":
            lane = np.zeros_like(device)
        elif self.routing == "affinity":
            lane = device % self.unit * self.lanes // self.unit
        elif self.routing == "ecmp":
            lane = salt % self.lanes
        else:
            lane = key % self.lanes
        return device // self.unit * self.lanes + lane

    def number(self, device: Ids, key: Ids) -> Ids:
        """The number of the port a device hangs on, seen from the level above."""
        if self.routing != "affinity":
            return key
        return device // self.unit * self.lanes + device % self.unit * self.lanes // self.unit

    def gate_switch(self, unit: int, lane: int) -> int:
        """Which of the level's own switches a unit's port leads to."""
        return self.width + (lane if self.routing in ("d-mod-k", "ecmp") else 0)


ROUTINGS = ("striped", "affinity", "d-mod-k", "ecmp")

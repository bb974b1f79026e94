"""A network that could be built: its switches and cables one by one, and its levels.

Switches, cables, ports in use, hops, and the cables across the middle are counted on the wiring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oracle.network.arrays import Ints
from oracle.spec.level import Level

# 130 ns through a switch (NVIDIA QM8700 data sheet); assumed: 20 m of cable at 5 ns/m
HOP = 230e-9
SOURCES = 2**22  # cables times switches, up to which hops are counted from every switch
SAMPLED = 64  # switches from which hops are counted in larger networks, spread evenly
Trunk: TypeAlias = tuple[int, int, int]  # two switches, and cables between them


@dataclass(frozen=True)
class Needs:
    """What a network has to join: nodes and their ports, by switches of so many ports."""

    nodes: int
    devices: int  # of a node
    nics: int  # ports of a node
    ports: int  # of a switch
    bandwidth: float  # of a port, B/s one way
    latency: float  # α of a message through one switch
    share: float | None = None  # of the bandwidth, what collectives were measured to get
    name: str = "network"  # of the lowest level

    def level(self, units: int, hops: float, name: str = "", **more: Any) -> Level:
        """Return a level that joins `units` nodes, `hops` cables between switches on the way."""
        return Level(
            name or self.name, self.devices * units, self.bandwidth, self.latency + HOP * hops,
            source="designed; assumed: 0.23 us a switch more", link="network", share=self.share,
            **more,
        )  # fmt: skip


class Refusal(NamedTuple):
    """A network that cannot be built, and why."""

    name: str
    why: str


@dataclass(frozen=True, eq=False)
class Wiring:
    """Which switch each port of each node is on, and the trunks between switches by length."""

    home: Ints  # the switch of each port, (nodes, ports in use)
    switches: int
    trunks: Mapping[str, Sequence[Trunk]]  # `group`: to a switch near by, `global`: across the hall
    circuits: int = 0  # ports of nodes on optical switches, beside `home`

    @cached_property
    def ends(self) -> tuple[Ints, Ints, Ints]:
        """(from, to, cables) of all trunks."""
        cables = [trunk for trunks in self.trunks.values() for trunk in trunks]
        ends = np.array(cables, np.int64).reshape(-1, 3)
        return ends[:, 0], ends[:, 1], ends[:, 2]

    @cached_property
    def cables(self) -> dict[str, int]:
        """The number of cables by length."""
        count_by_length = {"node": int(self.home.size) + self.circuits}
        for length, trunks in self.trunks.items():
            count_by_length[length] = sum(count for _, _, count in trunks)
        return count_by_length

    @cached_property
    def ports(self) -> Ints:
        """The number of ports of each switch that are in use."""
        ports = np.bincount(self.home.ravel(), minlength=self.switches)
        a, b, count = self.ends
        for end in (a, b):
            np.add.at(ports, end, count)
        return ports

    @cached_property
    def hops(self) -> Ints:
        """Cables on the shortest way between two switches with nodes; −1 to another plane.

        Columns are the switches from which they are counted, all or `SAMPLED`.
        """
        homes = np.unique(self.home)
        a, b, _ = self.ends
        a, b = np.concatenate([a, b]), np.concatenate([b, a])
        step = 1 if len(homes) * len(a) <= SOURCES else max(1, len(homes) // SAMPLED)
        blocks: list[Ints] = []
        for first in range(0, len(homes), 64 * step):
            sources = homes[first : first + 64 * step : step]
            reached = np.zeros(self.switches, np.uint64)  # a bit for each of 64 sources
            reached[sources] = np.uint64(1) << np.arange(len(sources), dtype=np.uint64)
            hops = np.zeros((len(homes), len(sources)), np.int64)
            every = np.uint64((1 << len(sources)) - 1)
            while (short := reached[homes] != every).any():
                heard = reached[homes[short]][:, None] >> np.arange(len(sources), dtype=np.uint64)
                hops[short] += (heard & np.uint64(1)) == 0
                before = reached.copy()
                np.bitwise_or.at(reached, b, before[a])
                if (reached == before).all():
                    hops[short] = np.where(heard & np.uint64(1), hops[short], -1)
                    break
            blocks.append(hops)
        return np.concatenate(blocks, axis=1)

    @property
    def diameter(self) -> int:
        """Cables between switches on the longest of all shortest ways."""
        return int(self.hops.max(initial=0))

    @property
    def mean(self) -> float:
        """Cables between switches on the shortest way between two, on average."""
        distances = self.hops[self.hops > 0]
        return float(distances.mean()) if len(distances) else 0.0

    @cached_property
    def middle(self) -> int:
        """Cables between the first half of the nodes and the second.

        A switch belongs to the half of most of its nodes, or of most of its cables from below; the
        cables of its other nodes are cut.
        """
        nodes = len(self.home)
        first = np.bincount(self.home[: -(-nodes // 2)].ravel(), minlength=self.switches)
        second = np.bincount(self.home[-(-nodes // 2) :].ravel(), minlength=self.switches)
        weight = (second - first).astype(float)
        placed = np.zeros(self.switches, bool)
        placed[np.unique(self.home)] = True
        a, b, count = self.ends
        while not placed.all():  # one tier after the other
            new = np.zeros(self.switches)
            near = np.zeros(self.switches, bool)
            for low, high in ((a, b), (b, a)):
                up = placed[low] & ~placed[high]
                np.add.at(new, high[up], np.sign(weight[low[up]]) * count[up])
                near[high[up]] = True
            if not near.any():
                break
            weight[near], placed = new[near], placed | near
        left = weight <= 0
        return int(np.minimum(first, second).sum() + count[left[a] != left[b]].sum())


@dataclass(frozen=True, eq=False)
class Design:
    """One network: its name, its wiring, and the levels that are priced."""

    name: str
    words: str
    wiring: Wiring
    levels: tuple[Level, ...]
    optical: int = 0  # optical switches, beside those of packets
    algorithms: tuple[str, ...] = ()  # that suit it, beside those on offer anyway
    routings: tuple[str, ...] = ()  # that its switches may take flow by flow, beside the usual one

    @property
    def switches(self) -> int:
        """Switches of packets and of circuits."""
        return self.wiring.switches + self.optical

    @property
    def cables(self) -> int:
        return sum(self.wiring.cables.values())

    @property
    def ways(self) -> Iterator[tuple[Level, ...]]:
        """The levels, and once more with each other routing."""
        yield self.levels
        for routing in self.routings:
            yield *self.levels[:-1], replace(self.levels[-1], routing=routing)

    @property
    def bisection(self) -> float:
        """Cables across the middle over ports of half the nodes; 1 where the ports set the pace."""
        return min(1.0, self.wiring.middle / (self.wiring.home.size / 2))


def by_node(needs: Needs, nodes_a_switch: int) -> Ints:
    """Return the switch of each port of each node, with all ports of a node on one switch."""
    home = np.arange(needs.nodes) // nodes_a_switch
    return np.repeat(home[:, None], needs.nics, axis=1)


def counted(count: int, noun: str = "port") -> str:
    """Return a count with its noun: `1 port`, `8 ports`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def divisor_of(number: int, minimum: int) -> int:
    """Return the smallest divisor of a number that is `minimum` or more."""
    return next(divisor for divisor in range(max(1, minimum), number + 1) if number % divisor == 0)

"""A network that could be built: its switches and cables one by one, and the levels it comes to.

What is said of a design is counted on its wiring: switches, cables, ports in use, hops, and the
cables across its middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oracle.network.arrays import Ints
from oracle.spec.level import Level

# 130 ns through a switch (NVIDIA QM8700 data sheet); assumed: 20 m of cable at 5 ns/m
HOP = 230e-9
SOURCES = 2**22  # cables times switches, up to which hops are counted from every switch
SOME = 64  # switches else, spread evenly
Trunk: TypeAlias = tuple[int, int, int]  # two switches, and cables between them


@dataclass(frozen=True)
class Wanted:
    """What a network is to join: nodes, their ports, and switches of so many ports."""

    nodes: int
    devices: int  # of a node
    nics: int  # ports of a node
    ports: int  # of a switch
    bandwidth: float  # of a port, B/s one way
    latency: float  # α of a message through one switch
    share: float | None = None  # of the bandwidth, what collectives were measured to get
    name: str = "network"  # of the lowest level

    def level(self, units: int, hops: float, name: str = "", **more: Any) -> Level:
        """A level that joins so many nodes, `hops` cables between switches on the way."""
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

    home: Ints  # (nodes, ports in use) the switch
    switches: int
    trunks: Mapping[str, Sequence[Trunk]]  # `group`: to a switch near by, `global`: across the hall
    circuits: int = 0  # ports of nodes on optical switches, beside `home`

    @cached_property
    def ends(self) -> tuple[Ints, Ints, Ints]:
        """(from, to, cables) of all trunks."""
        every = [trunk for some in self.trunks.values() for trunk in some]
        found = np.array(every, np.int64).reshape(-1, 3)
        return found[:, 0], found[:, 1], found[:, 2]

    @cached_property
    def cables(self) -> dict[str, int]:
        """How many, by length."""
        found = {"node": int(self.home.size) + self.circuits}
        for length, some in self.trunks.items():
            found[length] = sum(count for _, _, count in some)
        return found

    @cached_property
    def ports(self) -> Ints:
        """Ports in use of each switch."""
        found = np.bincount(self.home.ravel(), minlength=self.switches)
        a, b, count = self.ends
        for end in (a, b):
            np.add.at(found, end, count)
        return found

    @cached_property
    def hops(self) -> Ints:
        """Cables between switches on the shortest way from some switch with nodes to each such.

        −1 to those of another plane.
        """
        homes = np.unique(self.home)
        a, b, _ = self.ends
        a, b = np.concatenate([a, b]), np.concatenate([b, a])
        step = 1 if len(homes) * len(a) <= SOURCES else max(1, len(homes) // SOME)
        found: list[Ints] = []
        for first in range(0, len(homes), 64 * step):
            some = homes[first : first + 64 * step : step]
            reached = np.zeros(self.switches, np.uint64)  # a bit for each of 64 sources
            reached[some] = np.uint64(1) << np.arange(len(some), dtype=np.uint64)
            hops = np.zeros((len(homes), len(some)), np.int64)
            every = np.uint64((1 << len(some)) - 1)
            while (short := reached[homes] != every).any():
                seen = reached[homes[short]][:, None] >> np.arange(len(some), dtype=np.uint64)
                hops[short] += (seen & np.uint64(1)) == 0
                before = reached.copy()
                np.bitwise_or.at(reached, b, before[a])
                if (reached == before).all():
                    hops[short] = np.where(seen & np.uint64(1), hops[short], -1)
                    break
            found.append(hops)
        return np.concatenate(found, axis=1)

    @property
    def diameter(self) -> int:
        """Cables between switches on the longest of all shortest ways between two nodes."""
        return int(self.hops.max(initial=0))

    @property
    def mean(self) -> float:
        """The same on average, a switch itself left out."""
        apart = self.hops[self.hops > 0]
        return float(apart.mean()) if len(apart) else 0.0

    @cached_property
    def middle(self) -> int:
        """Cables between the first half of the nodes and the second.

        A switch counts to the half that most of its nodes are of, or most of its cables below lead
        to; cables of other nodes on it are cut.
        """
        nodes = len(self.home)
        first = np.bincount(self.home[: -(-nodes // 2)].ravel(), minlength=self.switches)
        second = np.bincount(self.home[-(-nodes // 2) :].ravel(), minlength=self.switches)
        weight = (second - first).astype(float)
        known = np.zeros(self.switches, bool)
        known[np.unique(self.home)] = True
        a, b, count = self.ends
        while not known.all():  # one tier after the other
            new = np.zeros(self.switches)
            near = np.zeros(self.switches, bool)
            for low, high in ((a, b), (b, a)):
                up = known[low] & ~known[high]
                np.add.at(new, high[up], np.sign(weight[low[up]]) * count[up])
                near[high[up]] = True
            if not near.any():
                break
            weight[near], known = new[near], known | near
        left = weight <= 0
        return int(np.minimum(first, second).sum() + count[left[a] != left[b]].sum())


@dataclass(frozen=True, eq=False)
class Design:
    """One network: what it is called, how it is wired, and the levels that are priced."""

    name: str
    words: str
    wiring: Wiring
    levels: tuple[Level, ...]
    optical: int = 0  # optical switches, beside those of packets
    algorithms: tuple[str, ...] = ()  # that suit it, beside those on offer anyway
    routings: tuple[str, ...] = ()  # that its switches may take flow by flow, beside the usual one

    @property
    def switches(self) -> int:
        """Of packets and of circuits."""
        return self.wiring.switches + self.optical

    @property
    def cables(self) -> int:
        return sum(self.wiring.cables.values())

    @property
    def ways(self) -> Iterator[tuple[Level, ...]]:
        """Its levels, and once more with each other routing."""
        yield self.levels
        for routing in self.routings:
            yield *self.levels[:-1], replace(self.levels[-1], routing=routing)

    @property
    def bisection(self) -> float:
        """Cables across the middle over ports of half of the nodes; 1 where these set the pace."""
        return min(1.0, self.wiring.middle / (self.wiring.home.size / 2))


def by_node(wanted: Wanted, each: int) -> Ints:
    """All ports of a node on one switch, so many nodes a switch."""
    home = np.arange(wanted.nodes) // each
    return np.repeat(home[:, None], wanted.nics, axis=1)


def counted(count: int, what: str = "port") -> str:
    """`1 port`, `8 ports`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def most(fitting: Iterable[int]) -> int:
    """The largest of some numbers; 0 where there is none."""
    return max(fitting, default=0)


def enough(whole: int, least: int) -> int:
    """The smallest divisor of a whole that is at least so much."""
    return next(each for each in range(max(1, least), whole + 1) if whole % each == 0)

"""A level of switches, or of units, that are wired in any way; routes are shortest ways.

The kinds that stand on it say their links alone. Between two vertices all links are one trunk.
"""

from __future__ import annotations

from functools import cached_property
from math import lcm
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from oracle.network.arrays import Bools, Few, Ints, Numbers
from oracle.network.topology.fabric import NOWHERE, Fabric
from oracle.spec.document import refusal
from oracle.spec.level import Level

Trunk: TypeAlias = tuple[int, int, float, str]  # from, to, B/s, what it is
LARGEST = 2**25  # pairs of a vertex and a destination for which ways are looked up
WAYS = 16  # equal ways that an adaptive flow is spread over, at most
TABLE = 2**22  # links of ways that are remembered
FAR = np.int16(2**14)


class Wiring(NamedTuple):
    """Vertices of one copy of a level; trunks both ways, those taken first first."""

    vertices: int
    home: Ints  # of each unit
    trunks: list[Trunk]
    passing: Bools  # which vertices pass on what is not for them


class Wired(Fabric):
    """Switches wired in any way, units behind their ports; routes by the fewest hops.

    `minimal` is the first of the shortest ways, in the order in which a kind lists its links;
    `d-mod-k` one of them by the target's number, as subnet managers deal targets to ports
    [zahavi2012]; `ecmp` by a hash of the two ends; `adaptive` spreads each flow evenly over all,
    hop by hop, 16 at most [dixit2013]; `valiant` goes by way of a switch that a hash picks
    [valiant1982].
    """

    kind: ClassVar[str] = ""
    usual_routing: ClassVar[str] = "affinity"  # of a unit's flows over its ports
    tree = False

    def wire(self) -> Wiring:
        """The wiring of one copy, its trunks one way or both, each once."""
        raise NotImplementedError

    @cached_property
    def wiring(self) -> Wiring:
        """The wiring, with each trunk both ways and no two between the same vertices."""
        found = self.wire()
        if found.vertices * len(np.unique(found.home)) > LARGEST:
            what = f"{found.vertices:,} switches and hosts"
            raise refusal(self.level.name, what, "no more than ways can be looked up for")
        joined: dict[tuple[int, int], tuple[float, str]] = {}
        for a, b, rate, what in found.trunks:
            for ends in ((a, b), (b, a)):
                before = joined.get(ends, (0.0, what))
                joined[ends] = before[0] + rate, before[1]
        trunks = [(a, b, rate, what) for (a, b), (rate, what) in joined.items()]
        return found._replace(trunks=sorted(trunks, key=lambda one: one[0]))

    def routing_of(self, level: Level, depth: int, switches: bool) -> str:
        """Over its ports a unit sends by the device's place; `way` is for the switches."""
        return self.usual_routing if depth else "striped"

    @property
    def way(self) -> str:
        """How flows find their way between switches."""
        return self.level.routing or self.usual_way

    usual_way: ClassVar[str] = "minimal"

    @property
    def period(self) -> int:
        return self.level.devices

    @property
    def repeats(self) -> int:
        return self.level.devices

    def count_inside(self) -> int:
        return len(self.wiring.trunks)

    @cached_property
    def out(self) -> tuple[Ints, Ints]:
        """(vertices, most) numbers of the trunks that leave each vertex, and where they lead."""
        trunks, vertices = self.wiring.trunks, self.wiring.vertices
        start = np.array([one[0] for one in trunks])
        degree = np.bincount(start, minlength=vertices)
        first = np.cumsum(degree) - degree
        numbers = np.full((vertices, int(degree.max(initial=1))), NOWHERE)
        numbers[start, np.arange(len(trunks)) - first[start]] = np.arange(len(trunks))
        ends = np.array([one[1] for one in trunks])
        return numbers, np.where(numbers == NOWHERE, 0, ends[numbers])

    @cached_property
    def hops(self) -> tuple[Ints, np.ndarray]:
        """Number of each vertex among destinations, and (destinations, vertices) hops to them."""
        wiring = self.wiring
        numbers, ends = self.out
        wanted = np.unique(wiring.home) if self.way != "valiant" else np.arange(wiring.vertices)
        place = np.full(wiring.vertices, NOWHERE)
        place[wanted] = np.arange(len(wanted))
        found = np.full((len(wanted), wiring.vertices), FAR, np.int16)
        found[np.arange(len(wanted)), wanted] = 0
        there = numbers != NOWHERE
        for hop in range(1, wiring.vertices):
            # a vertex is so far off if a neighbour that passes on is one nearer, or is the end
            near = found == hop - 1
            near &= wiring.passing | (hop == 1)
            reached = np.zeros_like(near)
            for k in range(numbers.shape[1]):
                reached |= near[:, ends[:, k]] & there[:, k]
            reached &= found == FAR
            if not reached.any():
                break
            found[reached] = hop
        if (found[:, np.unique(wiring.home)] == FAR).any():
            raise refusal(self.level.name, "some units are not joined", "links between them")
        return place, found

    @cached_property
    def diameter(self) -> int:
        """Hops of the longest way that is taken between two vertices."""
        place, hops = self.hops
        ends = np.unique(self.wiring.home)
        if self.way == "valiant":
            ends = np.union1d(ends, np.flatnonzero(self.wiring.passing))
        return int(hops[place[ends]][:, ends].max())

    @cached_property
    def spread(self) -> int:  # type: ignore[override]
        """Over how many ways each flow is spread evenly."""
        if self.way != "adaptive":
            return 1
        every = 1
        home = np.unique(self.wiring.home)
        for target in home[:: max(1, len(home) // 64)]:
            for count in np.unique(self.ways_to(int(target))[home]).tolist():
                every = lcm(every, int(count) or 1)
                if every > WAYS:
                    return WAYS
        return every

    def ways_to(self, target: int) -> Ints:
        """How many shortest ways lead from each vertex to one of them."""
        place, hops = self.hops
        numbers, ends = self.out
        left = hops[place[target]]
        ahead = (numbers != NOWHERE) & (left[ends] == left[:, None] - 1)
        ahead &= self.wiring.passing[ends] | (ends == target)
        found = np.zeros(self.wiring.vertices, np.int64)
        found[target] = 1
        for hop in range(1, int(left.max(where=left < FAR, initial=0)) + 1):
            at = np.flatnonzero(left == hop)
            found[at] = np.minimum((found[ends[at]] * ahead[at]).sum(axis=1), 2**30)
        return found

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        home = self.wiring.home
        at, to = home[start], home[end]
        if self.way in ("minimal", "adaptive"):
            if self.table is None:
                return self.ways(at, to)
            place = self.hops[0]
            found = self.table[:, place[at], place[to]]
            return list(np.where(found < 0, NOWHERE, found).astype(np.int64))
        if self.way == "d-mod-k":
            return self.shortest(at, to, end)
        key = source * 2654435761 + target * 40503 >> 6
        if self.way == "valiant":
            able = np.flatnonzero(self.wiring.passing)
            middle = np.where(at == to, to, able[key % len(able)])
            return self.shortest(at, middle, None) + self.shortest(middle, to, None)
        return self.shortest(at, to, key)

    @cached_property
    def table(self) -> Numbers | None:
        """(columns, from, to) the ways between all homes, where they are not too many."""
        home = np.unique(self.wiring.home)
        if len(home) ** 2 * self.diameter * self.spread > TABLE:
            return None
        at, to = (each.ravel() for each in np.meshgrid(home, home, indexing="ij"))
        found = np.stack(self.ways(at, to) or [np.full(at.shape, NOWHERE)])
        return found.reshape(-1, len(home), len(home)).astype(np.int32)

    def ways(self, at: Ints, to: Ints) -> list[Ints]:
        """The way of each flow between two vertices, or all over which it is spread."""
        if self.way == "minimal":
            return self.shortest(at, to, None)
        return [link for k in range(self.spread) for link in self.shortest(at, to, at + k)]

    def shortest(self, at: Ints, to: Ints, pick: Ints | None) -> list[Ints]:
        """Links of a shortest way, hop by hop: the first of equals, or the one picked."""
        place, hops = self.hops
        numbers, ends = self.out
        rows = place[to]
        columns: list[Ints] = []
        for _ in range(self.diameter):
            if pick is None:
                choice = self._choice(rows, at, to, None)
            else:
                count = self._counted(rows, at, to)
                wanted, pick = pick % count, pick // count
                choice = self._choice(rows, at, to, wanted)
            going = hops[rows, at] > 0
            columns.append(np.where(going, numbers[at, choice], NOWHERE))
            at = np.where(going, ends[at, choice], at)
        return columns

    def _counted(self, rows: Ints, at: Ints, to: Ints) -> Ints:
        """How many ways out lie on a shortest way, 1 at its end."""
        if self.onward is None:
            return np.asarray(np.maximum(self._able(rows, at, to).sum(axis=1), 1))
        return np.asarray(self.onward[1][rows, at].astype(np.int64))

    def _choice(self, rows: Ints, at: Ints, to: Ints, wanted: Ints | None) -> Ints:
        """The first way out that lies on a shortest way, or the one wanted."""
        if self.onward is not None:
            found = self.onward[0][rows, at, 0 if wanted is None else wanted]
            return np.asarray(found.astype(np.int64))
        able = self._able(rows, at, to)
        if wanted is None:
            return np.asarray(able.argmax(axis=1))
        return np.asarray((able.cumsum(axis=1) > wanted[:, None]).argmax(axis=1))

    def _able(self, rows: Ints, at: Ints, to: Ints) -> Bools:
        """(flows, most) which trunks that leave a vertex lie on a shortest way."""
        (numbers, ends), (_, hops) = self.out, self.hops
        onward = ends[at]
        able = (numbers[at] != NOWHERE) & (
            hops[rows[:, None], onward] == hops[rows, at][:, None] - 1
        )
        return np.asarray(able & (self.wiring.passing[onward] | (onward == to[:, None])))

    @cached_property
    def onward(self) -> tuple[Few, Few] | None:
        """(destinations, vertices, most) ways out, those on a shortest way first, and how many
        these are, 1 at the end; None where they are too many to remember.
        """
        place, hops = self.hops
        most = self.out[0].shape[1]
        if hops.size * most > TABLE:
            return None
        wanted = np.flatnonzero(place != NOWHERE)
        rows, at = (each.ravel() for each in np.indices(hops.shape))
        able = self._able(rows, at, wanted[rows])
        order = np.argsort(~able, axis=1, kind="stable").astype(np.int16)
        count = np.maximum(able.sum(axis=1), 1).astype(np.int16)
        return order.reshape(*hops.shape, most), count.reshape(hops.shape)

    def inside(self) -> list[Trunk]:
        # vertices that are no units come after the units, as everywhere
        wiring = self.wiring
        named = np.arange(wiring.vertices) + (self.width if self.has_ports else 0)
        return [(int(named[a]), int(named[b]), rate, what) for a, b, rate, what in wiring.trunks]

    def port_switch(self, unit: int, lane: int) -> int:
        return self.width + int(self.wiring.home[unit % self.width])

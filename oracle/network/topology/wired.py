"""A level of switches, or of units, that are wired in any way; routes are shortest ways.

A kind of level that builds on it lists its links and no more. All links between two vertices are
one trunk.
"""

from __future__ import annotations

from functools import cached_property
from math import lcm
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from oracle.network.arrays import Bools, Ints, LinkNumbers, ShortInts
from oracle.network.topology.fabric import NOWHERE, Fabric
from oracle.spec.document import refusal
from oracle.spec.level import Level

Trunk: TypeAlias = tuple[int, int, float, str]  # from, to, B/s, kind in words
LARGEST = 2**25  # pairs of a vertex and a destination for which ways are looked up
WAYS = 16  # equal ways that an adaptive flow is spread over, at most
TABLE = 2**22  # links of ways that are remembered
FAR = np.int16(2**14)


class Wiring(NamedTuple):
    """Vertices of one copy of a level, and trunks in the order in which routes prefer them."""

    vertices: int
    home: Ints  # the vertex of each unit
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
        """Return the wiring of one copy, each trunk once, one way or both."""
        raise NotImplementedError

    @cached_property
    def wiring(self) -> Wiring:
        """The wiring with each trunk both ways, and no two trunks between the same vertices."""
        wiring = self.wire()
        if wiring.vertices * len(np.unique(wiring.home)) > LARGEST:
            raise refusal(self.level.name, f"{wiring.vertices:,} switches and hosts",
                          "no more than ways can be looked up for")  # fmt: skip
        joined: dict[tuple[int, int], tuple[float, str]] = {}
        for a, b, rate, label in wiring.trunks:
            for ends in ((a, b), (b, a)):
                before = joined.get(ends, (0.0, label))
                joined[ends] = before[0] + rate, before[1]
        trunks = [(a, b, rate, label) for (a, b), (rate, label) in joined.items()]
        return wiring._replace(trunks=sorted(trunks, key=lambda trunk: trunk[0]))

    def routing_of(self, level: Level, depth: int, switches: bool) -> str:
        """Return the routing over a unit's ports: by the device's place; `way` is for switches."""
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
        """(vertices, degree) numbers of the trunks that leave each vertex, and where they lead."""
        trunks, vertices = self.wiring.trunks, self.wiring.vertices
        start = np.array([trunk[0] for trunk in trunks])
        degree = np.bincount(start, minlength=vertices)
        first = np.cumsum(degree) - degree
        numbers = np.full((vertices, int(degree.max(initial=1))), NOWHERE)
        numbers[start, np.arange(len(trunks)) - first[start]] = np.arange(len(trunks))
        ends = np.array([trunk[1] for trunk in trunks])
        return numbers, np.where(numbers == NOWHERE, 0, ends[numbers])

    @cached_property
    def hops(self) -> tuple[Ints, np.ndarray]:
        """The number of each vertex among destinations; (destinations, vertices) hops to these."""
        wiring = self.wiring
        numbers, ends = self.out
        destinations = np.arange(wiring.vertices)
        if self.way != "valiant":
            destinations = np.unique(wiring.home)
        place = np.full(wiring.vertices, NOWHERE)
        place[destinations] = np.arange(len(destinations))
        hops = np.full((len(destinations), wiring.vertices), FAR, np.int16)
        hops[np.arange(len(destinations)), destinations] = 0
        leads = numbers != NOWHERE
        for hop in range(1, wiring.vertices):
            # a vertex is so far off if a neighbour that passes on is one nearer, or is the end
            near = hops == hop - 1
            near &= wiring.passing | (hop == 1)
            reached = np.zeros_like(near)
            for k in range(numbers.shape[1]):
                reached |= near[:, ends[:, k]] & leads[:, k]
            reached &= hops == FAR
            if not reached.any():
                break
            hops[reached] = hop
        if (hops[:, np.unique(wiring.home)] == FAR).any():
            raise refusal(self.level.name, "some units are not joined", "links between them")
        return place, hops

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
        """The number of ways over which each flow is spread evenly."""
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
        """Return how many shortest ways lead from each vertex to the target."""
        place, hops = self.hops
        numbers, ends = self.out
        left = hops[place[target]]
        ahead = (numbers != NOWHERE) & (left[ends] == left[:, None] - 1)
        ahead &= self.wiring.passing[ends] | (ends == target)
        ways = np.zeros(self.wiring.vertices, np.int64)
        ways[target] = 1
        for hop in range(1, int(left.max(where=left < FAR, initial=0)) + 1):
            vertices = np.flatnonzero(left == hop)
            ways[vertices] = np.minimum((ways[ends[vertices]] * ahead[vertices]).sum(axis=1), 2**30)
        return ways

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        home = self.wiring.home
        begin, stop = home[start], home[end]
        if self.way in ("minimal", "adaptive"):
            if self.table is None:
                return self.ways(begin, stop)
            place = self.hops[0]
            links = self.table[:, place[begin], place[stop]]
            return list(np.where(links < 0, NOWHERE, links).astype(np.int64))
        if self.way == "d-mod-k":
            return self.shortest(begin, stop, end)
        key = source * 2654435761 + target * 40503 >> 6
        if self.way == "valiant":
            able = np.flatnonzero(self.wiring.passing)
            middle = np.where(begin == stop, stop, able[key % len(able)])
            return self.shortest(begin, middle, None) + self.shortest(middle, stop, None)
        return self.shortest(begin, stop, key)

    @cached_property
    def table(self) -> LinkNumbers | None:
        """(columns, from, to) ways between all homes; None where they are too many."""
        home = np.unique(self.wiring.home)
        if len(home) ** 2 * self.diameter * self.spread > TABLE:
            return None
        begin, stop = (vertex.ravel() for vertex in np.meshgrid(home, home, indexing="ij"))
        ways = np.stack(self.ways(begin, stop) or [np.full(begin.shape, NOWHERE)])
        return ways.reshape(-1, len(home), len(home)).astype(np.int32)

    def ways(self, begin: Ints, stop: Ints) -> list[Ints]:
        """Return each flow's way between two vertices, or all ways over which it is spread."""
        if self.way == "minimal":
            return self.shortest(begin, stop, None)
        return [link for k in range(self.spread) for link in self.shortest(begin, stop, begin + k)]

    def shortest(self, vertex: Ints, stop: Ints, pick: Ints | None) -> list[Ints]:
        """Return the links of a shortest way, hop by hop: the first of equals, or by `pick`."""
        place, hops = self.hops
        numbers, ends = self.out
        rows = place[stop]
        columns: list[Ints] = []
        for _ in range(self.diameter):
            if pick is None:
                choice = self._choice(rows, vertex, stop, None)
            else:
                count = self._counted(rows, vertex, stop)
                turn, pick = pick % count, pick // count
                choice = self._choice(rows, vertex, stop, turn)
            going = hops[rows, vertex] > 0
            columns.append(np.where(going, numbers[vertex, choice], NOWHERE))
            vertex = np.where(going, ends[vertex, choice], vertex)
        return columns

    def _counted(self, rows: Ints, vertex: Ints, stop: Ints) -> Ints:
        """Return how many trunks that leave a vertex lie on a shortest way, 1 at its end."""
        if self.onward is None:
            return np.asarray(np.maximum(self._able(rows, vertex, stop).sum(axis=1), 1))
        return np.asarray(self.onward[1][rows, vertex].astype(np.int64))

    def _choice(self, rows: Ints, vertex: Ints, stop: Ints, turn: Ints | None) -> Ints:
        """Return the trunk by number of turn, of those that leave a vertex on a shortest way."""
        if self.onward is not None:
            choice = self.onward[0][rows, vertex, 0 if turn is None else turn]
            return np.asarray(choice.astype(np.int64))
        able = self._able(rows, vertex, stop)
        if turn is None:
            return np.asarray(able.argmax(axis=1))
        return np.asarray((able.cumsum(axis=1) > turn[:, None]).argmax(axis=1))

    def _able(self, rows: Ints, vertex: Ints, stop: Ints) -> Bools:
        """Return (flows, degree) which trunks that leave a vertex lie on a shortest way."""
        (numbers, ends), (_, hops) = self.out, self.hops
        onward = ends[vertex]
        able = (numbers[vertex] != NOWHERE) & (
            hops[rows[:, None], onward] == hops[rows, vertex][:, None] - 1
        )
        return np.asarray(able & (self.wiring.passing[onward] | (onward == stop[:, None])))

    @cached_property
    def onward(self) -> tuple[ShortInts, ShortInts] | None:
        """(destinations, vertices, degree) trunks out, those on a shortest way first, and their
        number, 1 at the end; None where they are too many to remember.
        """
        place, hops = self.hops
        degree = self.out[0].shape[1]
        if hops.size * degree > TABLE:
            return None
        destinations = np.flatnonzero(place != NOWHERE)
        rows, vertex = (numbers.ravel() for numbers in np.indices(hops.shape))
        able = self._able(rows, vertex, destinations[rows])
        order = np.argsort(~able, axis=1, kind="stable").astype(np.int16)
        count = np.maximum(able.sum(axis=1), 1).astype(np.int16)
        return order.reshape(*hops.shape, degree), count.reshape(hops.shape)

    def inside(self) -> list[Trunk]:
        # vertices that are no units come after the units, as everywhere
        wiring = self.wiring
        named = np.arange(wiring.vertices) + (self.width if self.has_ports else 0)
        return [(int(named[a]), int(named[b]), rate, label) for a, b, rate, label in wiring.trunks]

    def port_switch(self, unit: int, lane: int) -> int:
        return self.width + int(self.wiring.home[unit % self.width])

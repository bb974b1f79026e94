"""Networks of unlike partitions and the links between them, as one network.

Devices are numbered as one of the partitions would number them if all were its own. A flow inside
a partition takes that partition's links; one that leaves it climbs through all of them, crosses
the joint, and comes down through those of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from oracle.network.arrays import Few, Floats, Ints
from oracle.network.topology.fabric import Fabric
from oracle.network.topology.topology import Topology
from oracle.spec.level import Level
from oracle.spec.system import Region


class Joined(Topology):
    """One graph of several networks: that of the partition that counts all, then the others'."""

    uniform = False

    def __init__(
        self, levels: Sequence[Level], devices: int, regions: Sequence[Region],
        others: Sequence[Topology], circuits: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(levels, devices, circuits=circuits)
        self.regions = tuple(regions)
        self.slots = [np.array(one.slots) for one in regions]
        self.until = np.cumsum([one.devices for one in regions])
        every = iter(others)
        found: list[Topology | None] = [None if one.system is None else next(every)
                                        for one in regions]  # fmt: skip
        sizes = [0 if one is None else one.links for one in found]
        begin = self.links + np.cumsum(sizes) - np.array(sizes)
        self.each = [(0, None) if one is None else (int(at), one)
                     for at, one in zip(begin, found, strict=True)]  # fmt: skip
        self.own, self.links = self.links, self.links + sum(sizes)

    @cached_property
    def rank(self) -> Ints:
        """The rank on each device."""
        slots = next(slots for slots, (_, one) in zip(self.slots, self.each, strict=True)
                     if one is None)  # fmt: skip
        found = np.zeros(int(slots.max()) + 1, np.int64)
        found[slots] = np.arange(len(slots))
        return found

    @property
    def capacity(self) -> Floats:
        found = super().capacity
        for begin, one in self.each:
            if one is not None:
                found[begin : begin + one.links] = one.capacity[:-1]
        return found

    @cached_property
    def spreads(self) -> bool:
        return any(fabric.spread > 1 for one in (self, *self.others) for fabric in one.fabrics)

    @property
    def others(self) -> list[Topology]:
        return [one for _, one in self.each if one is not None]

    @property
    def innermost(self) -> list[Fabric]:
        return [one.fabrics[0] for one in (self, *self.others)]

    def spread_route(
        self, source: Ints, target: Ints, into: Ints | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Links inside partitions, and those by which flows leave one and reach another."""
        source, target = np.broadcast_arrays(np.asarray(source), np.asarray(target))
        level = np.where(source == target, -1, self.meeting_level(source, target))
        ends = self.rank[source], self.rank[target]
        a, b = (np.searchsorted(self.until, each, "right") for each in ends)
        columns: list[Ints] = []
        parts: list[float] = []
        for number, (begin, one) in enumerate(self.each):
            there = [self.slots[number][each] for each in ends]
            inside = (a == number) & (b == number)
            if inside.any():
                if one is None:
                    route, _, part = super().spread_route(*there)
                else:
                    route, _, part = one.spread_route(*there)
                    route = np.where(route == one.links, self.links, begin + route)
                columns += list(np.where(inside, route, self.links))
                parts += part.tolist()
            leaves, enters = (a == number) & (b != number), (b == number) & (a != number)
            if leaves.any() or enters.any():
                mine = self if one is None else one
                for up, down in mine.ports(there[0], there[1], there[1]):
                    link = begin + mine.paired(np.where(leaves, up, down))
                    columns.append(np.where(leaves | enters, link, self.links))
                    parts.append(1.0)
        route = np.stack(columns) if columns else np.full((1, *source.shape), self.links)
        return route, level, np.array(parts or [1.0])

    @cached_property
    def kinds(self) -> tuple[list[str], Few]:
        """What links are, each with its partition's name."""
        words: list[str] = []
        numbers = []
        order = sorted(range(len(self.each)), key=lambda number: self.each[number][0])
        for number in order:
            one = self.each[number][1]
            own, kind = super().kinds if one is None else one.kinds
            numbers.append(kind + np.int16(len(words)))
            words += [f"{self.regions[number].name} {word}" for word in own]
        return words, np.concatenate(numbers)

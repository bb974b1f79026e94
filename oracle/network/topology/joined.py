"""Networks of unlike partitions and the links between them, as one network.

Devices are numbered as one of the partitions would number them if all were its own. A flow inside
a partition takes that partition's links; one that leaves it climbs through all of them, crosses
the joint, and comes down through those of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from oracle.network.arrays import Floats, Ints, ShortInts
from oracle.network.topology.fabric import Fabric
from oracle.network.topology.topology import Topology
from oracle.spec.level import Level
from oracle.spec.system import Region


class Joined(Topology):
    """One graph of several networks: that of the partition that counts all, then the others."""

    uniform = False

    def __init__(
        self, levels: Sequence[Level], devices: int, regions: Sequence[Region],
        others: Sequence[Topology], circuits: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(levels, devices, circuits=circuits)
        self.regions = tuple(regions)
        self.slots = [np.array(region.slots) for region in regions]
        self.until = np.cumsum([region.devices for region in regions])
        self.others = list(others)
        # (number of its first link, network) of each partition; None: the one that counts all
        self.partitions: list[tuple[int, Topology | None]] = []
        remaining = iter(others)
        for region in regions:
            network = None if region.system is None else next(remaining)
            self.partitions.append((0, None) if network is None else (self.links, network))
            self.links += 0 if network is None else network.links

    @cached_property
    def rank(self) -> Ints:
        """The rank on each device."""
        slots = next(slots for slots, (_, network) in zip(self.slots, self.partitions, strict=True)
                     if network is None)  # fmt: skip
        ranks = np.zeros(int(slots.max()) + 1, np.int64)
        ranks[slots] = np.arange(len(slots))
        return ranks

    @property
    def capacity(self) -> Floats:
        rates = super().capacity
        for begin, network in self.partitions:
            if network is not None:
                rates[begin : begin + network.links] = network.capacity[:-1]
        return rates

    @cached_property
    def spreads(self) -> bool:
        fabrics = [fabric for network in (self, *self.others) for fabric in network.fabrics]
        return any(fabric.spread > 1 for fabric in fabrics)

    @property
    def innermost(self) -> list[Fabric]:
        return [network.fabrics[0] for network in (self, *self.others)]

    def spread_route(
        self, source: Ints, target: Ints, into: Ints | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Return routes inside partitions, and those that leave one partition for another."""
        source, target = np.broadcast_arrays(np.asarray(source), np.asarray(target))
        level = np.where(source == target, -1, self.meeting_level(source, target))
        ends = self.rank[source], self.rank[target]
        a, b = (np.searchsorted(self.until, ranks, "right") for ranks in ends)
        columns: list[Ints] = []
        parts: list[float] = []
        for number, (begin, network) in enumerate(self.partitions):
            from_slot, to_slot = (self.slots[number][ranks] for ranks in ends)
            inside = (a == number) & (b == number)
            if inside.any():
                if network is None:
                    route, _, part = super().spread_route(from_slot, to_slot)
                else:
                    route, _, part = network.spread_route(from_slot, to_slot)
                    route = np.where(route == network.links, self.links, begin + route)
                columns += list(np.where(inside, route, self.links))
                parts += part.tolist()
            leaves, enters = (a == number) & (b != number), (b == number) & (a != number)
            if leaves.any() or enters.any():
                crossed = self if network is None else network
                for up, down in crossed.ports(from_slot, to_slot, to_slot):
                    link = begin + crossed.paired(np.where(leaves, up, down))
                    columns.append(np.where(leaves | enters, link, self.links))
                    parts.append(1.0)
        route = np.stack(columns) if columns else np.full((1, *source.shape), self.links)
        return route, level, np.array(parts or [1.0])

    @cached_property
    def kinds(self) -> tuple[list[str], ShortInts]:
        """The kinds of links, each with its partition's name, and each link's kind."""
        words: list[str] = []
        numbers = []
        partitions = zip(self.regions, self.partitions, strict=True)
        for region, (_, network) in sorted(partitions, key=lambda partition: partition[1][0]):
            network_words, kind = super().kinds if network is None else network.kinds
            numbers.append(kind + np.int16(len(words)))
            words += [f"{region.name} {word}" for word in network_words]
        return words, np.concatenate(numbers)

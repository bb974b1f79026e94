"""Distributed loop network: switches in a ring with shortcuts of power-of-two length."""

from __future__ import annotations

from collections import deque
from functools import cached_property

import numpy as np

from oracle.network.arrays import Ints
from oracle.network.topology.fabric import NOWHERE, Fabric


class Loop(Fabric):
    """2^q switches in a ring, linked also to those ±2^k away, `hosts` units on each.

    `shape` is (switches, units per switch) and may go on with the longest shortcut. Shortest
    routes, found breadth first; among equals the long shortcut upward comes first
    [nguyen2021]. With full duplex each way of a link is a link of its own.
    """

    kind = "loop"
    usual_routing = "affinity"
    tree = False

    @property
    def extents(self) -> tuple[int, int]:
        shape = tuple(self.level.shape) or (self.width, 1)
        if len(shape) < 2 or shape[0] * shape[1] != self.width:
            raise ValueError(
                f"{self.level.name}: a loop of {self.width} units needs shape "
                f"[switches, units per switch], not {list(shape)}"
            )
        return shape[0], shape[1]

    @property
    def period(self) -> int:
        return self.unit * self.extents[1]

    @cached_property
    def lengths(self) -> list[int]:
        """Lengths of the links of one switch, upward; 1 is the ring itself."""
        ring = self.extents[0]
        longest = self.level.shape[2] if len(self.level.shape) > 2 else ring // 2
        return [1 << k for k in range(ring.bit_length()) if 1 << k <= min(longest, ring // 2)]

    def count_inside(self) -> int:
        return self.extents[0] * len(self.lengths) * 2

    @cached_property
    def ways(self) -> Ints:
        """(distance, hop) -> (distance walked · lengths + length) · 2 + way, or NOWHERE."""
        ring, count = self.extents[0], len(self.lengths)
        up = [(k, 1) for k in reversed(range(count))]
        down = [(k, -1) for k in reversed(range(count)) if self.lengths[k] * 2 != ring]
        arrival: dict[int, tuple[int, int, int] | None] = {0: None}
        queue = deque([0])
        while queue:
            place = queue.popleft()
            for k, way in up + down:
                to = (place + way * self.lengths[k]) % ring
                if to not in arrival:
                    arrival[to] = (place, k, way)
                    queue.append(to)
        trails = []
        for distance in range(ring):
            trail, place = [], distance
            while (step := arrival[place]) is not None:
                place, k, way = step
                trail.append((place * count + k) * 2 + (way < 0))
            trails.append(trail[::-1])
        longest = max(map(len, trails))
        return np.array([t + [NOWHERE] * (longest - len(t)) for t in trails], np.int64).reshape(
            ring, longest
        )

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        ring, hosts = self.extents
        begin, stop = start // hosts, end // hosts
        span = len(self.lengths) * 2
        columns = []
        for walked in np.moveaxis(self.ways[(stop - begin) % ring], -1, 0):
            link = (begin + walked // span) % ring * span + walked % span
            columns.append(np.where(walked == NOWHERE, NOWHERE, link))
        return columns

    def inside(self) -> list[tuple[int, int, float, str]]:
        ring, first, links = self.extents[0], self.width, []
        for switch in range(ring):
            for length in self.lengths:
                for way in (1, -1):
                    to = (switch + way * length) % ring
                    label = "ring links" if length == 1 else "shortcuts"
                    links.append((first + switch, first + to, self.level.bandwidth, label))
        return links

    def port_switch(self, unit: int, lane: int) -> int:
        hosts = self.extents[1]
        return self.width + unit % self.width // hosts

"""Dragonfly: groups of fully meshed routers, one link between each two groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oracle.network.arrays import Ints
from oracle.network.topology.fabric import NOWHERE, Fabric
from oracle.spec.system import Level


class Dragonfly(Fabric):
    """Groups × routers × units: routers of a group all linked, groups pair by pair [kim2008].

    `shape` is (groups, routers, units per router) and may go on with the number of links between
    two groups taken together. The link from group g to h hangs on router (h − [h > g]) mod
    routers; `routing: matched` hangs it on router h instead. Minimal: own group's gateway, the
    global link, then inside the target's group. `routing: valiant` goes by way of a third group,
    chosen by a hash of the two ends [valiant1982]. `routing: adaptive` is the best that load
    balance can do: the links out of a router, and those out of a group, fill up evenly, which
    is a tree of routers and groups (`stages`).
    """

    kind = "dragonfly"
    usual_routing = "affinity"
    tree = False

    @property
    def extents(self) -> tuple[int, int, int]:
        shape = tuple(self.level.shape)
        if len(shape) < 3 or shape[0] * shape[1] * shape[2] != self.width:
            raise ValueError(
                f"{self.level.name}: a dragonfly of {self.width} units needs shape "
                f"[groups, routers, units per router], not {list(shape)}"
            )
        return shape[0], shape[1], shape[2]

    @classmethod
    def stages(cls, level: Level, unit: int) -> list[Level]:
        """Return the tree that an adaptive dragonfly amounts to."""
        if level.routing != "adaptive":
            return [level]
        groups, routers, hosts = level.shape[:3]
        trunk = level.shape[3] if len(level.shape) > 3 else 1
        plain = replace(level, kind="switch", shape=(), routing=None)
        return [
            replace(plain, name=f"{level.name} router", devices=unit * hosts),
            replace(plain, name=f"{level.name} group", devices=unit * hosts * routers,
                    ports=max(1, routers - 1), routing="striped"),
            replace(plain, ports=max(1, groups - 1) * trunk, routing="striped"),
        ]  # fmt: skip

    @property
    def period(self) -> int:
        return self.level.devices

    def count_inside(self) -> int:
        groups, routers, _ = self.extents
        return groups * routers * routers + groups * groups

    def gateway(self, group: Ints, other_group: Ints) -> Ints:
        """Return the router of a group that holds its link to another group."""
        routers = self.extents[1]
        if self.level.routing == "matched":
            return other_group % routers
        return (other_group - (other_group > group)) % routers

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        groups, routers, units = self.extents
        begin, stop = start // units, end // units
        if self.level.routing != "valiant" or groups < 3:
            return self.minimal(begin, stop)
        from_, into = begin // routers, stop // routers
        span = groups - 2
        pick = (start * 2654435761 + end * 40503) // 7 % span
        low, high = np.minimum(from_, into), np.maximum(from_, into)
        via = pick + (pick >= low)
        via = via + (via >= high)
        differ = from_ != into
        middle = np.where(differ, via * routers + self.gateway(via, from_), stop)
        first = self.minimal(begin, middle)
        second = self.minimal(middle, stop)
        return first + second

    def minimal(self, begin: Ints, stop: Ints) -> list[Ints]:
        """Return the links router to router: local, global, local, as far as needed."""
        groups, routers, _ = self.extents
        from_, into = begin // routers, stop // routers
        differ = from_ != into
        out = np.where(differ, self.gateway(from_, into), stop % routers)
        arrive = np.where(differ, self.gateway(into, from_), stop % routers)
        first, last = begin % routers, stop % routers
        local = groups * routers * routers
        return [
            np.where(first != out, (from_ * routers + first) * routers + out, NOWHERE),
            np.where(differ, local + from_ * groups + into, NOWHERE),
            np.where(
                differ & (arrive != last), (into * routers + arrive) * routers + last, NOWHERE
            ),
        ]

    def inside(self) -> list[tuple[int, int, float, str]]:
        groups, routers, _ = self.extents
        rate, first = self.level.bandwidth, self.width
        trunk = rate * (self.level.shape[3] if len(self.level.shape) > 3 else 1)
        links = [
            (first + g * routers + a, first + g * routers + b, rate, "local links")
            for g in range(groups)
            for a in range(routers)
            for b in range(routers)
        ]
        for g in range(groups):
            for h in range(groups):
                a = int(self.gateway(np.array(g), np.array(h)))
                b = int(self.gateway(np.array(h), np.array(g)))
                links.append((first + g * routers + a, first + h * routers + b, trunk,
                              "global links"))  # fmt: skip
        return links

    def port_switch(self, unit: int, lane: int) -> int:
        units = self.extents[2]
        return self.width + unit % self.width // units

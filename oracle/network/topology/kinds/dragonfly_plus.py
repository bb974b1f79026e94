"""Dragonfly+: groups of leaves and spines, the spines of any two groups linked."""

from __future__ import annotations

import numpy as np

from oracle.network.topology.wired import Trunk, Wired, Wiring


class DragonflyPlus(Wired):
    """Groups that are two-level trees; each spine has links to other groups [shpiner2017].

    `shape` is (groups, leaves, units per leaf) and may go on with the spines of a group (as many
    as leaves) and the links between each two groups (as many as spines). Link k from group g to h
    hangs on spine (h − [h > g] + k) mod spines.
    """

    kind = "dragonfly+"
    usual_way = "adaptive"

    def wire(self) -> Wiring:
        shape = self.level.shape
        if len(shape) < 3 or shape[0] * shape[1] * shape[2] != self.width:
            raise ValueError(f"{self.level.name}: a dragonfly+ of {self.width} units needs shape "
                             f"[groups, leaves, units per leaf], not {list(shape)}")  # fmt: skip
        groups, leaves, hosts = shape[:3]
        spines = shape[3] if len(shape) > 3 else leaves
        between = shape[4] if len(shape) > 4 else spines
        rate, size = self.level.bandwidth, leaves + spines
        trunks: list[Trunk] = [
            (g * size + leaf, g * size + leaves + spine, rate, "links of a group")
            for g in range(groups) for leaf in range(leaves) for spine in range(spines)
        ]  # fmt: skip
        for g in range(groups):
            for h in range(g + 1, groups):
                for k in range(between):
                    a = g * size + leaves + (h - 1 + k) % spines
                    b = h * size + leaves + (g + k) % spines
                    trunks.append((a, b, rate, "global links"))
        unit = np.arange(self.width)
        home = unit // (leaves * hosts) * size + unit // hosts % leaves
        return Wiring(groups * size, home, trunks, np.ones(groups * size, bool))

"""HyperX: switches in a grid, all of a line along any dimension linked with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod

import numpy as np

from oracle.network.topology.wired import Trunk, Wired, Wiring


class HyperX(Wired):
    """Switches in a grid of any rank, each linked to all others of its lines [ahn2009].

    `shape` is (extents …, units per switch), the first extent running fastest over the switches;
    of two extents and more a flattened butterfly. Minimal routes correct one dimension after the
    other; `adaptive` takes the dimensions in every order alike.
    """

    kind = "hyperx"

    def wire(self) -> Wiring:
        *extents, hosts = self.level.shape or (self.width, 1)
        switches = prod(extents)
        if switches * hosts != self.width or not extents:
            raise ValueError(f"{self.level.name}: a hyperx of {self.width} units needs shape "
                             "[extents …, units per switch]")  # fmt: skip
        trunks: list[Trunk] = [
            (a, b, self.level.bandwidth, f"links of dimension {dimension + 1}")
            for dimension, a, b in links(extents)
        ]
        return Wiring(switches, np.arange(self.width) // hosts, trunks, np.ones(switches, bool))


def links(extents: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (dimension, switch, switch) of every two switches in a line of a grid."""
    switches, stride = prod(extents), 1
    for dimension, extent in enumerate(extents):
        for first in range(switches):
            if first // stride % extent == 0:
                line = range(first, first + extent * stride, stride)
                yield from ((dimension, a, b) for a, b in combinations(line, 2))
        stride *= extent

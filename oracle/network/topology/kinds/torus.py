"""Rings, tori and open meshes of any rank, routed one dimension after the other."""

from __future__ import annotations

import math

import numpy as np

from oracle.network.arrays import Ints
from oracle.network.topology.fabric import NOWHERE, Fabric


class Torus(Fabric):
    """A grid of units, each with a link either way along every dimension, closed to rings.

    `shape` is its extents, the first running fastest over the units. Dimension-order routing
    [dally1987]: along the first dimension the shorter way round (ties go up), then the next.
    A level without a shape is one ring. Units inject without a limit of their own.
    """

    kind = "torus"
    has_ports = False
    tree = False
    wraps = True

    @property
    def extents(self) -> tuple[int, ...]:
        shape = tuple(self.level.shape) or (self.width,)
        if math.prod(shape) != self.width:
            raise ValueError(f"{self.level.name}: {shape} does not hold {self.width} units")
        return shape

    @property
    def period(self) -> int:
        return self.unit * (self.width // self.extents[-1] if self.wraps else self.width)

    def count_inside(self) -> int:
        return self.width * len(self.extents) * 2

    def path(self, start: Ints, end: Ints, source: Ints, target: Ints) -> list[Ints]:
        """Link (unit, dimension, way) is numbered (unit · rank + dimension) · 2 + way."""
        columns, unit, stride, rank = [], start.copy(), 1, len(self.extents)
        for dimension, extent in enumerate(self.extents):
            from_, to = unit // stride % extent, end // stride % extent
            ahead = (to - from_) % extent if self.wraps else np.abs(to - from_)
            forward = ahead <= extent // 2 if self.wraps else to >= from_
            hops = np.where(forward, ahead, extent - ahead) if self.wraps else ahead
            # the link that leaves the first unit of this line, and how far on the others' are
            link = ((unit - from_ * stride) * rank + dimension) * 2 + 1 - forward
            further = np.arange(-extent, 2 * extent) % extent * stride * rank * 2
            place, way = from_ + extent, np.where(forward, 1, -1)
            for hop in range(int(hops.max(initial=0))):
                columns.append(np.where(hops > hop, link + further[place], NOWHERE))
                place = place + way
            unit = unit + (to - from_) * stride
            stride *= extent
        return columns

    def inside(self) -> list[tuple[int, int, float, str]]:
        links, rate = [], (self.level.ports or 1) * self.level.bandwidth
        for unit in range(self.width):
            stride = 1
            for extent in self.extents:
                place = unit // stride % extent
                for way in (1, -1):
                    to = unit + ((place + way) % extent - place) * stride
                    links.append((unit, to, rate, "links"))
                stride *= extent
        return links


class RingNetwork(Torus):
    """Units in one ring, with a link to each neighbour and one back."""

    kind = "ring"


class OpenGrid(Torus):
    """A torus whose rings are open: no way round."""

    kind = "grid"
    wraps = False

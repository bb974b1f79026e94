"""Tori whose way round is twisted: along a short dimension it ends half-way along the long one."""

from __future__ import annotations

import math

import numpy as np

from oracle.network.topology.wired import Trunk, Wired, Wiring


class TwistedTorus(Wired):
    """A torus in which the way round a half-long dimension shifts the longest by half [camara2010].

    `shape` is its extents, the first running fastest. Dimensions of half the longest extent are
    twisted, the others closed as a torus' are; so n × 2n, n × n × 2n and n × 2n × 2n have more
    links across their middle than plain tori, as in slices of a TPU v4 [jouppi2023]. Flows spread
    over all shortest ways where `routing` does not say otherwise.
    """

    kind = "twisted-torus"
    has_ports = False
    usual_way = "adaptive"

    def wire(self) -> Wiring:
        extents = tuple(self.level.shape)
        if math.prod(extents) != self.width or not extents:
            raise ValueError(f"{self.level.name}: {extents} does not hold {self.width} units")
        longest = extents.index(max(extents))
        half, rate = extents[longest] // 2, (self.level.ports or 1) * self.level.bandwidth
        strides = [math.prod(extents[:k]) for k in range(len(extents))]
        trunks: list[Trunk] = []
        for number, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
            twisted = extent * 2 == extents[longest]
            for unit in range(self.width):
                place = unit // stride % extent
                to = unit + ((place + 1) % extent - place) * stride
                if twisted and place == extent - 1:
                    far = unit // strides[longest] % extents[longest]
                    to += ((far + half) % extents[longest] - far) * strides[longest]
                if to != unit and not (extent == 2 and place == 1 and not twisted):
                    trunks.append((unit, to, rate, f"links of dimension {number + 1}"))
        passing = np.ones(self.width, bool)
        return Wiring(self.width, np.arange(self.width), trunks, passing)

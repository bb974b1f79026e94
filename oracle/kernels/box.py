"""One part of a convolution in numbers: its extents, channels, window, and the product it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Curve


@dataclass(frozen=True, slots=True)
class Box:
    """One part of a convolution, in numbers or arrays; channels and filters of one group."""

    part: str
    batch: Floats
    points: Floats  # of the output
    inner: Floats
    outer: Floats
    taps: Floats  # of the window
    strides: Floats
    groups: Floats
    side: Floats  # of a square window; 0 where it is none
    width: float  # bytes of an element
    most: float = np.inf  # channels that an inner loop may take at least
    high: Floats | float = 0.0  # of a plane's output; 0 where nobody says, or of volumes
    wide: Floats | float = 0.0

    @property
    def elements(self) -> Floats:
        """Of input and output."""
        return self.groups * self.batch * self.points * (self.inner * self.strides + self.outer)

    @property
    def weights(self) -> Floats:
        """Elements of all groups' windows."""
        return self.groups * self.inner * self.outer * self.taps

    @property
    def moved(self) -> Floats:
        """Bytes of both tensors and of the weights."""
        return self.width * (self.elements + self.weights)

    @property
    def flop(self) -> Floats:
        """Multiplications and additions."""
        return 2 * self.batch * self.points * self.inner * self.outer * self.taps * self.groups


def product(three: tuple[Numbers, Numbers, Numbers]) -> Floats:
    """The points of a box, as a float array."""
    depth, height, width = three
    return np.asarray(depth, float) * height * width


def shape(used: Curve, box: Box) -> tuple[Floats, Floats, Floats]:
    """m, n, k of the matrix product that this part of a convolution is, of one group."""
    inner, outer, taps, strides = box.inner, box.outer, box.taps, box.strides
    granule = min(used.granule, box.most)
    if box.part == "forward":
        return box.batch * box.points, outer, np.sqrt(inner * inner + granule**2) * taps
    if box.part == "data":
        looped = taps / strides + used.zeros * (1 - 1 / strides)
        if used.strided > 1:  # no kernel of its own for it
            looped = looped * np.where((strides > 1) & (taps > strides), used.strided, 1.0)
        deep = np.sqrt(outer * outer + granule**2)
        return box.batch * box.points * strides, inner, deep * looped
    if box.part == "weight":
        return outer, np.sqrt(inner * inner + granule**2) * taps, box.batch * box.points
    raise ValueError(f"a convolution has the parts forward, data and weight, not {box.part!r}")

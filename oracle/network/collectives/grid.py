"""Allreduce over a grid of ranks, whatever shares a node: rows, then columns, then rows."""

from __future__ import annotations

from math import isqrt

import numpy as np

from oracle.network.arrays import Number
from oracle.network.collectives.algorithm import Algorithm, OnRings, Rings
from oracle.network.collectives.hierarchical import Hierarchical
from oracle.network.collectives.ring import lanes
from oracle.network.collectives.schedule import Pairs, Steps


def sides(p: int) -> list[int]:
    """Return every length that a row of p ranks in a grid may have."""
    return [x for x in range(2, p // 2 + 1) if p % x == 0]


def square(p: int) -> int:
    """Return the length of a row with the fewest steps of a grid: the divisor nearest √p."""
    return next(x for x in range(isqrt(p), 0, -1) if p % x == 0)


class Torus2d(OnRings, Algorithm):
    """Reduce-scatter along rows of X, allreduce along columns of Y = p/X, allgather along rows.

        T = 2(X − 1)(α + m/X β) + 2(Y − 1)(α + m/(XY) β)

    The bytes of a ring in 2(X + Y − 2) steps. The sides are free: `torus2d` is the best of all
    that divide p where it is named, `torus2d:8` has rows of eight.
    """

    op, name, source, menu = "allreduce", "torus2d", "mikami2018, §3.2", False
    number = "x"
    x = 0  # ranks of a row; 0: as near to square as can be

    def choices(self, p: int) -> list[Algorithm]:
        return [self.with_number(x) for x in sides(p)] if not self.x else [self]

    def fits(self, p: int, inner: int = 1) -> bool:
        x = self._row(p)
        return p > 3 and 1 < x < p and p % x == 0

    def _row(self, p: int) -> int:
        return self.x or square(p)

    def _rows(self, p: Number) -> Number:
        rows: Number = np.vectorize(lambda n: float(self._row(int(n))), otypes=[float])(p)
        return rows

    def steps(self, p: Number) -> Number:
        x = self._rows(p)
        return 2 * (x - 1) + 2 * (p / x - 1)

    def volume(self, p: Number) -> Number:
        x = self._rows(p)
        return 2 * (x - 1) / x + 2 * (p / x - 1) / p

    def reduced(self, p: Number) -> Number:
        return self.volume(p) / 2

    def ring_schedule(self, p: int, inner: int, rings: Rings) -> list[Steps]:
        """Rows of several nodes leave each by all of its ways, as many rings as it has ranks."""
        x = self._row(p)
        rows, *columns = Hierarchical().schedule(p, x)
        if 1 < inner < x and x % inner == 0:
            row, first = lanes(x, inner, 1 / x, 2 * (x - 1), rings), np.arange(0, p, x)[:, None]
            ends = ((first + end).ravel() for end in (row.source, row.target))
            rows = Pairs(np.tile(row.share, p // x), row.times, *ends, stripes=inner)
        return [rows, *columns]

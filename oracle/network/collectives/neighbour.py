"""Send-receive and halo exchange between neighbours."""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Number
from oracle.network.collectives.algorithm import Algorithm
from oracle.network.collectives.schedule import Steps, pairs


class SendReceive(Algorithm):
    """Every rank but the last sends to the next, at once: T = α + m β."""

    op, name, source = "sendrecv", "direct", "hockney1994"

    def steps(self, p: Number) -> Number:
        return 1 + 0 * np.asarray(p)

    def volume(self, p: Number) -> Number:
        return 1.0 + 0 * np.asarray(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ranks = np.arange(p - 1)
        return [pairs(ranks, ranks + 1, 1.0)]


class PublishedHalo(Algorithm):
    """Every rank swaps with an upper and with a lower neighbour: T = 2(α + m β), whatever p."""

    op, name, source, menu = "halo", "published", "kahira2021, Table III 'Spatial'", False

    def steps(self, p: Number) -> Number:
        return 2 + 0 * np.asarray(p)

    def volume(self, p: Number) -> Number:
        return 2.0 + 0 * np.asarray(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ranks = np.arange(p - 1)
        return [pairs(ranks, ranks + 1, 1.0), pairs(ranks + 1, ranks, 1.0)]


class PairwiseHalo(PublishedHalo):
    """Swap with the neighbours in line, at most two: T = min(p - 1, 2)(α + m β).

    Both ways of a swap go at once. Differs from the source: of two parts in line each has
    one neighbour, and pays for one.
    """

    name, menu = "pairwise", True

    def steps(self, p: Number) -> Number:
        neighbours: Number = np.minimum(np.asarray(p) - 1, 2)
        return neighbours

    def volume(self, p: Number) -> Number:
        return 1.0 * self.steps(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        swap = super().schedule(p, inner)
        return swap if p > 2 else [pairs([0, 1], [1, 0], 1.0)]


class ChainedHalo(Algorithm):
    """Blocking sends that wait for one another down the line and back: T = 2(p − 1)(α + m β)."""

    op, name, source, menu = "halo", "chain", "kahira2021, their implementation", False

    def steps(self, p: Number) -> Number:
        return 2 * (p - 1)

    def volume(self, p: Number) -> Number:
        return 2 * (p - 1)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        down: list[Steps] = [pairs([r], [r + 1], 1.0) for r in range(p - 1)]
        return down + [pairs([r + 1], [r], 1.0) for r in reversed(range(p - 1))]

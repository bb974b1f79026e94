"""Between neighbours: stage borders and halos."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.collectives.algorithm import Algorithm
from oracle.collectives.schedule import Steps, pairs


class SendReceive(Algorithm):
    """Every rank but the last sends to the next, at once: T = α + m β."""

    op, name, source = "sendrecv", "direct", "hockney1994"

    def steps(self, p: Any) -> Any:
        return 1 + 0 * np.asarray(p)

    def volume(self, p: Any) -> Any:
        return 1.0 + 0 * np.asarray(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ranks = np.arange(p - 1)
        return [pairs(ranks, ranks + 1, 1.0)]


class PairwiseHalo(Algorithm):
    """Swap with the upper neighbour, then with the lower: T = 2(α + m β)."""

    op, name, source = "halo", "pairwise", "kahira2021, Table III 'Spatial'"

    def steps(self, p: Any) -> Any:
        return 2 + 0 * np.asarray(p)

    def volume(self, p: Any) -> Any:
        return 2.0 + 0 * np.asarray(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ranks = np.arange(p - 1)
        return [pairs(ranks, ranks + 1, 1.0), pairs(ranks + 1, ranks, 1.0)]


class ChainedHalo(Algorithm):
    """Blocking sends that wait for one another down the line and back: T = 2(p − 1)(α + m β)."""

    op, name, source, menu = "halo", "chain", "kahira2021, their implementation", False

    def steps(self, p: Any) -> Any:
        return 2 * (p - 1)

    def volume(self, p: Any) -> Any:
        return 2 * (p - 1)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        down: list[Steps] = [pairs([r], [r + 1], 1.0) for r in range(p - 1)]
        return down + [pairs([r + 1], [r], 1.0) for r in reversed(range(p - 1))]

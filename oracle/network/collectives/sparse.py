"""Sparse gradients: only the largest entries travel, as (index, value) pairs.

The message is still the dense buffer of m bytes; `density` is the part of it that is sent and
`index` the bytes that go along per byte of values (4-byte indices beside fp32 values: 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.network.arrays import Floats, Number
from oracle.network.collectives.algorithm import Algorithm
from oracle.network.collectives.schedule import Steps, shift


@dataclass(frozen=True)
class SparsePairwise(Algorithm):
    """Top-k entries sent on whole, pair by pair: T = 2(p − 1)(α + N₂ β), N₂ = m · density · 2.

    The bytes do not shrink with p, so it pays only while p · density stays below one half.
    """

    density: float = 0.001
    index: float = 1.0
    op, name, source = "sparse_allreduce", "pairwise", "nguyen2019sparse, §III"

    def steps(self, p: Number) -> Number:
        return 2 * (p - 1)

    def volume(self, p: Number) -> Number:
        return 2 * (p - 1) * self.density * (1 + self.index)

    def reduced(self, p: Number) -> Number:
        return (p - 1) * self.density

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [shift(1, self.density * (1 + self.index), 2 * (p - 1))]


@dataclass(frozen=True)
class SparseSwitching(SparsePairwise):
    """A ring of shares that turn dense when that is shorter, step by step.

        T ≤ 2(p − 1) α + 2(p − 1) N₁/p β + overhead

    After s additions of independent supports a share's density is 1 − (1 − d)^s; it travels
    sparse while density · (1 + index) < 1 and dense from then on, so N₁ ≤ m [renggli2019].
    `overhead` is what packing adds to the dense time, under a tenth.
    """

    overhead: float = 0.05
    name, source = "switching", "renggli2019, §5; nguyen2019sparse, §III"

    def parts(self, p: int) -> Floats:
        """Part of a dense share that is sent in each of the 2(p − 1) steps."""
        filled = 1 - (1 - self.density) ** np.arange(1, p)
        done = np.full(p - 1, 1 - (1 - self.density) ** p)
        sent = np.minimum(np.concatenate([filled, done]) * (1 + self.index), 1.0)
        return np.asarray(sent * (1 + self.overhead))

    def volume(self, p: Number) -> Number:
        sums = np.vectorize(lambda n: float(self.parts(int(n)).sum()) / n, otypes=[float])
        volume: Number = sums(p)
        return volume

    def reduced(self, p: Number) -> Number:
        return self.volume(p) / 2

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        sent = self.parts(p)
        return [shift(np.ones(len(sent), np.int64), sent / p)]

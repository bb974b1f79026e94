"""Sparse gradients: only the largest entries travel, as (index, value) pairs.

The message is what one rank selected, m = N₂ bytes of values and indices: of n weights d n, a
value and an index each. Ranks select different entries, so their sum has more of them:
`filled` says how many, and from where on the dense vector is shorter.
"""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Floats, Number
from oracle.network.collectives.algorithm import Algorithm, OnRings, Rings, log2
from oracle.network.collectives.halving import BruckAllgather
from oracle.network.collectives.ring import lanes
from oracle.network.collectives.schedule import AllPairs, Steps, shift
from oracle.network.collectives.tree import BinomialBroadcast, BinomialReduce

INDEX = 4.0  # bytes of an entry's place


def filled(density: Number, sums: Number, overlap: float = 0.0) -> Number:
    """Return the part of entries that a sum over ranks has: 1 − (1 − d)^s, s = sums^(1 − ρ).

    Independent supports (ρ = 0) fill up the fastest; those of real gradients overlap.
    """
    part: Number = 1 - (1 - np.asarray(density)) ** np.asarray(sums, float) ** (1 - overlap)
    return part


def switched(density: float, p: int, index: float, overlap: float = 0.0) -> Floats:
    """Return the part of a dense share that a ring of shares sends in each of its 2(p − 1) steps.

    After s additions a share is as dense as the sum of s ranks; it travels sparse while
    density · (1 + index) < 1, `index` bytes for a byte of values, and dense from then on.
    """
    sums = np.concatenate([np.arange(1, p), np.full(p - 1, p)])
    return np.minimum(np.asarray(filled(density, sums, overlap)) * (1 + index), 1.0)


class SparsePairwise(Algorithm):
    """Every rank's selection, whole, to every other rank: T = 2(p − 1)(α + N₂ β).

    The bytes do not shrink with p, so it pays only while p · density stays below one half.
    """

    op, name, source = "sparse_allreduce", "pairwise", "nguyen2019sparse, §III"

    def steps(self, p: Number) -> Number:
        return 2 * (p - 1)

    def volume(self, p: Number) -> Number:
        return 2.0 * (p - 1)

    def reduced(self, p: Number) -> Number:
        return p - 1

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [shift(np.arange(1, p), 1.0, 2.0)]


class SparseSwitching(OnRings, Algorithm):
    """A ring of shares that turn dense where that is shorter, step by step.

        T = 2(p − 1)(α + N₁/p β)

    The message is N₁, what the shares of one rank come to on the mean of the steps (`switched`):
    at most the dense vector, after whose bytes the plain ring would be named [renggli2019].
    """

    op, name, source = "sparse_allreduce", "switching", "renggli2019, §5; nguyen2019sparse, §III"

    def steps(self, p: Number) -> Number:
        return 2 * (p - 1)

    def volume(self, p: Number) -> Number:
        return 2 * (p - 1) / p

    def reduced(self, p: Number) -> Number:
        return (p - 1) / p

    def ring_schedule(self, p: int, inner: int, rings: Rings) -> list[Steps]:
        if inner > 1 and p > 2:
            return [lanes(p, inner, 1 / p, 2 * (p - 1), rings)]
        return [shift(1, 1 / p, 2 * (p - 1))]


class SparseTree(Algorithm):
    """Up a binomial tree and down, with k entries left of each sum: T = 2⌈log₂p⌉(α + N₂ β)."""

    op, name, source = "sparse_allreduce", "gtopk", "shi2019, §III (gTop-k)"

    def steps(self, p: Number) -> Number:
        return 2 * log2(p)

    def volume(self, p: Number) -> Number:
        return 2 * log2(p)

    def reduced(self, p: Number) -> Number:
        return log2(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [*BinomialReduce().schedule(p), *BinomialBroadcast().schedule(p)]


class SparseSplit(Algorithm):
    """Each region's entries go to its rank, which sums them; the k largest go to everybody.

        T = (1 + ⌈log₂p⌉) α + 2(p − 1)/p N₂ β

    Differs from the source: regions are even, so nothing is dealt anew between the two phases,
    which would be as much again at most: 2k to 6k words, 4k here.
    """

    op, name, source = "sparse_allreduce", "oktopk", "li2022oktopk, §3"

    def steps(self, p: Number) -> Number:
        return 1 + log2(p)

    def volume(self, p: Number) -> Number:
        return 2 * (p - 1) / p

    def reduced(self, p: Number) -> Number:
        return (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        to_regions = AllPairs(np.array([1 / p]), np.array([1.0]))
        return [to_regions, *BruckAllgather().schedule(p)]

"""All-to-all: scattered, pairwise and Bruck; a reduce-scatter by two of them."""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Number
from oracle.network.collectives.algorithm import Algorithm, log2, power_of_two
from oracle.network.collectives.schedule import AllPairs, Steps, exchange, pairs, shift


class ScatteredAlltoall(Algorithm):
    """All messages posted at once, as grouped sends and receives: T = α + (p − 1)/p m β.

    The messages share the links until the last is through, so the closed form has one start-up;
    what each message costs its sender is the system's business (`base` of a calibrated entry).
    """

    op, name, source = "alltoall", "scattered", "thakur2005, §3.5"

    def steps(self, p: Number) -> Number:
        return 1 + 0 * np.asarray(p)

    def volume(self, p: Number) -> Number:
        return (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [AllPairs(np.array([1 / p]), np.array([1.0]))]


class RotationAlltoall(Algorithm):
    """In step k rank r sends to r + k and hears from r − k: T = (p − 1)(α + m/p β)."""

    op, name, source, menu = "alltoall", "pairwise", "thakur2005, §3.5", False

    def steps(self, p: Number) -> Number:
        return p - 1

    def volume(self, p: Number) -> Number:
        return (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [shift(np.arange(1, p), 1 / p)]


class PairwiseExchange(RotationAlltoall):
    """In step k rank r swaps with r ⊕ k: T = (p − 1)(α + m/p β); powers of two only."""

    name = "exchange"

    def fits(self, p: int, inner: int = 1) -> bool:
        return power_of_two(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [exchange(np.arange(1, p), 1 / p)]


class BruckAlltoall(Algorithm):
    """Blocks whose distance has bit k set move 2^k in step k: T ≈ ⌈log₂p⌉ (α + m/2 β)."""

    op, name, source = "alltoall", "bruck", "bruck1997, §3"

    def steps(self, p: Number) -> Number:
        return log2(p)

    def volume(self, p: Number) -> Number:
        parts = np.vectorize(lambda n: sum(_moved(int(n))) / n, otypes=[float])
        volume: Number = parts(p)
        return volume

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        by = 2 ** np.arange(int(log2(p)))
        return [shift(by, np.array(_moved(p)) / p)]


class TwoHopReduceScatter(Algorithm):
    """Pieces go to their rank in the node, are added, and go on to its like in other nodes.

        T = 2 α + ((q − 1)/q + (n − 1)/p) m β          n nodes of q ranks, p = n q

    A sum is rounded twice only, which matters to numbers of few bits. The closed form takes one α
    and β for both hops, and q = 1.
    """

    op, name, source, menu = "reduce_scatter", "two_hop", "wang2024zero, §3.3 (qgZ)", False
    nodal = True

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > 1 and p % inner == 0

    def steps(self, p: Number, q: Number = 1) -> Number:
        return (np.asarray(q) > 1) * 1.0 + (np.asarray(p) > q)

    def volume(self, p: Number, q: Number = 1) -> Number:
        return (q - 1) / q + (p / q - 1) / p

    def reduced(self, p: Number, q: Number = 1) -> Number:
        return self.volume(p, q)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ranks, inside, nodes = np.arange(p)[:, None], np.arange(1, inner), np.arange(1, p // inner)
        near = ranks // inner * inner + (ranks + inside) % inner
        far = (ranks + nodes * inner) % p
        hops = [(near, 1 / inner), (far, 1 / p)]
        return [pairs(np.broadcast_to(ranks, to.shape).ravel(), to.ravel(), share)
                for to, share in hops if to.size]  # fmt: skip


def _moved(p: int) -> list[int]:
    """Return how many blocks move in each step: those whose distance has the step's bit set."""
    distance = np.arange(p)
    return [int((distance >> k & 1).sum()) for k in range(int(log2(p)))]

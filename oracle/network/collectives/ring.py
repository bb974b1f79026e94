"""Rings: every rank sends to the next, over and over."""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np

from oracle.network.arrays import Ints, Number
from oracle.network.collectives.algorithm import Algorithm, OnRings
from oracle.network.collectives.algorithm import Rings as RingSet
from oracle.network.collectives.schedule import Pairs, Steps, pairs, shift


class RingAllgather(Algorithm):
    """Each share goes round once: T = (p − 1)(α + m/p β), m the gathered whole."""

    op, name, source = "allgather", "ring", "thakur2005, §3.1"
    pipelined = True

    def steps(self, p: Number) -> Number:
        return p - 1

    def volume(self, p: Number) -> Number:
        return (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [shift(1, 1 / p, p - 1)]


class RotationAllgather(RingAllgather):
    """In step k every rank sends its own share to the k-th next: T as the ring's."""

    name, source, menu = "rotation", "thakur2005, §3.1", False
    pipelined = False

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [shift(np.arange(1, p), 1 / p)]


class RingReduceScatter(RingAllgather):
    """The allgather's way round, adding: T = (p − 1)(α + m/p β + m/p γ)."""

    op, name, source = "reduce_scatter", "ring", "thakur2005, §3.2"
    like = ("allgather", 1.0)

    def reduced(self, p: Number) -> Number:
        return (p - 1) / p


class RingAllreduce(RingReduceScatter):
    """Reduce-scatter, then allgather: T = 2(p − 1)(α + m/p β) + (p − 1)/p m γ."""

    op, name, source = "allreduce", "ring", "patarasuk2009, §3"
    like = ("allgather", 2.0)

    def steps(self, p: Number) -> Number:
        return 2 * (p - 1)

    def volume(self, p: Number) -> Number:
        return 2 * (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [shift(1, 1 / p, 2 * (p - 1))]


class BidirectionalRing(RingAllreduce):
    """Half of the message each way round: half the volume each way where links are duplex.

    T = 2(p − 1)(α + m/2p β): a rank sends both ways at once, so β is that of one of two links.
    """

    name, source, menu = "bidirectional_ring", "jain2010, §4 (rings both ways)", False
    like = ("", 1.0)

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > 2

    def volume(self, p: Number) -> Number:
        return (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ranks = np.arange(p)
        targets = np.concatenate([(ranks + 1) % p, (ranks - 1) % p])
        return [pairs(np.tile(ranks, 2), targets, 1 / (2 * p), 2 * (p - 1))]


def _paced(inner: int) -> Ints:
    """Return the orders in which rings pass a node's ranks: ring j takes every j-th if it can."""
    paces = [j for j in range(1, inner) if gcd(j, inner) == 1] or [1]
    return np.array([np.roll(np.arange(inner) * paces[j % len(paces)] % inner, -j)
                     for j in range(inner)])  # fmt: skip


@lru_cache(64)
def _entered(inner: int, rings: RingSet) -> Ints:
    """Return the orders along given rings: one enters at each rank, one leaves from each."""
    ways = [way for order, _ in rings for way in (order, order[::-1])]
    weight = [share for _, share in rings for _ in range(2)]

    def chosen(orders: list[tuple[int, ...]], used: list[int]) -> list[tuple[int, ...]] | None:
        if len(orders) == inner:
            return orders
        for k in sorted(range(len(ways)), key=lambda k: (used[k] / weight[k], k)):
            place = ways[k].index(len(orders))
            way = ways[k][place:] + ways[k][:place]
            if all(way[-1] != order[-1] for order in orders):
                used_now = [n + (i == k) for i, n in enumerate(used)]
                if (complete := chosen([*orders, way], used_now)) is not None:
                    return complete
        return None

    entered = chosen([], [0] * len(ways))
    return np.array(entered) if entered is not None else _paced(inner)


def lanes(p: int, inner: int, share: float, times: float, rings: RingSet = ()) -> Pairs:
    """Return the step of one ring for each way out of the node, which others enter and leave by.

    Groups that stay in a node go round its rings, each both ways.
    """
    if rings and inner == p:
        ways = np.array([way for order, _ in rings for way in (order, order[::-1])])
        weights = np.repeat([weight for _, weight in rings], 2)
        flow = pairs(ways.ravel(), np.roll(ways, -1, axis=1).ravel(),
                     np.repeat(weights / weights.sum(), p) * share, times)  # fmt: skip
        return Pairs(flow.share, flow.times, flow.source, flow.target, stripes=len(ways))
    ranks = np.arange(p).reshape(-1, inner)
    inside = _entered(inner, rings) if rings else _paced(inner)
    orders = np.array([ranks[:, order].ravel() for order in inside], np.int32)
    flow = pairs(orders.ravel(), np.roll(orders, -1, axis=1).ravel(), share / inner, times)
    return Pairs(flow.share, flow.times, flow.source, flow.target, stripes=inner)


class Rings(OnRings, RingAllreduce):
    """One ring for each rank of a node, so that all of a node's ports carry a part [nccl].

    As the ring, with the message dealt to as many rings as a node has ranks.
    """

    name, source = "rings", "nccl, src/graph (channels)"

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > 2 and inner > 1

    def ring_schedule(self, p: int, inner: int, rings: RingSet) -> list[Steps]:
        return [lanes(p, inner, 1 / p, 2 * (p - 1), rings)]


class RingsAllgather(OnRings, RingAllgather):
    """Allgather by one ring for each rank of a node."""

    name, source = "rings", "nccl, src/graph (channels)"

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > 2 and inner > 1

    def ring_schedule(self, p: int, inner: int, rings: RingSet) -> list[Steps]:
        return [lanes(p, inner, 1 / p, p - 1, rings)]


class RingsReduceScatter(RingsAllgather):
    """Reduce-scatter by one ring for each rank of a node."""

    op = "reduce_scatter"
    like = ("allgather", 1.0)

    def reduced(self, p: Number) -> Number:
        return (p - 1) / p


class ChainBroadcast(Algorithm):
    """The message cut in k pieces down a chain: T = (p − 2 + k)(α + m/k β), here k = 4p."""

    op, name, source = "broadcast", "ring", "thakur2005, §3.4 (pipelined chain)"
    pieces = 4

    def steps(self, p: Number) -> Number:
        return p - 2 + self.pieces * p

    def volume(self, p: Number) -> Number:
        return (p - 2 + self.pieces * p) / (self.pieces * p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        k, ranks = self.pieces * p, np.arange(p - 1)
        return [pairs(ranks, ranks + 1, 1 / k, k + p - 2)]


class ChainReduce(ChainBroadcast):
    """The chain of the broadcast the other way, adding."""

    op = "reduce"

    def reduced(self, p: Number) -> Number:
        return self.volume(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        k, ranks = self.pieces * p, np.arange(p - 1)
        return [pairs(ranks + 1, ranks, 1 / k, k + p - 2)]

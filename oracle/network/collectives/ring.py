"""Rings: every rank sends to the next, over and over."""

from __future__ import annotations

from math import gcd

import numpy as np

from oracle.network.arrays import Number
from oracle.network.collectives.algorithm import Algorithm
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
    """The same way round, adding: T = (p − 1)(α + m/p β + m/p γ)."""

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
        both = np.concatenate([(ranks + 1) % p, (ranks - 1) % p])
        return [pairs(np.tile(ranks, 2), both, 1 / (2 * p), 2 * (p - 1))]


def _lanes(p: int, inner: int, share: float, times: float) -> Pairs:
    """One ring a way out of the node: ring j enters and leaves each node at another rank.

    Inside a node ring j takes every j-th rank, for each j that reaches them all.
    """
    ranks = np.arange(p).reshape(-1, inner)
    paces = [j for j in range(1, inner) if gcd(j, inner) == 1] or [1]
    orders = np.empty((inner, p), np.int32)
    for j in range(inner):
        order = np.arange(inner) * paces[j % len(paces)] % inner
        orders[j] = np.roll(ranks[:, order], -j, axis=1).ravel()
    flow = pairs(orders.ravel(), np.roll(orders, -1, axis=1).ravel(), share / inner, times)
    return Pairs(flow.share, flow.times, flow.source, flow.target, stripes=inner)


class Rings(RingAllreduce):
    """One ring for each rank of a node, so that all of a node's ports carry a part [nccl].

    As the ring, with the message dealt to as many rings as a node has ranks.
    """

    name, source, nodal = "rings", "nccl, src/graph (channels)", True

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > 2 and inner > 1

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [_lanes(p, inner, 1 / p, 2 * (p - 1))]


class RingsAllgather(RingAllgather):
    """Allgather by one ring for each rank of a node."""

    name, source, nodal = "rings", "nccl, src/graph (channels)", True

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > 2 and inner > 1

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [_lanes(p, inner, 1 / p, p - 1)]


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
    """The chain the other way, adding."""

    op = "reduce"

    def reduced(self, p: Number) -> Number:
        return self.volume(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        k, ranks = self.pieces * p, np.arange(p - 1)
        return [pairs(ranks + 1, ranks, 1 / k, k + p - 2)]

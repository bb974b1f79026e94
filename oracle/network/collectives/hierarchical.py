"""Hierarchical: inside the nodes first, then between them, then inside again."""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Number
from oracle.network.collectives.algorithm import Algorithm, log2, power_of_two
from oracle.network.collectives.halving import HalvingDoubling
from oracle.network.collectives.ring import RingAllreduce
from oracle.network.collectives.schedule import Pairs, Steps, flows, pairs, round_nodes
from oracle.network.collectives.tree import BinomialBroadcast, BinomialReduce


def _inside(p: int, inner: int, share: float, times: float) -> Pairs:
    """A ring step in every node."""
    return pairs(*round_nodes(p, inner), share, times)


def _across(p: int, inner: int, steps: list[Steps], share: float, leaders: int) -> list[Steps]:
    """A schedule among the nodes, run by the first `leaders` ranks of each at once."""
    lane = np.arange(leaders)[:, None]
    return [
        pairs((source * inner + lane).ravel(), (target * inner + lane).ravel(),
              np.tile(part * share, leaders), times)
        for source, target, part, times in flows(steps, p // inner)
    ]  # fmt: skip


class Hierarchical(Algorithm):
    """Reduce-scatter in the node, allreduce of each share across nodes, allgather in the node.

        T = 2(q − 1)(α_in + m/q β_in) + 2(n − 1)(α + m/qn β)

    for n nodes of q ranks; every rank leads for its share (multi-leader). The closed form takes
    one α and β for both, and q = 1.
    """

    op, name, source, nodal = "allreduce", "hierarchical", "jia2018scalable, §3; cho2019, §3", True

    def fits(self, p: int, inner: int = 1) -> bool:
        return 1 < inner < p and p % inner == 0

    def steps(self, p: Number, q: Number = 1) -> Number:
        return 2 * (q - 1) + 2 * (p / q - 1)

    def volume(self, p: Number, q: Number = 1) -> Number:
        return 2 * (q - 1) / q + 2 * (p / q - 1) / p

    def reduced(self, p: Number, q: Number = 1) -> Number:
        return self.volume(p, q) / 2

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ring = RingAllreduce().schedule(p // inner)
        inside = _inside(p, inner, 1 / inner, 2 * (inner - 1))
        return [inside, *_across(p, inner, ring, 1 / inner, inner)]


class HierarchicalDoubling(Hierarchical):
    """Hierarchical, with halving-doubling across nodes: T = … + 2 log₂n α + 2(n − 1)/qn m β."""

    name, source, menu = "hierarchical_doubling", "jia2018scalable, §3; thakur2005, §4.4", False

    def fits(self, p: int, inner: int = 1) -> bool:
        return super().fits(p, inner) and power_of_two(p // inner)

    def steps(self, p: Number, q: Number = 1) -> Number:
        return 2 * (q - 1) + 2 * log2(p / q)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        doubling = HalvingDoubling().schedule(p // inner)
        inside = _inside(p, inner, 1 / inner, 2 * (inner - 1))
        return [inside, *_across(p, inner, doubling, 1 / inner, inner)]


class Leader(Hierarchical):
    """Reduce to one leader a node, ring among the leaders, broadcast in the node.

    T = 2⌈log₂q⌉(α_in + m β_in) + 2(n − 1)(α + m/n β)
    """

    name, source, menu = "leader", "jia2018scalable, §3 (single leader)", False

    def steps(self, p: Number, q: Number = 1) -> Number:
        return 2 * log2(q) + 2 * (p / q - 1)

    def volume(self, p: Number, q: Number = 1) -> Number:
        return 2 * log2(q) + 2 * (p - q) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ring = RingAllreduce().schedule(p // inner)
        up = self.everywhere(p, inner, BinomialReduce().schedule(inner))
        down = self.everywhere(p, inner, BinomialBroadcast().schedule(inner))
        return [*up, *_across(p, inner, ring, 1.0, 1), *down]

    def everywhere(self, p: int, inner: int, steps: list[Steps]) -> list[Steps]:
        """Return a schedule inside a node for all nodes at once."""
        node = np.arange(0, p, inner)[:, None]
        return [
            pairs(
                (node + source).ravel(), (node + target).ravel(), np.tile(part, p // inner), times
            )
            for source, target, part, times in flows(steps, inner)
        ]


class HierarchicalAllgather(Algorithm):
    """Each share goes to its like in the other nodes, then all shares go round inside the node.

    T = (n − 1)(α + m/qn β) + (q − 1)(α_in + m/q β_in)
    """

    op, name, source, nodal = "allgather", "hierarchical", "jia2018scalable, §3", True

    def fits(self, p: int, inner: int = 1) -> bool:
        return 1 < inner < p and p % inner == 0

    def steps(self, p: Number, q: Number = 1) -> Number:
        return q - 1 + p / q - 1

    def volume(self, p: Number, q: Number = 1) -> Number:
        return (q - 1) / q + (p / q - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ranks, n = np.arange(p), p // inner
        return [pairs(ranks, (ranks + inner) % p, 1 / p, n - 1),
                _inside(p, inner, 1 / inner, inner - 1)]  # fmt: skip


class HierarchicalReduceScatter(HierarchicalAllgather):
    """The mirror image of the allgather, adding."""

    op = "reduce_scatter"
    like = ("allgather", 1.0)

    def reduced(self, p: Number, q: Number = 1) -> Number:
        return self.volume(p, q)

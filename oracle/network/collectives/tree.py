"""Trees: binomial, double binary, scatter first; one server; reduction inside the network."""

from __future__ import annotations

import numpy as np

from oracle.network.arrays import Floats, Ints, Number
from oracle.network.collectives.algorithm import Algorithm, OnRings, Rings, log2, power_of_two
from oracle.network.collectives.schedule import Pairs, Steps, exchange, pairs, shift


def _farthest_first(p: int) -> Ints:
    return np.asarray(2 ** np.arange(int(log2(p)))[::-1])


def _down(p: int, scattered: bool = False) -> list[Pairs]:
    """Every rank that has the message hands it, or half of its part, to the one half as far on."""
    steps: list[Pairs] = []
    for mask in _farthest_first(p).tolist():
        source = np.arange(0, p - mask, 2 * mask)
        steps.append(pairs(source, source + mask, mask / p if scattered else 1.0))
    return steps


def _up(p: int) -> list[Pairs]:
    """The way down, backwards."""
    return [pairs(step.target, step.source, step.share) for step in _down(p)[::-1]]


class BinomialBroadcast(Algorithm):
    """Broadcast down a binomial tree: T = ⌈log₂p⌉ (α + m β)."""

    op, name, source = "broadcast", "binomial", "thakur2005, §3.4"

    def steps(self, p: Number) -> Number:
        return log2(p)

    def volume(self, p: Number) -> Number:
        return log2(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [*_down(p)]


class BinomialReduce(BinomialBroadcast):
    """Reduce up a binomial tree: T = ⌈log₂p⌉ (α + m β + m γ)."""

    op, name, source = "reduce", "binomial", "thakur2005, §4.3"

    def reduced(self, p: Number) -> Number:
        return log2(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [*_up(p)]


class BinomialAllreduce(BinomialReduce):
    """Reduce to one, then broadcast: T = 2⌈log₂p⌉ (α + m β) + ⌈log₂p⌉ m γ."""

    op, name, menu = "allreduce", "binomial", False

    def steps(self, p: Number) -> Number:
        return 2 * log2(p)

    def volume(self, p: Number) -> Number:
        return 2 * log2(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [*_up(p), *_down(p)]


class ScatterBroadcast(Algorithm):
    """Scatter down a binomial tree, then allgather by ring.

    T = (⌈log₂p⌉ + p − 1) α + 2 (p − 1)/p m β, powers of two only.
    """

    op, name, source = "broadcast", "scatter_ring", "thakur2005, §3.4 (van de Geijn)"

    def fits(self, p: int, inner: int = 1) -> bool:
        return power_of_two(p)

    def steps(self, p: Number) -> Number:
        return log2(p) + p - 1

    def volume(self, p: Number) -> Number:
        return 2 * (p - 1) / p

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return [*_down(p, scattered=True), shift(1, 1 / p, p - 1)]


class ScatterDoublingBroadcast(ScatterBroadcast):
    """Scatter, then allgather by doubling: T = 2 log₂p α + 2 (p − 1)/p m β."""

    name = "scatter_doubling"

    def steps(self, p: Number) -> Number:
        return 2 * log2(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        masks = 2 ** np.arange(int(log2(p)))
        return [*_down(p, scattered=True), exchange(masks, masks / p)]


def parents(n: int) -> Ints:
    """Return each node's parent in a binary tree whose leaves are odd nodes; −1 for the root."""
    node = np.arange(n)
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    up = np.where(up >= n, node ^ bit, up)
    up[0] = -1
    return np.asarray(up)


def two_trees(n: int) -> list[tuple[Ints, Ints]]:
    """Return (child, parent) of either tree among n nodes: leaves of one pass on in the other."""
    node, up = np.arange(n), parents(n)
    mirror = n - 1 - node if n % 2 == 0 else (node + 1) % n
    child = node[up >= 0]
    return [(child, up[child]), (mirror[child], mirror[up[child]])]


class DoubleTree(OnRings, Algorithm):
    """Two binary trees, each for half of the message: leaves of one pass on in the other.

        T = (2⌈log₂n⌉ + 2(q − 1) + 1) α + 2 m β

    over n nodes of q ranks, a chain inside each node, in pieces so small that all edges carry
    data at once [sanders2009; nccl]. As many pairs of trees as ranks in a node, each with its
    own way out, share the message.
    """

    op, name, source = "allreduce", "double_tree", "sanders2009, §3; nccl"

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > 2

    def steps(self, p: Number, q: Number = 1) -> Number:
        return 2 * log2(p / q) + 2 * (q - 1) + 1

    def volume(self, p: Number, q: Number = 1) -> Number:
        return 2.0 + 0 * np.asarray(p)

    def reduced(self, p: Number) -> Number:
        return 1.0 + 0 * np.asarray(p)

    def ring_schedule(self, p: int, inner: int, rings: Rings) -> list[Steps]:
        if inner == p:
            inner = 1
        n = p // inner
        trees = two_trees(n)
        lane = np.arange(inner)[:, None]
        below = np.concatenate([(low * inner + lane).ravel() for low, _ in trees])
        above = np.concatenate([(high * inner + lane).ravel() for _, high in trees])
        behind, ahead, part = _chained(p, inner, rings)
        weight = np.concatenate([np.full(len(below), 1.0), 2.0 * (inner - 1) * part])
        below, above = np.concatenate([below, ahead]), np.concatenate([above, behind])
        ends = np.concatenate([below, above]), np.concatenate([above, below])
        depth = 2 * int(log2(n)) if n > 1 else 0
        across = pairs(*trees[0], 0.0, depth) if inner == 1 else pairs(
            trees[0][0] * inner, trees[0][1] * inner, 0.0, depth)  # fmt: skip
        steps: list[Steps] = [across]
        if inner > 1:
            steps.append(pairs(np.arange(1, inner), np.arange(inner - 1), 0.0, 2 * (inner - 1)))
        flow = pairs(*ends, np.tile(weight, 2) * 0.5 / inner if inner > 1 else 0.5)
        return [*steps, Pairs(flow.share, flow.times, flow.source, flow.target, stripes=inner + 1)]


def _chained(p: int, inner: int, rings: Rings) -> tuple[Ints, Ints, Floats]:
    """(from, to, part of all lanes) of the links that chains take inside nodes.

    Every lane's chain takes all links of its node's ring but one; with several rings, of each
    ring as many lanes as it has of the bandwidth.
    """
    if inner == 1:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    ways = np.array([order for order, _ in rings] or [tuple(range(inner))])
    parts = np.array([weight for _, weight in rings] or [1], float)
    first = np.arange(0, p, inner)[:, None]
    behind, ahead = (first + way.ravel() for way in (ways, np.roll(ways, -1, axis=1)))
    part = np.tile(np.repeat(parts / parts.sum(), inner), len(first))
    return behind.ravel(), ahead.ravel(), part


class ParameterServer(Algorithm):
    """All send to rank 0 at once, rank 0 answers all at once: T = 2α + 2(p − 1) m β."""

    op, name, source, menu = "allreduce", "parameter_server", "li2014, §3", False

    def steps(self, p: Number) -> Number:
        return 2 + 0 * np.asarray(p)

    def volume(self, p: Number) -> Number:
        return 2 * (p - 1)

    def reduced(self, p: Number) -> Number:
        return p - 1

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        workers = np.arange(1, p)
        return [pairs(workers, 0 * workers, 1.0), pairs(0 * workers, workers, 1.0)]


class InNetwork(Algorithm):
    """Switches add up what passes: m up, m down, whatever p: T = 2⌈log₂p/5⌉ α + m β.

    One stream of m enters and one leaves every unit of every level, which is the load of one
    ring step of the whole message; that step stands for the tree of switches (radix 2⁵) in the
    schedule. Only where the switches can [graham2016], so never unless named.
    """

    op, name, source, menu = "allreduce", "in_network", "graham2016, §3", False

    def steps(self, p: Number) -> Number:
        return 2 * np.ceil(np.log2(p) / 5)

    def volume(self, p: Number) -> Number:
        return 1.0 + 0 * np.asarray(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ticks = float(self.steps(p)) - 1
        wait: list[Steps] = [shift(1, 0.0, ticks)]
        return [*wait, shift(1, 1.0)]

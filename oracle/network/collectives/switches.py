"""Collectives that switches help with: NVSwitch that adds up and multicasts, SHARP, both, trees.

A switch that reduces pulls a piece from every rank and hands on their sum; one that multicasts
takes a piece once and hands it to all. What a rank sends and takes in follows from that:

    in a node of q ranks, one of q pieces each      out          in
    reduce-scatter: all pull my part, I my piece    m            m/q
    allgather: my piece once, everybody's to me     m/q          m
    allreduce: one after the other                  m + m/q      m/q + m

Between nodes each rank carries its piece over its own way out, m/q up and m/q down, however many
nodes there are: switches hand on one sum a unit. A ring step among units is the same load, one
message out of each and one into it, so that is what stands for it in the schedule. As a route
out of a node is counted over its device's port as well, the ring step inside is that much less.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oracle.network.arrays import Floats, Ints, Number
from oracle.network.collectives.algorithm import Algorithm, log2
from oracle.network.collectives.schedule import Pairs, Steps, pairs, round_nodes, shift
from oracle.network.collectives.tree import two_trees

RADIX_BITS = 5  # of a tree of switches: each takes in 2⁵


class InSwitch:
    """An algorithm that switches help with, on offer only where levels say that they can."""

    menu: ClassVar[bool] = False
    word: ClassVar[str]  # of `reduces`, which levels between the ranks must say
    inner_word: ClassVar[str] = ""  # likewise, those of a node
    across: ClassVar[bool] = True  # whether it is for groups that leave their nodes


class Nvls(InSwitch, Algorithm):
    """Allreduce through the switch of a node, NVLink SHARP: T = 2α + (1 + 1/p) m β."""

    op, name, source = "allreduce", "nvls", "klenk2020, §3; nccl"
    word, inner_word, across = "nvls", "nvls", False

    def steps(self, p: Number) -> Number:
        return 2 + 0 * np.asarray(p)

    def volume(self, p: Number) -> Number:
        return 1 + 1 / np.asarray(p, float)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        times = int(self.steps(p))
        return [shift(1, float(self.volume(p)) / times, times)]


class NvlsReduceScatter(Nvls):
    """Every rank pulls the sum of its piece out of all ranks: T = α + m β."""

    op = "reduce_scatter"

    def steps(self, p: Number) -> Number:
        return 1 + 0 * np.asarray(p)

    def volume(self, p: Number) -> Number:
        return 1.0 + 0 * np.asarray(p)


class NvlsAllgather(NvlsReduceScatter):
    """Every rank's piece is multicast: m/p out, all of m in: T = α + m β."""

    op = "allgather"


class NvlsBroadcast(NvlsReduceScatter):
    """The root's message is multicast: T = α + m β, whatever p."""

    op = "broadcast"


class NvlsReduce(NvlsReduceScatter):
    """The root pulls the sum: T = α + m β, whatever p."""

    op = "reduce"


class NvlsTree(InSwitch, Algorithm):
    """Switches inside the nodes, two binary trees between them for each rank's piece.

        T = 2(1 + ⌈log₂n⌉) α + max((1 + 1/q) m β_in, 2 m/q β)

    n nodes of q ranks, in pieces so small that all links carry data at once; m/q β of two nodes.
    """

    op, name, source, nodal = "allreduce", "nvlstree", "nccl, src/device (NVLSTree)", True
    word, inner_word = "", "nvls"

    def fits(self, p: int, inner: int = 1) -> bool:
        return 1 < inner < p and p % inner == 0

    def steps(self, p: Number, q: Number = 1) -> Number:
        return 2 * (1 + log2(np.asarray(p, float) / q))

    def volume(self, p: Number, q: Number = 1) -> Number:
        volume: Number = 1 + 1 / np.asarray(q, float) + 0 * np.asarray(p)
        return volume

    def reduced(self, p: Number) -> Number:
        return 1.0 + 0 * np.asarray(p)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        n = p // inner
        below, above = map(np.concatenate, zip(*two_trees(n), strict=True))
        ends = np.concatenate([below, above]), np.concatenate([above, below])
        busiest = 0.5 * float(np.bincount(ends[0], minlength=n).max())
        first = pairs(below[: n - 1] * inner, above[: n - 1] * inner, 0.0, 2 * int(log2(n)))
        inside = round_nodes(p, inner)
        wait = pairs(*inside, 0.0)
        lane = np.arange(inner)
        source, target = ((nodes[:, None] * inner + lane).ravel() for nodes in ends)
        rest = 1 + 1 / inner - busiest / inner
        return [first, wait, _together((source, target, 0.5 / inner), (*inside, rest))]


class Sharp(InSwitch, Algorithm):
    """Allreduce through the switches of the network, and inside a node through its own.

        T = (2 + 2⌈log₂(n)/5⌉) α + max((1 + 1/q) m β_in, m/q β)

    One rank a node, q = 1: 2⌈log₂(n)/5⌉ α + m β.
    """

    op, name, source, nodal = "allreduce", "sharp", "graham2016, §3; graham2020", True
    word, inner_word = "sharp", "nvls"

    def steps(self, p: Number, q: Number = 1) -> Number:
        depth = np.maximum(1, np.ceil(np.log2(np.asarray(p, float) / q) / RADIX_BITS - 1e-9))
        return 2 * depth + np.where(np.asarray(q) > 1, 2, 0)

    def fits(self, p: int, inner: int = 1) -> bool:
        return p > inner >= 1 and p % inner == 0

    def volume(self, p: Number, q: Number = 1) -> Number:
        return self.inside(q) + 0 * np.asarray(p)

    def inside(self, q: Number) -> Number:
        """Parts of the message over a rank's own port."""
        return np.where(np.asarray(q) > 1, 1 + 1 / np.asarray(q, float), 1.0)

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        ranks, port_share = np.arange(p), float(self.inside(inner))
        beyond = ranks, (ranks + inner) % p
        waits = float(self.steps(p, inner)) - 1
        waiting: list[Steps] = [pairs(*beyond, 0.0, waits)]
        if inner == 1:
            return [*waiting, _together((*beyond, port_share))]
        rest = port_share - 1 / inner
        return [*waiting, _together((*beyond, 1 / inner), (*round_nodes(p, inner), rest))]


class SharpReduceScatter(Sharp):
    """Sums of a node through its switch, then of all nodes through the network's: m β_in, m/q β.

    T = (1 + [q > 1]) α + max(m β_in, m/q β): no less of a port than rings use, but few steps.
    """

    op = "reduce_scatter"

    def steps(self, p: Number, q: Number = 1) -> Number:
        return super().steps(p, q) / 2

    def inside(self, q: Number) -> Number:
        return 1.0 + 0 * np.asarray(q)


class SharpAllgather(SharpReduceScatter):
    """The reduce-scatter the other way: pieces are multicast by both kinds of switches."""

    op = "allgather"


class SharpBroadcast(SharpReduceScatter):
    """The root's pieces leave over the ways of its node and are multicast everywhere."""

    op = "broadcast"


class SharpReduce(SharpReduceScatter):
    """The broadcast the other way, adding."""

    op = "reduce"


class CollNet(Sharp):
    """SHARP between nodes whose own switches only pass on: pieces are swapped rank by rank.

    T = (2[q > 1] + 2⌈log₂(n)/5⌉) α + max(2(q − 1)/q m β_in, m/q β)
    """

    name, source = "collnet", "nccl, src/graph/tuning.cc (CollNetDirect)"
    inner_word = ""

    def inside(self, q: Number) -> Number:
        ranks = np.asarray(q, float)
        return np.where(ranks > 1, 2 * (ranks - 1) / ranks, 1.0)


class CollNetReduceScatter(SharpReduceScatter):
    """Half of the allreduce, counted with what leaves the node: T = (1 + [q > 1]) α + m β_in."""

    name, source = CollNet.name, CollNet.source
    inner_word = ""


class CollNetAllgather(CollNetReduceScatter):
    """The reduce-scatter the other way."""

    op = "allgather"


def _together(*parts: tuple[Ints, Ints, float]) -> Pairs:
    """One step of flows whose pieces pass on at once: they are meant to share links."""
    source, target = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    share: Floats = np.concatenate([np.full(len(s), float(part)) for s, _, part in parts])
    return Pairs(share, np.ones(1), source, target, stripes=2)

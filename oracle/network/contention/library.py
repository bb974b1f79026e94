"""Cost lines of a library's own model: its public constants, times what logs say they are off by.

    seconds = base + hops inside a node + hops between nodes + wire / bandwidth

for each algorithm and protocol. A system's `library:` has factors on each part; where it has none
the constants stand as they are. Hops go by the factors of the place that they are in, all else by
those of the place that the groups span.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oracle.network import nccl
from oracle.network.arrays import Floats
from oracle.network.collectives import Algorithm
from oracle.network.collectives.alltoall import ScatteredAlltoall
from oracle.network.contention.counting.schedules import Cost
from oracle.network.contention.line import CostLine
from oracle.network.contention.measured import rank_distance
from oracle.network.topology import Topology
from oracle.spec.doubt import AGAIN, COUSIN, FOLD, LIBRARY
from oracle.spec.system import Library, System

RINGS = ("ring", "rings", "bidirectional_ring", "chain")
TREES = ("double_tree",)
OWN_PARTS = ("allreduce", "allgather", "reduce_scatter", "alltoall")  # of which ranks have parts
CHANNELS = ("LL", "LL128", "pairs")  # kinds whose short messages do with few


@dataclass(frozen=True)
class Term:
    """What one algorithm under one protocol costs by the library's constants alone."""

    algorithm: str
    protocol: str
    base: float  # seconds of a call
    inside: float  # of hops inside a node
    between: float  # of hops between nodes
    per_byte: float
    copied: float  # of a byte of the message, to copy the part that a rank has already
    cost: Cost

    @property
    def kind(self) -> str:
        """The word for it in a `Library`."""
        return self.protocol if self.algorithm in (*RINGS, *TREES) else "pairs"


def terms(
    by: Algorithm, cost: Cost, topology: Topology, p: int, inside: int, outside: bool,
    version: nccl.Version = nccl.NEWEST,
) -> Iterator[Term]:  # fmt: skip
    """Yield a term for each protocol of an algorithm among p ranks; `inside` levels lie in a node.

    A rank copies its own part of a message inside its device: in groups that leave their nodes it
    waits for the network meanwhile.
    """
    copies = by.op in OWN_PARTS and not outside
    for protocol in nccl.protocols(by.name):
        base, part, hops = nccl.constants(by.name, protocol, topology.levels, version)
        far = np.where(np.arange(len(hops)) >= inside, hops, 0.0)
        start, between = (cost.start_at(hop_seconds, by.pipelined) for hop_seconds in (hops, far))
        if isinstance(by, ScatteredAlltoall):  # each message to a neighbour is posted by itself
            start += posted(cost, hops - far, p)
        per_byte = cost.per_byte / part
        copied = copies * per_byte / float(np.mean(by.volume(p))) / p
        yield Term(by.name, protocol, base, start - between, between, per_byte, copied, cost)


def as_tuned(offer: Sequence[Algorithm], costs: list[Cost], p: int) -> list[Cost]:
    """Return the costs, with trees at no more than the bandwidth that NCCL's tuner grants them.

    It takes 0.92 of a ring's bus bandwidth and half of that for the way up and down, so large
    messages go round rings also where a tree between two nodes would be faster [nccl].
    """
    rings = [cost for by, cost in zip(offer, costs, strict=True) if by.name in ("ring", "rings")]
    if not rings:
        return costs
    tree_per_byte = min(cost.per_byte for cost in rings) * p / (p - 1) / 0.92
    return [
        replace(cost, per_byte=max(cost.per_byte, tree_per_byte))
        if by.name == "double_tree"
        else cost
        for by, cost in zip(offer, costs, strict=True)
    ]


def posted(cost: Cost, hops: Floats, p: int) -> float:
    """Seconds to post all of a rank's messages but the first, one hop each."""
    (steps,) = cost.steps
    return float(p - 2) * float(steps.start(hops, pipelined=True))


def factors(system: System, outside: bool) -> Library | None:
    """Return a system's factors for groups inside a node, or for groups that leave it."""
    names = [level.name for level in system.levels]
    places = [
        place for place in system.library if (names.index(place.level) >= system.inside) == outside
    ]
    return max(places, key=lambda place: names.index(place.level), default=None)


def corrected(
    term: Term, inner: Library | None, outer: Library | None, outside: bool
) -> Iterator[tuple[float, float]]:
    """Yield (seconds to start, seconds per byte) with the factors of both places.

    Where short messages open few channels, there are two lines: of those few, and of all.
    """
    kind, spanned = term.kind, outer if outside else inner

    def factor(place: Library | None, part: str) -> float:
        return 1.0 if place is None else getattr(place, part).get(kind, 1.0)

    base = term.base * factor(spanned, "base")
    start = base + term.inside * factor(inner, "hop") + term.between * factor(outer, "hop")
    if spanned is None:
        yield start, term.per_byte + nccl.OWN * term.copied
        return
    tree_factor = spanned.tree if term.algorithm in TREES else 1.0
    per_byte = (
        (term.per_byte + spanned.own * term.copied) / factor(spanned, "bandwidth") / tree_factor
    )
    if spanned.opened and kind in CHANNELS:
        yield start, per_byte / spanned.few
        start += spanned.opened * base
    yield start, per_byte


def library_lines(
    system: System, op: str, every_term: list[Term], p: int, outside: bool, short: float
) -> Iterator[CostLine]:
    """Yield the cost lines of an operation, as fitted or as the library's constants say."""
    inner, outer = (factors(system, far) for far in (False, True))
    spanned = outer if outside else inner
    origin, doubt, sizes, beyond = "assumed", LIBRARY, tuple[float, ...](), True
    if spanned is not None:
        distance = rank_distance(spanned.ranks, p)
        cousin = bool(spanned.operations) and op not in spanned.operations
        doubt = min(1.0, max(AGAIN, spanned.error) + FOLD * distance + COUSIN * cousin)
        origin, sizes, beyond, short = "fitted", spanned.sizes, distance > 0 or cousin, 0.0
    for term in every_term:
        for start, per_byte in corrected(term, inner, outer, outside):
            yield CostLine(f"{term.algorithm}/{term.protocol}", start, per_byte, term.cost.phi,
                           term.cost.full, origin, doubt, short, sizes, beyond)  # fmt: skip

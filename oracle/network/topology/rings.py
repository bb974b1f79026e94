"""Rings that a mesh of links has room for at once, as NCCL's search of the node's graph lays them.

NCCL takes the rings that together carry most, at a whole or half a link's bandwidth each, over
links between neighbours; only where no ring closes may a device relay [nccl, src/graph/search.cc].
A ring goes both ways round at half a link each way: so the most of them, counted in links, is the
most undirected cycles through all devices in a graph of twice the links.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, pairwise, permutations
from typing import TypeAlias

import numpy as np

from oracle.network.arrays import Ints

Links: TypeAlias = tuple[tuple[int, ...], ...]  # between each two devices, symmetric
Order: TypeAlias = tuple[int, ...]  # devices as a ring passes them
LARGEST = 8  # devices whose rings are searched for: 2,520 ways round
TRIED = 20_000  # partial sets of rings looked at before the best so far is taken


@lru_cache(256)
def rings(links: Links) -> tuple[tuple[Order, int], ...]:
    """Return (order, width in links) of the rings that carry most, each both ways round.

    Empty where no ring closes, or where there are too many devices to search.
    """
    width = len(links)
    if not 2 <= width <= LARGEST:
        return ()
    orders = [(0, *rest) for rest in permutations(range(1, width)) if rest[0] <= rest[-1]]
    for relays in (False, True):
        ways = [way for order in orders if (way := _used(links, order, relays)) is not None]
        if ways:
            used = np.array([counts for _, counts in ways])
            room = 2 * np.array([links[a][b] for a, b in combinations(range(width), 2)])
            chosen = _largest_set(used, room, _bound(links))
            numbers, times = np.unique(np.array(chosen, np.int64), return_counts=True)
            return tuple((ways[k][0], int(n)) for k, n in zip(numbers, times, strict=True))
    return ()


def relay(links: Links, start: int, end: int) -> int:
    """Return the device that two without a link go through: the one best joined to both, or −1."""
    room = [min(links[start][k], links[k][end]) for k in range(len(links))]
    return int(np.argmax(room)) if max(room) else -1


def _used(links: Links, order: Order, relays: bool) -> tuple[Order, list[int]] | None:
    """Return a way round and the links that it takes between each pair; None where one lacks."""
    used = dict.fromkeys(combinations(range(len(links)), 2), 0)
    for a, b in pairwise((*order, order[0])):
        hops = [(a, b)]
        if not links[a][b]:
            through = relay(links, a, b) if relays else -1
            if through < 0:
                return None
            hops = [(a, through), (through, b)]
        for low, high in map(sorted, hops):
            used[low, high] += 1
    return order, [*used.values()]


def _bound(links: Links) -> int:
    """Return the most rings there can be: half the doubled links that leave any set of devices."""
    counts = np.array(links)
    subsets = range(1, 2 ** (len(links) - 1))
    inside = np.array([[bool(mask >> k & 1) for k in range(len(links))] for mask in subsets])
    return int(min(counts[np.ix_(side, ~side)].sum() for side in inside))


def _largest_set(used: Ints, room: Ints, bound: int) -> list[int]:
    """Return the largest set of ways that fits, with repeats: depth first, the widest way first."""
    best: list[int] = []
    budget = TRIED

    def extend(chosen: list[int], left: Ints, ways: Ints) -> None:
        nonlocal best, budget
        budget -= 1
        if len(chosen) > len(best):
            best = [*chosen]
        ways = ways[(used[ways] <= left).all(axis=1)]
        spare = np.where(used[ways] > 0, left, np.iinfo(np.int64).max).min(axis=1, initial=2**60)
        total = (used[ways] * left).sum(axis=1)
        for k in np.lexsort((ways, -total, -spare)):
            if len(best) >= bound or budget <= 0:
                return
            extend([*chosen, int(ways[k])], left - used[ways[k]], ways)

    extend([], room, np.arange(len(used)))
    return best

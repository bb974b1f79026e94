"""How long ranks take that wait for each other at every message.

Each time somebody else may be late, so all take longer together than any of them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Stretch(NamedTuple):
    """Work of one rank until a message, and the ranks that meet there."""

    seconds: float
    members: tuple[int, ...]  # the rank and those that it waits for; () at the end


def in_step(ranks: Mapping[int, Sequence[Stretch]]) -> dict[int, float]:
    """Seconds until each rank is through, if messages take none; only ranks given are waited for.

    A rank's n-th message with another is the other's n-th with it.

    >>> in_step({0: [Stretch(3, (0, 1)), Stretch(1, ())], 1: [Stretch(1, (0, 1)), Stretch(3, ())]})
    {0: 4.0, 1: 6.0}
    """
    clock = dict.fromkeys(ranks, 0.0)
    done = dict.fromkeys(ranks, 0)  # stretches
    # when the first of two arrived at each message with the other
    reached: dict[tuple[int, int], list[float]] = {}
    passed: dict[tuple[int, int], int] = {}  # messages of the first with the other that are over
    waiting: set[int] = set()  # ranks that have arrived at a message
    moved = True
    while moved:
        moved = False
        for rank, stretches in ranks.items():
            while done[rank] < len(stretches):
                seconds, members = stretches[done[rank]]
                peers = [peer for peer in members if peer != rank and peer in ranks]
                if rank not in waiting:
                    clock[rank] += seconds
                    waiting.add(rank)
                    moved = True
                    for peer in peers:
                        reached.setdefault((rank, peer), []).append(clock[rank])
                met = [passed.get((rank, peer), 0) for peer in peers]
                arrivals = [reached.get((peer, rank), []) for peer in peers]
                if any(len(moments) <= n for moments, n in zip(arrivals, met, strict=True)):
                    break
                for peer, moments, n in zip(peers, arrivals, met, strict=True):
                    clock[rank] = max(clock[rank], moments[n])
                    passed[rank, peer] = n + 1
                waiting.discard(rank)
                done[rank] += 1
                moved = True
    stuck = sorted(rank for rank in ranks if done[rank] < len(ranks[rank]))
    if stuck:
        raise ValueError(f"ranks {', '.join(map(str, stuck))} wait for messages nobody else has")
    return clock

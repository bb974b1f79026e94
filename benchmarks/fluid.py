"""An exact max-min simulation of messages on links, which predictions are held against.

Nothing of `oracle.network.contention` is in it. Every message waits for its two ranks, whose
messages go step by step; those on their way share links by max-min fairness, worked out anew
whenever one starts or ends [bertsekas1992].
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sent:
    """One message: from rank to rank, bytes, and the part of it that each of its links carries."""

    source: int
    target: int
    nbytes: float
    links: dict[int, float]


def fair(capacity: np.ndarray, uses: np.ndarray) -> np.ndarray:
    """Max-min rates of flows by `uses` (links × flows): the scarcest link first."""
    rate = np.zeros(uses.shape[1])
    room, open_ = capacity.copy(), np.ones(uses.shape[1], bool)
    while open_.any():
        load = uses[:, open_].sum(axis=1)
        share = np.where(load > 1e-12, room / np.maximum(load, 1e-12), np.inf)
        least = share.min()
        scarce = share <= least * (1 + 1e-9)
        ends = open_ & (uses[scarce] > 0).any(axis=0)
        rate[ends] = least
        room = np.maximum(room - least * uses[:, ends].sum(axis=1), 0.0)
        open_ &= ~ends
    return rate


def simulate(capacity: np.ndarray, steps: Sequence[Sequence[Sent]], alpha: float = 0.0) -> float:
    """Seconds until the last message of all steps is through, each rank at its own pace."""
    queue: dict[int, list[int]] = {}
    every: list[Sent] = [one for step in steps for one in step]
    number = 0
    waits: list[int] = [0] * len(every)  # messages of its ranks that come before
    after: list[list[int]] = [[] for _ in every]
    for step in steps:
        mine = range(number, number + len(step))
        touched: dict[int, list[int]] = {}
        for at in mine:
            for rank in {every[at].source, every[at].target}:
                for before in queue.get(rank, []):
                    after[before].append(at)
                    waits[at] += 1
                touched.setdefault(rank, []).append(at)
        queue |= touched
        number += len(step)
    return _played(capacity, every, waits, after, alpha)


def _played(
    capacity: np.ndarray, every: list[Sent], waits: list[int], after: list[list[int]], alpha: float
) -> float:
    left = np.array([one.nbytes for one in every])
    uses = np.zeros((len(capacity), len(every)), np.float32)
    for at, one in enumerate(every):
        for link, part in one.links.items():
            uses[link, at] = part
    now, going = 0.0, np.zeros(0, int)
    starts = [(alpha, at) for at, count in enumerate(waits) if not count]
    heapq.heapify(starts)
    while starts or len(going):
        if len(going):
            rate = fair(capacity, uses[:, going])
            end = now + (left[going] / rate).min()
        else:
            rate, end = np.zeros(0), np.inf
        until = min(end, starts[0][0] if starts else np.inf)
        left[going] -= rate * (until - now)
        now = until
        over = left[going] <= 1e-9 * np.array([every[at].nbytes for at in going])
        for at in going[over]:
            for later in after[at]:
                waits[later] -= 1
                if not waits[later]:
                    heapq.heappush(starts, (now + alpha, later))
        going = going[~over]
        while starts and starts[0][0] <= now * (1 + 1e-12):
            going = np.append(going, heapq.heappop(starts)[1])
    return now

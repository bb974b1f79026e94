"""Divisions of a batch among kernels that a workspace has room for [oyama2018].

    T(2^k) = min over algorithms a { t_a(2^k) : workspace_a(2^k) ≤ limit },  2 T(2^(k-1))
    T(n)   = sum of T(2^k) over the bits of n,  or all n samples in one piece

Pieces of powers of two that add up to n can be put together to the powers of two that n is written
with, so that this is the best of all divisions into powers of two. What is computed stays the same:
gradients of weights are added up piece by piece. Pieces run one after the other in one workspace,
the largest of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.models.model import Flags, Floats
from oracle.models.shard import Numbers


@dataclass(frozen=True, slots=True)
class Offer:
    """An algorithm for some samples: its seconds, endless where it is none, and its workspace."""

    name: str
    seconds: Floats
    room: Floats


Offered: TypeAlias = Callable[[Floats], Sequence[Offer]]  # for so many samples


@dataclass(frozen=True, slots=True)
class Taken:
    """What a kernel takes within its limit."""

    seconds: Floats
    room: Floats  # bytes of workspace, of the largest piece
    pieces: Numbers = 1.0
    # of 1, 2, 4, … samples: into pieces of 2 to the power of what they are best run; -1 for all
    # samples in one piece
    levels: tuple[NDArray[np.int_], ...] = ()
    divided: Flags | bool = False


class Menu:
    """What a library offers for a batch, and with `micro` for pieces of it."""

    def __init__(self, batch: Floats, offered: Offered, micro: bool = False) -> None:
        self.batch, self.micro = batch, micro
        self.whole = [*offered(batch)]
        most = int(np.ceil(np.max(batch))) if micro else 0
        self.powers = [
            [*offered(np.asarray(float(2**k)))] for k in range(most.bit_length() if most > 1 else 0)
        ]

    def best(self, limit: Numbers) -> Taken:
        """The fastest way within a limit of bytes."""
        seconds, room = fastest(self.whole, limit)
        if not self.powers:
            return Taken(seconds, room)
        known: list[tuple[Floats, Floats, Floats]] = []
        levels: list[NDArray[np.int_]] = []
        for k, offers in enumerate(self.powers):
            one, own = fastest(offers, limit)
            count, level = np.ones(one.shape), np.full(one.shape, k)
            if known:
                before, smaller, pieces = known[-1]
                split = 2 * before < one
                one, own = np.where(split, 2 * before, one), np.where(split, smaller, own)
                count, level = np.where(split, 2 * pieces, 1.0), np.where(split, levels[-1], k)
            known.append((one, own, count))
            levels.append(level)
        samples = np.ceil(self.batch).astype(int)
        total, most, parts = (np.zeros(()) for _ in range(3))
        for k, (one, own, count) in enumerate(known):
            has = (samples >> k) & 1 > 0
            total, parts = total + has * one, parts + has * count
            most = np.maximum(most, has * own)
        divided = (parts > 1) & (total < seconds)
        return Taken(np.where(divided, total, seconds), np.where(divided, most, room),
                     np.where(divided, parts, 1.0), tuple(levels), divided)  # fmt: skip

    def rooms(self) -> list[Floats]:
        """Bytes of every workspace that some piece may want."""
        every = [*self.whole, *(offer for offers in self.powers for offer in offers)]
        return [np.where(np.isfinite(offer.seconds), offer.room, 0.0) for offer in every]


def fastest(offers: Sequence[Offer], limit: Numbers) -> tuple[Floats, Floats]:
    """(seconds, workspace) of the fastest that the limit allows, the first of equals.

    One that wants no workspace is always among them.
    """
    seconds, room = np.full((), np.inf), np.zeros(())
    for offer in offers:
        better = (offer.room <= limit) & (offer.seconds < seconds)
        seconds, room = np.where(better, offer.seconds, seconds), np.where(better, offer.room, room)
    return seconds, room


def named(offers: Sequence[Offer], limit: Numbers) -> NDArray[np.str_]:
    """The name of the algorithm that is taken."""
    seconds, name = np.full((), np.inf), np.full((), "", "U16")
    for offer in offers:
        better = (offer.room <= limit) & (offer.seconds < seconds)
        seconds, name = np.where(better, offer.seconds, seconds), np.where(better, offer.name, name)
    return name


def division(samples: int, levels: Sequence[int]) -> list[tuple[int, int]]:
    """(how many, samples of each) of the pieces that a batch is run in, the largest first."""
    found: dict[int, int] = {}
    for k, level in enumerate(levels):
        if samples >> k & 1:
            found[2**level] = found.get(2**level, 0) + 2 ** (k - level)
    return [(found[size], size) for size in sorted(found, reverse=True)]

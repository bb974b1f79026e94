"""Which device each rank of a job sits on: the nodes that it was given, and how ranks fill them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Pattern: TypeAlias = tuple[tuple[int, int], ...]  # (size, stride) pairs, outermost first
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Digit:
    """Ranks that count on together: so many, so far apart as ranks, and as slots."""

    size: int
    rank: int
    slot: int


@dataclass(frozen=True, eq=False)
class Seats:
    """The device of each rank.

    A slot is a device that the job was given, in the order of `slots`; without them slot s is
    device s of the system. Rank r sits on slot Σ (r // rank mod size) · slot over the `digits`,
    outermost first; without them on slot r.
    """

    slots: tuple[int, ...] = ()
    digits: tuple[Digit, ...] = ()
    how: str = "block"  # in words
    nodes: tuple[str, ...] = ()  # that were given, by name, where their names are known

    @property
    def ranks(self) -> int | None:
        """How many ranks the digits deal; nothing where any number is seated in order."""
        return prod(digit.size for digit in self.digits) if self.digits else None

    def slot_of(self, ranks: Ints, count: int) -> Ints:
        """The slots of some ranks of `count`."""
        if self.ranks != count:
            return ranks
        found = np.zeros_like(ranks)
        for digit in self.digits:
            found += ranks // digit.rank % digit.size * digit.slot
        return found

    def devices_of(self, ranks: Ints, count: int) -> Ints:
        """The devices of some ranks of `count`."""
        slot = self.slot_of(ranks, count)
        return self._slots[slot] if self.slots else slot

    @cached_property
    def _slots(self) -> Ints:
        return np.array(self.slots, np.int64)

    def moved(self, pattern: Pattern, count: int) -> Pattern | None:
        """Groups of ranks as groups of slots; nothing where their members do not lie evenly."""
        if self.ranks != count:
            return pattern
        pairs: list[tuple[int, int]] = []
        for size, stride in pattern:
            part = self._moved(size, stride)
            if part is None:
                return None
            pairs += part
        merged: list[tuple[int, int]] = []
        for size, stride in pairs:
            if merged and merged[-1][1] == size * stride:
                merged[-1] = merged[-1][0] * size, stride
            else:
                merged.append((size, stride))
        return tuple(merged)

    def _moved(self, size: int, stride: int) -> list[tuple[int, int]] | None:
        """One pair, cut where digits begin and end."""
        end, found = stride * size, []
        for digit in self.digits:
            low, high = max(digit.rank, stride), min(digit.rank * digit.size, end)
            if low >= high:
                continue
            if low % digit.rank or high % low or digit.rank * digit.size % high:
                return None
            found.append((high // low, low // digit.rank * digit.slot))
        return found if prod(part for part, _ in found) == size else None


def given(every: tuple[str, ...], wanted: tuple[str, ...], each: int) -> dict[str, Any]:
    """The slots of nodes by name, `each` devices a node; a ValueError names one that is not there.

    `every` names all nodes of the system in the order of their numbers.
    """
    number = {name: at for at, name in enumerate(every)}
    for name in wanted:
        if name not in number:
            raise ValueError(f"no node is called `{name[:40]}`; the first is {every[0]}, "
                             f"the last {every[-1]}")  # fmt: skip
    first = np.array([number[name] for name in wanted]) * each
    slots = (first[:, None] + np.arange(each)).ravel()
    return {"slots": tuple(slots.tolist()), "nodes": wanted}

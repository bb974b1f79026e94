"""One algorithm of a collective operation: its closed form and its schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from oracle.network.arrays import Number
from oracle.network.collectives.schedule import Steps

# ways round the ranks of a node, each both ways, and how much of the bandwidth each has
Rings: TypeAlias = tuple[tuple[tuple[int, ...], int], ...]


class Algorithm(ABC):
    """One way to carry out one operation among p ranks.

        T = steps α + volume m β + reduced m γ

    with β the inverse of what one rank sends at once, γ the seconds to reduce one byte. The
    closed form holds on a network whose links are never shared; the schedule says who sends
    what to whom, for one where they are.
    """

    op: ClassVar[str]
    name: ClassVar[str]
    source: ClassVar[str]  # citation key and place
    menu: ClassVar[bool] = True  # offered when no algorithm is named
    pipelined: ClassVar[bool] = False  # pieces pass on at once, never waiting for a step
    like: ClassVar[tuple[str, float]] = ("", 1.0)  # runs that operation's schedule, so many times
    nodal: ClassVar[bool] = False  # its schedule depends on how many ranks share a node
    number: ClassVar[str] = ""  # the field that a number after the name sets: `servers:8`

    def fits(self, p: int, inner: int = 1) -> bool:
        """Whether it can serve p ranks, `inner` of them to a node."""
        return p > 1

    @abstractmethod
    def steps(self, p: Number) -> Number:
        """Return the number of messages that follow one another."""

    @abstractmethod
    def volume(self, p: Number) -> Number:
        """Return the parts of the message that pass through the busiest rank, one way."""

    def reduced(self, p: Number) -> Number:
        """Return the parts of the message that the busiest rank adds up."""
        return 0 * np.asarray(p)

    @abstractmethod
    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        """Return who sends how much to whom, step by step."""

    def with_number(self, number: int) -> Self:
        """Return the algorithm with a number, `servers:8`; a ValueError where it takes none."""
        if not self.number:
            raise ValueError(f"{self.name} takes no number")
        numbered = copy(self)
        numbered.__dict__.update({self.number: number, "name": f"{type(self).name}:{number}"})
        return numbered

    def choices(self, p: int) -> list[Algorithm]:
        """Return all that the name stands for among p ranks, of which the best is taken."""
        return [self]

    def ring_schedule(self, p: int, inner: int, rings: Rings) -> list[Steps]:
        """Return the schedule where the devices of a node are joined so that these rings close."""
        return self.schedule(p, inner)

    def seconds(self, p: Number, m: Any, alpha: Any, beta: Any, gamma: Any = 0.0) -> Any:
        """Return the closed form; m, α, β and γ may carry units."""
        return self.steps(p) * alpha + self.volume(p) * m * beta + self.reduced(p) * m * gamma


class OnRings:
    """An algorithm whose flows inside a node take whichever rings its devices are joined to."""

    nodal: ClassVar[bool] = True

    def schedule(self, p: int, inner: int = 1) -> list[Steps]:
        return self.ring_schedule(p, inner, ())

    def ring_schedule(self, p: int, inner: int, rings: Rings) -> list[Steps]:
        raise NotImplementedError


def log2(p: Number) -> Number:
    """⌈log₂p⌉: rounds of doubling until p are reached."""
    rounds: Number = np.ceil(np.log2(np.asarray(p, float)) - 1e-9)
    return rounds


def power_of_two(p: int) -> bool:
    """Whether p is a power of two, and more than one."""
    return p > 1 and not p & (p - 1)

"""Groups of ranks that run a collective operation at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from math import gcd, prod
from typing import TypeAlias

import numpy as np

from oracle.network import nccl
from oracle.network.arrays import Ints
from oracle.spec.system import System

Pattern: TypeAlias = tuple[tuple[int, int], ...]
REMEMBERED = 4096  # patterns whose runs are remembered: every operation asks for them


@dataclass(frozen=True, eq=False)
class RankGroups:
    """All groups of a pattern, seen from the ranks.

    A pattern is (size, stride) pairs, outermost first: a slice of the mesh of devices. Member
    i of a group has the pairs' digits, the last running fastest. `device` places ranks on
    devices; without it rank r is device r.
    """

    pattern: Pattern
    devices: int
    device: Ints | None = None

    def __post_init__(self) -> None:
        for size, stride in self.pattern:
            if size < 1 or stride < 1 or self.devices % (size * stride):
                raise ValueError(f"a group of {size} ranks, {stride} apart, does not divide "
                                 f"{self.devices} devices")  # fmt: skip

    @classmethod
    def of(cls, pattern: Pattern, devices: int) -> RankGroups:
        """Return the groups of a pattern, pairs of size 1 left out."""
        return cls(tuple(pair for pair in pattern if pair[0] > 1), devices)

    @cached_property
    def p(self) -> int:
        """Ranks of one group."""
        return prod(size for size, _ in self.pattern)

    @cached_property
    def offsets(self) -> Ints:
        """Ranks of the first group."""
        return _offsets(self.pattern)

    @cached_property
    def block(self) -> int:
        """Ranks after which the pattern begins anew."""
        return max((size * stride for size, stride in self.pattern), default=1)

    def number_of(self, ranks: Ints) -> Ints:
        """Return the number of each rank in its group."""
        number = np.zeros(len(ranks), np.int64)
        for size, stride in self.pattern:
            number = number * size + ranks // stride % size
        return number

    @cached_property
    def first(self) -> Ints:
        """The first rank of each rank's group."""
        ranks = np.arange(self.devices)
        return np.asarray(ranks - self.offsets[self.number_of(ranks)])

    def bases(self, span: int | None = None) -> Ints:
        """Return the first rank of every group, or of those that begin among the first `span`."""
        ranks = np.arange(self.devices if span is None else span)
        for size, stride in self.pattern:
            ranks = ranks[ranks // stride % size == 0]
        return ranks

    def exchange_period(self, mask: int) -> int:
        """Return the ranks after which an exchange across `mask` begins anew."""
        span = 1 << int(mask).bit_length()
        size, stride = self.pattern[-1]
        return min(stride * span, self.block) if size % span == 0 else self.block

    def devices_of(self, ranks: Ints) -> Ints:
        """Return the devices that ranks are on."""
        return ranks if self.device is None else self.device[ranks]

    @cached_property
    def reach(self) -> int:
        """Devices that the network must have for all ranks to be on it."""
        return self.devices if self.device is None else 1 + int(self.device.max())

    @cached_property
    def seating(self) -> bytes:
        """A digest that tells the places of these ranks from others."""
        return b"" if self.device is None else sha256(self.device.tobytes()).digest()

    def members(self, numbers: Ints, bases: Ints) -> Ints:
        """Return the devices of numbered members of the groups that begin at `bases`."""
        if self.pattern == ((self.devices, 1),):  # a group of all: number r is rank r
            return self.devices_of(numbers)
        return self.devices_of((self.offsets[numbers][:, None] + bases).ravel())

    def inner(self, node: int) -> int:
        """Return how many consecutive members share a node in all groups; 1 where it varies."""
        if self.device is None:
            return _inner(self.pattern, node)
        homes = self.devices_of(self.bases()[:, None] + self.offsets) // node
        return gcd(*map(_even_runs, np.unique(homes, axis=0)))


# operations whose members have no order of their own: a library takes them as they lie
UNORDERED = ("allreduce", "allgather", "reduce_scatter", "broadcast", "reduce", "alltoall")


def seated(
    system: System, pattern: Pattern, devices: int, op: str = ""
) -> tuple[System, RankGroups]:
    """Return the network that a job's ranks talk over, and their groups where they sit on it.

    Seats that ranks fill in some even order are groups of another pattern; only those of nodes
    that a scheduler gave are looked up one by one. NCCL takes the members of a group node by
    node, in whichever order they are numbered; MPI takes them as they are.
    """
    pattern = tuple(pair for pair in pattern if pair[0] > 1)
    seats, bare = system.seats, system.bare
    if seats is None:
        return bare, RankGroups(pattern, devices)
    by_node = nccl.serves(system) and op in UNORDERED
    if not seats.slots and (moved := seats.moved(pattern, devices)) is not None:
        if by_node:
            moved = tuple(sorted(moved, key=lambda pair: pair[1] < system.node))
        return bare, RankGroups(moved, devices)
    ranks = np.arange(devices)
    groups = RankGroups(pattern, devices, seats.devices_of(ranks, devices))
    if by_node:
        members = groups.bases()[:, None] + groups.offsets
        place = groups.devices_of(members)
        key = place // system.node + np.arange(len(place))[:, None] * (1 + int(place.max()))
        _, row, home = np.unique(key, return_index=True, return_inverse=True)
        first = row[home].reshape(place.shape)  # of each node's members, by rank
        lying = np.take_along_axis(place, np.argsort(first, 1, "stable"), 1)
        device = ranks.copy()
        device[members] = lying
        groups = RankGroups(pattern, devices, device)
    return bare, groups


def _offsets(pattern: Pattern) -> Ints:
    """Ranks of the first group of a pattern."""
    offsets = np.zeros(1, np.int64)
    for size, stride in pattern:
        offsets = (offsets[:, None] + np.arange(size) * stride).ravel()
    return offsets


@lru_cache(REMEMBERED)
def _inner(pattern: Pattern, node: int) -> int:
    return _even_runs(_offsets(pattern) // node)


def _even_runs(homes: Ints) -> int:
    """Length of the longest runs of members into which those of every home fall."""
    ends = np.flatnonzero(homes[1:] != homes[:-1]) + 1
    return gcd(len(homes), *ends.tolist())


def spanning_level(system: System, groups: RankGroups) -> int:
    """Return the number of the lowest level that holds every group whole."""
    last = len(system.levels) - 1
    if groups.device is not None:
        for depth, level in enumerate(system.levels):
            home = groups.device // level.devices
            if (home == home[groups.first]).all():
                return depth
        return last
    reach = int(groups.offsets[-1])
    for depth, level in enumerate(system.levels):
        even = level.devices % groups.block == 0 or groups.devices <= level.devices
        if reach < level.devices and even:
            return depth
    return last


def closest_devices(system: System) -> int:
    """Return how many devices are joined most closely, in a node or a socket of it; or 1.

    Rings and hierarchies go round these before they leave them.
    """
    return system.levels[0].devices if system.inside else 1

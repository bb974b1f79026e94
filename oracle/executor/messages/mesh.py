"""Mesh of a plan's devices: coordinates of each rank, and its group along each axis.

Axes that experts are dealt along have two parts, `expert` and `data/expert` those of `data`: what
they are, and how far apart their devices lie, `oracle.plan.mesh` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from oracle.executor.local.parts import Interval, deal
from oracle.plan.mesh import ENDS, Groups
from oracle.plan.plan import Plan

EXPERTS = ("expert", "expert/context", "expert/tensor")  # axes that experts are dealt along
_PROCESS_GROUPS: dict[tuple[int, ...], dist.ProcessGroup] = {}  # of this process, by ranks
_WAYS: dict[tuple[int, int], dist.ProcessGroup] = {}  # groups for messages from one rank to another


def opened(members: Sequence[int]) -> dist.ProcessGroup:
    """A process group that all of its ranks have met in once.

    NCCL makes a communicator at its first call, for which it waits for all ranks; but in a step
    calls between some of the ranks may come first.
    """
    group = dist.new_group(list(members))
    if dist.get_rank() in members and dist.get_backend(group) != "gloo":
        device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
        dist.all_reduce(torch.zeros(1, device=device), group=group)
    return group


@dataclass(frozen=True)
class Group:
    """Ranks of a group along axes of the mesh, and the place of this rank among them."""

    members: tuple[int, ...]
    place: int
    handle: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        return len(self.members)


class DeviceMesh:
    """The devices of a plan, axes nested outermost first, on ranks 0 … N - 1."""

    def __init__(self, plan: Plan, rank: int, ranks: int) -> None:
        self.degrees = {axis.name: int(axis.degree[0, 0]) for axis in plan.axes if axis.multiplies}
        self.size = int(plan.devices[0, 0])
        if self.size > ranks:
            raise ValueError(f"the plan is for {self.size} devices, here are {ranks}")
        self.rank, self.ranks = rank, ranks
        self.taking_part = rank < self.size
        groups = Groups(plan)
        self.sizes = {name: int(size[0, 0]) for name, size in groups.sizes.items()}
        self.strides = {name: int(stride[0, 0]) for name, stride in groups.strides.items()}
        self.at = self.coordinates(rank % self.size)
        self._groups: dict[tuple[str, ...], Group] = {}

    def degree(self, *axes: str) -> int:
        product = 1
        for axis in axes:
            product *= self.sizes.get(axis, 1)
        return product

    def coordinates(self, rank: int) -> dict[str, int]:
        return {name: rank // self.strides[name] % size for name, size in self.sizes.items()}

    def rank_at(self, coordinates: dict[str, int]) -> int:
        rank = 0
        for name, degree in self.degrees.items():
            rank = rank * degree + coordinates[name]
        return rank

    def samples(self, batch: int) -> Interval:
        """The samples of a batch that this device has."""
        begin, end = 0, batch
        for axis in self.degrees:
            if axis in ("data", "sharded"):
                begin, end = deal(end - begin, self.degree(axis), begin)[self.at[axis]]
        return begin, end

    def line(self, axis: str, size: int, stride: int) -> Group:
        """Ranks in line with this one along an axis, `stride` from each other; without a handle."""
        place_on_axis = self.at[axis]
        place = place_on_axis // stride % size
        first = place_on_axis - place * stride
        members = (self.rank_at({**self.at, axis: first + k * stride}) for k in range(size))
        return Group(tuple(members), place, None)

    def group(self, axes: Sequence[str]) -> Group:
        """The ranks that differ from this one along `axes` only. All ranks must ask alike."""
        names = tuple(name for name in self.sizes if name in axes) or tuple(axes)
        if names not in self._groups:
            slices: dict[int, list[int]] = {}
            for rank in range(self.size):
                coordinates = self.coordinates(rank)
                if axes == (ENDS,):
                    slices.setdefault(self._end(rank, coordinates), []).append(rank)
                    continue
                first = rank - sum(coordinates[name] * self.strides[name] for name in names)
                slices.setdefault(first, []).append(rank)
            for members in map(tuple, slices.values()):
                if len(members) > 1 and members not in _PROCESS_GROUPS:
                    _PROCESS_GROUPS[members] = opened(members)
            alone = (self.rank,)
            members = next((m for m in map(tuple, slices.values()) if self.rank in m), alone)
            place = members.index(self.rank)
            self._groups[names] = Group(members, place, _PROCESS_GROUPS.get(members))
        return self._groups[names]

    def make_ways(self, axis: str, pairs: Sequence[tuple[int, int]]) -> None:
        """Make the groups for messages between places along an axis; all ranks must ask alike."""
        for source in range(self.size):
            coordinates = self.coordinates(source)
            places = (j for i, j in pairs if i == coordinates[axis])
            for to in (self.rank_at({**coordinates, axis: place}) for place in places):
                if (source, to) not in _WAYS:
                    _WAYS[source, to] = opened(sorted((source, to)))

    def way(self, source: int, to: int) -> dist.ProcessGroup:
        """The group of two ranks for what one sends to the other.

        Each direction has its own group, so that messages arrive in the order in which they are
        sent, and no message waits for one that goes the other way.
        """
        return _WAYS[source, to]

    def _end(self, rank: int, coordinates: dict[str, int]) -> int:
        """The first stage's rank in line with a rank of the last stage; else the rank itself."""
        last = self.sizes["pipeline"] - 1
        return rank - last * self.strides["pipeline"] if coordinates["pipeline"] == last else rank

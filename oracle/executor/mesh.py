"""Mesh of a plan's devices: coordinates of each rank, and its group along each axis.

Axes that experts are dealt along have two parts, `expert` and `data/expert` those of `data`: what
they are, and how far apart their devices lie, `oracle.plan.mesh` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from oracle.plan.mesh import ENDS, Groups
from oracle.plan.plan import Plan

EXPERTS = ("expert", "expert/context", "expert/tensor")  # axes that experts are dealt along
_PROCESS_GROUPS: dict[tuple[int, ...], dist.ProcessGroup] = {}  # of this process, by ranks
_WAYS: dict[tuple[int, int], dist.ProcessGroup] = {}  # … from one rank to another


def opened(members: Sequence[int]) -> dist.ProcessGroup:
    """A process group that all of its ranks have met in once.

    NCCL makes a communicator at its first call, for which it waits for all ranks; calls of a few
    may come first in a step.
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
        self.strides = {name: int(apart[0, 0]) for name, apart in groups.strides.items()}
        self.at = self.coordinates(rank % self.size)
        self._groups: dict[tuple[str, ...], Group] = {}

    def degree(self, *axes: str) -> int:
        found = 1
        for axis in axes:
            found *= self.sizes.get(axis, 1)
        return found

    def coordinates(self, rank: int) -> dict[str, int]:
        return {name: rank // self.strides[name] % size for name, size in self.sizes.items()}

    def rank_at(self, at: dict[str, int]) -> int:
        rank = 0
        for name, degree in self.degrees.items():
            rank = rank * degree + at[name]
        return rank

    def line(self, axis: str, size: int, apart: int) -> Group:
        """Ranks along an axis in line with this one, `apart` from each other; without a handle."""
        at = self.at[axis]
        place = at // apart % size
        first = at - place * apart
        members = (self.rank_at({**self.at, axis: first + k * apart}) for k in range(size))
        return Group(tuple(members), place, None)

    def group(self, axes: Sequence[str]) -> Group:
        """The ranks that differ from this one along `axes` only. All ranks must ask alike."""
        wanted = tuple(name for name in self.sizes if name in axes) or tuple(axes)
        if wanted not in self._groups:
            slices: dict[int, list[int]] = {}
            for rank in range(self.size):
                at = self.coordinates(rank)
                if axes == (ENDS,):
                    slices.setdefault(self._end(rank, at), []).append(rank)
                    continue
                first = rank - sum(at[name] * self.strides[name] for name in wanted)
                slices.setdefault(first, []).append(rank)
            for members in map(tuple, slices.values()):
                if len(members) > 1 and members not in _PROCESS_GROUPS:
                    _PROCESS_GROUPS[members] = opened(members)
            mine = next((m for m in map(tuple, slices.values()) if self.rank in m), (self.rank,))
            place = mine.index(self.rank)
            self._groups[wanted] = Group(mine, place, _PROCESS_GROUPS.get(mine))
        return self._groups[wanted]

    def make_ways(self, axis: str, pairs: Sequence[tuple[int, int]]) -> None:
        """Make the ways between places along an axis; all ranks must ask alike."""
        for source in range(self.size):
            at = self.coordinates(source)
            for to in (self.rank_at({**at, axis: j}) for i, j in pairs if i == at[axis]):
                if (source, to) not in _WAYS:
                    _WAYS[source, to] = opened(sorted((source, to)))

    def way(self, source: int, to: int) -> dist.ProcessGroup:
        """A group of two ranks for what one sends to the other.

        One for each direction, so that messages arrive in the order in which they are sent, and
        none waits for one that goes the other way.
        """
        return _WAYS[source, to]

    def _end(self, rank: int, at: dict[str, int]) -> int:
        """The rank of the first stage that one of the last stands in line with; else itself."""
        last = self.sizes["pipeline"] - 1
        return rank - last * self.strides["pipeline"] if at["pipeline"] == last else rank

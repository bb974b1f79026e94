"""Mesh of a plan's devices: coordinates of each rank, and its group along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist

from oracle.plan.plan import Plan

_PROCESS_GROUPS: dict[tuple[int, ...], dist.ProcessGroup] = {}  # of this process, by ranks


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
        self.at = self.coordinates(rank % self.size)
        self._groups: dict[tuple[str, ...], Group] = {}

    def degree(self, *axes: str) -> int:
        found = 1
        for axis in axes:
            found *= self.degrees.get(axis, 1)
        return found

    def coordinates(self, rank: int) -> dict[str, int]:
        found = {}
        for name, degree in reversed(self.degrees.items()):
            rank, found[name] = divmod(rank, degree)
        return found

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
        wanted = tuple(name for name in self.degrees if name in axes)
        if wanted not in self._groups:
            slices: dict[tuple[int, ...], list[int]] = {}
            for rank in range(self.size):
                at = self.coordinates(rank)
                key = tuple(at[name] for name in self.degrees if name not in wanted)
                slices.setdefault(key, []).append(rank)
            for members in map(tuple, slices.values()):
                if len(members) > 1 and members not in _PROCESS_GROUPS:
                    _PROCESS_GROUPS[members] = dist.new_group(list(members))
            mine = next((m for m in map(tuple, slices.values()) if self.rank in m), (self.rank,))
            place = mine.index(self.rank)
            self._groups[wanted] = Group(mine, place, _PROCESS_GROUPS.get(mine))
        return self._groups[wanted]

"""Replicas of plans on unlike devices: which partitions hold their stages, what share they have.

It names the `pipeline`, whose stages sit on partitions, `data`, which cuts a batch where there is
no pipeline, and `on`, which says the shares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.models.shard import Array
from oracle.network.contention.groups import RankGroups
from oracle.plan.mesh import Groups, Pattern
from oracle.plan.plan import Plan
from oracle.plan.strategies import Rule
from oracle.spec.partitions import Part

Flags = NDArray[np.bool_]
Pairs = tuple[tuple[int, int], ...]  # (size, stride)


@dataclass(frozen=True)
class Mesh:
    """The ranks of one plan by stage and by replica, as far as partitions care."""

    devices: int
    pipeline: tuple[int, int]
    dealt: Pairs
    ends: tuple[int, ...]  # of each partition's ranks

    @property
    def kind(self) -> Array:
        """The partition of each rank; past the last, the last."""
        ranks = np.arange(self.devices)
        return np.minimum(np.searchsorted(self.ends, ranks, "right"), len(self.ends) - 1)

    @property
    def stage(self) -> Array:
        size, stride = self.pipeline
        return np.arange(self.devices) // stride % size

    @property
    def replica(self) -> Array:
        replica = np.zeros(self.devices, int)
        for size, stride in self.dealt:
            replica = replica * size + np.arange(self.devices) // stride % size
        return replica


@lru_cache(1024)
def _replicas(mesh: Mesh) -> tuple[Array, Array]:
    """(faces, stages, partitions) ranks that hold some of it, and how many replicas each face is.

    Replicas that sit alike are one face.
    """
    replica = mesh.replica
    count = 1 + int(replica.max())
    ranks = np.zeros((count, mesh.pipeline[0], len(mesh.ends)), int)
    np.add.at(ranks, (replica, mesh.stage, mesh.kind), 1)
    flat = (ranks > 0).reshape(count, -1)
    _, first, face = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    face_of_replica = np.argsort(order)[
        face.ravel()
    ]  # the face of each replica, in the order of their first
    together = np.zeros((len(first), *ranks.shape[1:]), int)
    np.add.at(together, face_of_replica, ranks)
    return together, np.bincount(face_of_replica)


@lru_cache(4096)
def spans(pattern: Pattern, devices: int, ends: tuple[int, ...]) -> bool:
    """Whether a group of a pattern has members on several partitions, which end at these ranks."""
    pattern = tuple(pair for pair in pattern if devices % (pair[0] * pair[1]) == 0)
    kind = Mesh(devices, (1, 1), (), ends).kind
    return bool((kind != kind[RankGroups(pattern, devices).first]).any())


@dataclass(frozen=True)
class Faces:
    """Rows of a table, one for each kind of replica of each plan."""

    plan: Plan  # with the batch and the micro-batches that all would have if they were as this one
    row: Array  # the plan of each
    meshes: tuple[Mesh, ...]
    number: Array  # of the face among those of its mesh
    samples: Array  # of a replica's batch
    pieces: Array  # micro-batches that it is cut into

    @classmethod
    def of(cls, plan: Plan, parts: tuple[Part, ...]) -> Faces:
        groups, ends = Groups(plan), tuple(np.cumsum([part.devices for part in parts]).tolist())
        dealt = [axis.name for axis in plan.axes if axis.deals_batch and axis.multiplies]
        names = ["pipeline", *dealt]
        sizes = np.hstack([groups.sizes[name] for name in names]).astype(int).tolist()
        strides = np.hstack([groups.strides[name] for name in names]).astype(int).tolist()
        rows, numbers, meshes, batches, samples, pieces = [], [], [], [], [], []
        for row, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
            pairs = tuple(zip(size, stride, strict=True))
            mesh = Mesh(int(plan.devices[row, 0]), pairs[0], pairs[1:], ends)
            ranks, often = _replicas(mesh)
            holds = ranks > 0
            shares = _shares(plan.axis("on").weights(row), holds)
            batch, replicas = float(plan.batch[row, 0]), float(often.sum())
            face_batch = np.ceil(batch * shares / (shares @ often))
            even = (shares == shares[0]).all()
            axis = plan.axis("pipeline" if size[0] > 1 else "data")
            cut = float((axis.segments if size[0] > 1 else axis.accumulate)[row, 0])
            micro = np.ceil(face_batch.max() / cut)
            for number in range(len(holds)):
                rows.append(row)
                numbers.append(number)
                meshes.append(mesh)
                batches.append(batch if even else face_batch[number] * replicas)
                samples.append(face_batch[number])
                pieces.append(cut if even else np.ceil(face_batch[number] / micro))
        plan_rows = np.array(rows)
        face_plans = plan[plan_rows]
        column = {name: np.array(face_batch, float)[:, None]
                  for name, face_batch in (("batch", batches), ("pieces", pieces))}  # fmt: skip
        axes = tuple(_cut(axis, face_plans, column["pieces"]) for axis in face_plans.axes)
        even_plans = replace(face_plans, batch=column["batch"], axes=axes)
        return cls(
            even_plans,
            plan_rows,
            tuple(meshes),
            np.array(numbers),
            np.array(samples),
            np.array(pieces),
        )

    def of_plans(self, plans: Array) -> tuple[Array, Array]:
        """(the faces of some plans one after the other, which of these plans each belongs to)."""
        begin, end = (np.searchsorted(self.row, plans, side) for side in ("left", "right"))
        plan = np.repeat(np.arange(len(plans)), end - begin)
        before = np.cumsum(end - begin) - (end - begin)
        return np.arange(len(plan)) + (begin - before)[plan], plan

    def take(self, plans: Array) -> Faces:
        """Those of some plans, numbered as these are."""
        face_rows, new_rows = self.of_plans(plans)
        meshes = tuple(self.meshes[row] for row in face_rows)
        return Faces(self.plan[face_rows], new_rows, meshes, self.number[face_rows],
                     self.samples[face_rows], self.pieces[face_rows])  # fmt: skip

    @property
    def ranks(self) -> Array:
        """(faces, stages, partitions): how many of a partition's hold some of it."""
        numbers = self.number.tolist()
        every = [_replicas(mesh)[0][k] for mesh, k in zip(self.meshes, numbers, strict=True)]
        padded = np.zeros((len(every), max(map(len, every)), every[0].shape[-1]), int)
        for face_ranks, ranks in zip(padded, every, strict=True):
            face_ranks[: len(ranks)] = ranks
        return padded

    @property
    def held(self) -> Flags:
        """(faces, stages, partitions) that hold some of it."""
        return self.ranks > 0

    def most(self, values: Array) -> Array:
        """(faces,) values → (plans,) the face of each plan where they are largest."""
        order = np.lexsort((-np.arange(len(self.row)), values, self.row))
        return np.asarray(order[np.cumsum(np.bincount(self.row)) - 1])

    def worst(self, rules: list[Rule]) -> list[Rule]:
        """Rules of faces as rules of plans: of the face that is farthest beyond."""
        worst_rules = []
        for rule in rules:
            excess = np.where(rule.wanted <= rule.allowed, -1.0, rule.wanted - rule.allowed)
            worst_rules.append(rule.take(self.most(excess)))
        return worst_rules


def _shares(weights: tuple[int, ...], holds: Flags) -> Array:
    """The share of each face: the smallest of those of its partitions."""
    if not weights:
        return np.ones(len(holds))
    partition_weights = np.array([*weights, *[weights[-1]] * holds.shape[-1]], float)[
        : holds.shape[-1]
    ]
    return np.asarray(np.where(holds.any(axis=1), partition_weights, np.inf).min(axis=-1))


def _cut(axis: Any, plan: Plan, pieces: Array) -> Any:
    """An axis that cuts the batch, with as many micro-batches as replicas of each row have."""
    staged = plan.axis("pipeline").degree > 1
    if axis.name == "pipeline":
        return replace(axis, segments=np.where(staged, pieces, axis.segments))
    if axis.name == "data":
        return replace(axis, accumulate=np.where(staged, axis.accumulate, pieces))
    return axis

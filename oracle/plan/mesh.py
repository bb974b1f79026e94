"""Who talks to whom: the devices of a plan as a mesh, and a message's group as a slice of it.

It names `data`, `context`, `tensor` and `expert`, since experts are dealt to the inner part of
the axes of context and data, whole ones to that of the tensor axis first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from oracle.models.shard import Array
from oracle.network.collectives import Message
from oracle.plan.plan import Plan

ENDS = "pipeline/ends"  # the first and the last stage, which may hold the same table
Pattern = tuple[tuple[int, int], ...]  # (size, stride) pairs, outermost first


@dataclass(frozen=True)
class Slice:
    """The groups of some axes: distinct patterns, which of them each plan has, and their size."""

    patterns: list[tuple[Pattern, int]]  # with the number of devices in all
    row: Array
    size: Array
    menus: dict[Any, Any] = field(default_factory=dict)  # what is on offer to them, once looked up

    @cached_property
    def talk(self) -> bool:
        return bool((self.size > 1).any())

    def take(self, rows: Array) -> Slice:
        """Of some plans; patterns that none of them has stay on the list."""
        return Slice(self.patterns, self.row[rows], self.size[rows], self.menus)


class Groups:
    """Groups of a table of plans by the axes they span.

    A plan's axes nest outermost first, so the stride of an axis is the product of the degrees
    inside it. `expert` is the inner part of the data axis, `data/expert` the rest of it, and so
    are `expert/context` and `context/expert` of the context axis, which is dealt along first.
    Where experts stay whole `expert/tensor` is the inner part of the tensor axis that they are
    dealt to as well, `tensor/expert` the rest, and either has no devices where tensor cuts them.
    `pipeline/ends` is the first and the last stage, seen as two that lie half a pipeline apart:
    all pairs of a mesh do, of which these are one.
    """

    def __init__(self, plan: Plan) -> None:
        self.sizes: dict[str, Array] = {}
        self.strides: dict[str, Array] = {}
        stride = np.ones_like(plan.batch)
        for axis in reversed([axis for axis in plan.axes if axis.multiplies]):
            self.sizes[axis.name], self.strides[axis.name] = axis.degree, stride
            stride = stride * axis.degree
        self.devices = stride
        axis = plan.axis("expert")
        inside = np.where(axis.uncut, self.sizes["tensor"], 1)
        within, context_part, rest = axis.within(inside, self.sizes["context"])
        # what does not divide the data axis is infeasible; it is priced as what does
        expert = np.gcd(self.sizes["data"].astype(int), rest)
        for name, around, part in (("data", self.sizes["data"], expert),
                                   ("context", self.sizes["context"], context_part),
                                   ("tensor", inside, within)):  # fmt: skip
            dealt, left = "expert" if name == "data" else f"expert/{name}", f"{name}/expert"
            self.sizes[dealt], self.strides[dealt] = part, self.strides[name]
            self.sizes[left], self.strides[left] = around / part, self.strides[name] * part
        stages = self.sizes["pipeline"]
        self.sizes[ENDS] = np.minimum(stages, 2)
        self.strides[ENDS] = self.strides["pipeline"] * np.maximum(stages // 2, 1)
        self.paired = self.devices / stages * (stages - stages % 2 * (stages > 1))
        self.known: dict[tuple[str, ...] | Message, Slice] = {}

    def take(self, rows: Array, messages: Mapping[Message, Message]) -> Groups:
        """Of some plans; `messages` has those of all that each of theirs is a part of."""
        groups = copy(self)
        groups.sizes, groups.strides = (
            {name: column[rows] for name, column in columns.items()}
            for columns in (self.sizes, self.strides)
        )
        groups.devices, groups.paired = self.devices[rows], self.paired[rows]
        groups.known = {
            key: column.take(rows) for key, column in self.known.items() if isinstance(key, tuple)
        }
        groups.known |= {
            part: self.known[message_of_all].take(rows)
            for part, message_of_all in messages.items() if message_of_all in self.known
        }  # fmt: skip
        return groups

    def __call__(self, axes: tuple[str, ...]) -> Slice:
        if axes not in self.known:
            among = self.paired if axes == (ENDS,) else None
            pairs = [(self.sizes[a], self.strides[a]) for a in axes]
            self.known[axes] = self.slice(pairs, among)
        return self.known[axes]

    def of(self, message: Message) -> Slice:
        """Those who say a message: of some axes all devices, or of one axis those in line."""
        if message.line is None:
            return self(message.axes)
        if message not in self.known:
            (axis,) = message.axes
            size, stride = (np.broadcast_to(part, self.devices.shape) for part in message.line)
            self.known[message] = self.slice([(size, self.strides[axis] * stride)])
        return self.known[message]

    @property
    def own(self) -> Slice:
        """Every device by itself: what it sends over links of its own."""
        ones = np.ones_like(self.devices)
        return Slice([((), 1)], np.zeros(len(ones), int), ones)

    def slice(self, pairs: Sequence[tuple[Array, Array]], devices: Array | None = None) -> Slice:
        """Groups of (size, stride) pairs, among all devices or as many."""
        devices = self.devices if devices is None else devices
        size = np.prod([size for size, _ in pairs], axis=0)
        if not (size > 1).any():  # nobody to talk to
            return Slice([((), 1)], np.zeros(len(size), int), size)
        columns = (column for pair in pairs for column in pair)
        table = np.hstack([*columns, devices])
        first, row = distinct(table)
        patterns = [
            (merge([(int(line[i]), int(line[i + 1])) for i in range(0, len(line) - 1, 2)]),
             int(line[-1]))
            for line in table[first].tolist()
        ]  # fmt: skip
        return Slice(patterns, row, size)


def places(pattern: Pattern, inner: int) -> int:
    """Over how many runs of `inner` devices a group is spread; over its devices, if over one.

    >>> places(((8, 4),), 8), places(((4, 2),), 8), places(((2, 16), (8, 1)), 8)
    (4, 4, 2)
    """
    ranks = np.zeros(1, int)
    for size, stride in pattern:
        ranks = np.add.outer(ranks, np.arange(size) * stride).ravel()
    runs = len(np.unique(ranks // inner))
    return runs if runs > 1 else len(ranks)


def merge(pairs: list[tuple[int, int]]) -> Pattern:
    """The same ranks with as few pairs as can be: neighbours that continue each other join.

    >>> merge([(4, 8), (2, 4), (1, 1)]), merge([(16, 8), (2, 1)])
    (((8, 4),), ((16, 8), (2, 1)))
    """
    merged: list[tuple[int, int]] = []
    for size, stride in sorted((pair for pair in pairs if pair[0] > 1), key=lambda pair: -pair[1]):
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return tuple(merged)


@dataclass(frozen=True, slots=True)
class Kinds:
    """Plans that are alike in what matters: the first of each kind, and each plan's kind."""

    first: Array
    row: Array

    @classmethod
    def of(cls, table: Array) -> Kinds:
        """By the rows of a table of numbers."""
        first, row = distinct(table)
        return cls(first, row) if len(first) < len(row) else cls.apart(len(row))

    @classmethod
    def apart(cls, plans: int) -> Kinds:
        """Every plan is a kind of its own."""
        return cls(np.arange(plans), np.arange(plans))

    def take(self, rows: Array, way: Array) -> tuple[Array, Kinds]:
        """(the kind that each new one is a part of, kinds of some plans that each go one way)."""
        kind_rows = self.row[rows]
        ordered = len(kind_rows) == len(self.row) and (kind_rows == self.row).all()
        if ordered and (way == way[self.first][self.row]).all():
            return np.arange(len(self.first)), self
        first_rows, row = distinct(np.stack([kind_rows, way], axis=-1))
        if len(first_rows) == len(kind_rows):
            return kind_rows, Kinds.apart(len(kind_rows))
        return kind_rows[first_rows], Kinds(first_rows, row)

    def one_of_each(self, plan: Plan) -> Plan:
        return plan if len(self.first) == len(self.row) else plan[self.first]

    def spread(self, values: Array) -> Array:
        """(kinds, …) → (plans, …); what is one for all, or of each plan already, may come too."""
        if len(values) == len(self.row):
            return values
        if len(values) == len(self.first):
            return values[self.row]
        return values.repeat(len(self.row), axis=0)


def distinct(table: Array) -> tuple[Array, Array]:
    """(row number of the first of each kind, each row's kind) of a table of numbers."""
    table = table[:, (table != table[:1]).any(axis=0)]  # most columns are one value
    if not table.shape[1]:
        return np.zeros(1, int), np.zeros(len(table), int)
    # one number a row: the sines of 1, 2, 3, … are independent over the rationals; a matrix product
    # may add up equal rows in unlike orders, a sum does not
    key = (table * np.sin(np.arange(1.0, 1.0 + table.shape[1]))).sum(axis=1)
    order = np.argsort(key)
    new = np.diff(key[order], prepend=np.nan) != 0
    first, row = np.minimum.reduceat(order, np.flatnonzero(new)), np.empty(len(key), int)
    row[order] = np.cumsum(new) - 1
    if not (table[first[row]] == table).all():  # but not over numbers that were rounded
        _, first, row = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return first, row.reshape(-1)

"""Who talks to whom: the devices of a plan as a mesh, and a message's group as a slice of it."""

from __future__ import annotations

import numpy as np

from oracle.plan import Plan
from oracle.shard import Array

Pattern = tuple[tuple[int, int], ...]  # (size, stride) pairs, outermost first


def slices(plan: Plan, axes: tuple[str, ...]) -> tuple[list[tuple[Pattern, int]], Array, Array]:
    """(distinct patterns with the number of devices, each row's pattern, each row's group size).

    A plan's axes nest outermost first, so the stride of an axis is the product of the degrees
    inside it. `expert` is the inner part of the data axis, `data/expert` the rest of it.
    """
    sizes, strides = {}, {}
    stride = np.ones_like(plan.batch)
    for axis in reversed([axis for axis in plan.axes if axis.multiplies]):
        sizes[axis.name], strides[axis.name] = axis.degree, stride
        stride = stride * axis.degree
    devices = stride
    expert = plan.axis("expert").degree
    sizes["expert"], strides["expert"] = expert, strides["data"]
    sizes["data/expert"], strides["data/expert"] = sizes["data"] / expert, strides["data"] * expert
    table = np.hstack([*(c for a in axes for c in (sizes[a], strides[a])), devices])
    group = np.prod([sizes[a] for a in axes], axis=0)
    distinct, row = _unique(table)
    patterns = [
        (merge([(int(n), int(s)) for n, s in zip(line[:-1:2], line[1:-1:2], strict=True)]), int(line[-1]))
        for line in distinct.tolist()
    ]  # fmt: skip
    return patterns, row, group


def merge(pairs: list[tuple[int, int]]) -> Pattern:
    """The same ranks with as few pairs as can be: neighbours that continue each other join.

    >>> merge([(4, 8), (2, 4), (1, 1)]), merge([(16, 8), (2, 1)])
    (((8, 4),), ((16, 8), (2, 1)))
    """
    found: list[tuple[int, int]] = []
    for size, stride in sorted((pair for pair in pairs if pair[0] > 1), key=lambda pair: -pair[1]):
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found)


def _unique(table: Array) -> tuple[Array, Array]:
    """Distinct rows and each row's number, cheap where all are equal."""
    if (table == table[:1]).all():
        return table[:1], np.zeros(len(table), int)
    # one number a row: products of a few irrational weights tell rows apart, exactly checked
    weights = np.sqrt(np.arange(2.0, 2.0 + table.shape[1]) * 1.7)
    key = table @ weights
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    row = row.reshape(-1)
    if not (table[first][row] == table).all():
        distinct, row = np.unique(table, axis=0, return_inverse=True)
        return distinct, row.reshape(-1)
    return table[first], row


def distinct(table: Array) -> tuple[Array, Array]:
    """(row numbers of one of each kind, each row's kind) of a table of numbers."""
    _, row = _unique(table)
    first = np.full(row.max() + 1, len(row))
    np.minimum.at(first, row, np.arange(len(row)))
    return first, row

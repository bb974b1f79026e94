"""Where the ranks of a job sit: ways to deal the axes of a mesh to the levels of a network.

A way is a list of parts, (axis, size), the closest first: the devices of a node are dealt to the
first of them, those of a rack to the next. An axis may be cut, its inner part kept close and the
rest spread: a matrix of degrees by axis and level, all of which are looked at [xie2022].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod
from typing import TypeAlias

import numpy as np

from oracle.spec.level import Level
from oracle.spec.seats import Digit
from oracle.spec.system import System

Parts: TypeAlias = tuple[tuple[int, int], ...]  # (axis, size), the closest first


def cyclic(devices: int, unit: int) -> tuple[Digit, ...]:
    """Rank r on node r mod nodes: Slurm's `--distribution=cyclic`; empty for part of a node."""
    count = devices // unit
    if unit < 2 or count < 2 or devices % unit:
        return ()
    return Digit(unit, count, 1), Digit(count, 1, unit)


def dealt(sizes: Sequence[int], parts: Parts) -> tuple[Digit, ...]:
    """Return the ranks of a mesh (sizes outermost first) by parts of its axes, as digits."""
    rank = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    slot, digits = 1, []
    for axis, size in parts:
        if size > 1:
            digits.append(Digit(size, rank[axis], slot))
        rank[axis] *= size
        slot *= size
    return tuple(sorted(digits, key=lambda digit: -digit.rank))


def widths(system: System, devices: int) -> list[tuple[str, int]]:
    """Return (name, units below) of each level that the devices fill evenly, inside out."""
    level_widths: list[tuple[str, int]] = []
    unit, below = 1, 1
    for level in system.levels:
        spans = [(f"{level.name} by {below * near}", below * near) for near in nested(level, below)]
        for name, span in [*spans, (level.name, level.devices)]:
            if unit < span < devices and devices % span == 0 and span % unit == 0:
                level_widths.append((name, span // unit))
                unit = span
        below = level.devices
    last = next((level.name for level in system.levels if level.devices >= devices), "")
    return [*level_widths, (last, devices // unit)] if unit < devices else level_widths


def nested(level: Level, unit: int) -> list[int]:
    """Return how many units of a level lie closer to each other than to others, inside out."""
    shape, width = level.shape, level.devices // unit
    if level.graph is not None:
        return [size] if (size := level.graph.leaf) else []
    if level.kind in ("dragonfly", "dragonfly+") and len(shape) > 2:
        near = [shape[2], shape[1]]
    elif level.kind in ("hyperx", "slim-fly") and shape:
        near = [shape[-1], *(shape[-2:0:-1] if level.kind == "slim-fly" else shape[:-2])]
    elif level.kind in ("loop", "multi-plane"):
        near = [shape[-1 if level.kind == "multi-plane" else 1]] if shape else []
    else:  # extents of a torus, arities of a tree
        near = [*shape[:-1]] if prod(shape) == width else []
    return np.cumprod(near).astype(int).tolist() if near else []


def orders(sizes: Sequence[int]) -> Iterator[Parts]:
    """Yield the ways to nest whole axes, in every order; that of the ranks first."""
    axes = range(len(sizes) - 1, -1, -1)
    for order in permutations(axes):
        yield tuple((axis, sizes[axis]) for axis in order)


def matrices(sizes: Sequence[int], level_widths: Sequence[int]) -> Iterator[Parts]:
    """Yield every way to cut the axes by levels, each level's devices shared among the axes.

    Π over axes of part(level, axis) = width(level),  Π over levels = degree(axis)
    """
    axes = range(len(sizes) - 1, -1, -1)  # the axis whose ranks are closest lies closest

    def cut(left: Sequence[int], rest: Sequence[int]) -> Iterator[Parts]:
        if not rest:
            yield ()
            return
        for shares in _shares(left, rest[0]):
            near = tuple((axis, shares[axis]) for axis in axes if shares[axis] > 1)
            after = [size // share for size, share in zip(left, shares, strict=True)]
            for far in cut(after, rest[1:]):
                yield near + far

    yield from cut(sizes, level_widths)


def _shares(left: Sequence[int], width: int) -> Iterator[tuple[int, ...]]:
    """Yield what each axis may take of so many devices: divisors of what is left of the axis."""
    if not left:
        if width == 1:
            yield ()
        return
    for share in range(1, min(left[0], width) + 1):
        if left[0] % share == 0 and width % share == 0:
            for rest in _shares(left[1:], width // share):
                yield share, *rest

"""Cuts of a chain of units into parts of which the fullest is least."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oracle.models.shard import Array
from oracle.plan.mesh import distinct


def balanced_cuts(loads: Array, parts: int, borders: Array | None = None) -> Array:
    """(plans, units) loads → (plans, parts + 1) edges that make the fullest part least.

    A part also takes what crosses the borders at its ends, (plans, units - 1) where there are any.
    """
    if borders is None:
        return _swept_cuts(loads, parts)
    edges, dear = np.empty((len(loads), parts + 1), int), borders.any(axis=-1)
    if dear.any():
        edges[dear] = _bordered_cuts(loads[dear], parts, borders[dear])
    if not dear.all():
        edges[~dear] = _swept_cuts(loads[~dear], parts)
    return edges


def _bordered_cuts(loads: Array, parts: int, borders: Array) -> Array:
    """Edges by the least of all ways to cut: first of the fullest part, then of all borders.

    fullest(k, e) = min over b < e of max(fullest(k - 1, b), load of a part from b to e)
    """
    running = np.pad(np.cumsum(loads, axis=-1), [(0, 0), (1, 0)])
    across = np.pad(borders, [(0, 0), (1, 1)])
    width = _widest(running, across, parts)

    (_, begun), (_, behind) = _before(running, -np.inf, width), _before(across, 0, width)
    part = running[:, None] - begun + across[:, None] + behind
    return _least(part, lambda: np.broadcast_to(across[:, None], part.shape), parts)


def unlike_cuts(loads: Array) -> tuple[int, ...]:
    """(parts, units) loads of each unit in each part → edges that make the fullest part least.

    fullest(k, e) = min over b < e of max(fullest(k - 1, b), Σ of part k's loads from b to e)
    """
    units = loads.shape[1]
    running = np.pad(np.cumsum(loads, axis=-1), [(0, 0), (1, 0)])
    fullest = np.append(0.0, np.full(units, np.inf))
    begins = []
    for part_loads in running:
        part = np.where(
            np.tri(units + 1, k=-1, dtype=bool), part_loads[:, None] - part_loads, np.inf
        )
        trial = np.maximum(fullest[None, :], part)
        begins.append(trial.argmin(axis=1))
        fullest = trial.min(axis=1)
    edges = [units]
    for begin in reversed(begins):
        edges.append(int(begin[edges[-1]]))
    return tuple(reversed(edges))


def joined_cuts(loads: Array, parts: int, received: Array, ahead: Array) -> Array:
    """The same where a part takes what it has `received`, and of it what comes `ahead`.

    (plans, units + 1, units + 1) each, by where a part begins and ends.
    """
    units = loads.shape[-1]
    running = np.pad(np.cumsum(loads, axis=-1), [(0, 0), (1, 0)])
    end = np.arange(units + 1)
    begin = end - units + np.arange(units)[:, None]
    none, begin = begin < 0, np.maximum(begin, 0)
    part = np.where(none, np.inf, running[:, None] - running[:, begin] + received[:, begin, end])
    return _least(part, lambda: ahead[:, begin, end], parts)


def _least(part: Array, crossed: Callable[[], Array], parts: int) -> Array:
    """Edges by the least of all ways to cut, of what parts take and of what crosses into them.

    (plans, width, units + 1) each: a part ends at a unit and begins at most `width` before it.
    """
    n, width, units = part.shape[0], part.shape[1], part.shape[2] - 1
    none = np.where(np.arange(units + 1) > 0, np.inf, np.zeros((n, 1)))
    fullest, ways = _before(none, np.inf, width)  # ways to come there follow what is written here
    for _ in range(parts):
        fullest[:] = np.maximum(ways, part).min(axis=1)
    part = np.where(part <= fullest[:, -1, None, None] * (1 + 1e-12), crossed(), np.inf)
    crossing, ways = _before(none, np.inf, width)
    begins = []
    for _ in range(parts):
        sums = ways + part
        begins.append(sums.argmin(axis=1))
        crossing[:] = sums.min(axis=1)
    edges, rows = np.full((n, parts + 1), units), np.arange(n)
    for k in reversed(range(parts)):
        end = edges[:, k + 1]
        edges[:, k] = end - width + begins[k][rows, end]
    return edges


def _before(values: Array, else_: float, width: int) -> tuple[Array, Array]:
    """Values at edges, and [plan, begin, end] of them: a begin is at most `width` before."""
    padded = np.pad(values, [(0, 0), (width, 0)], constant_values=else_)
    windows = np.lib.stride_tricks.sliding_window_view(padded, values.shape[-1], axis=-1)[:, :-1]
    return padded[:, width:], windows


def _widest(running: Array, across: Array, parts: int) -> int:
    """Units that a part may have, at most: a wider one is fuller than the fullest of some cut.

    Of parts that each take as many units as they can, up to their share and one unit more.
    """
    part_limit = np.diff(running).max(axis=-1) + running[:, -1] / parts
    edges = _sweep(running, parts, part_limit)
    edges[:, -1] = running.shape[1] - 1
    begin, end = edges[:, :-1], edges[:, 1:]
    load = np.take_along_axis(running, end, -1) - np.take_along_axis(running, begin, -1)
    for edge in (begin, end):
        load = load + np.take_along_axis(across, edge, -1)
    bound = load.max(axis=-1, keepdims=True) * (1 + 1e-9)
    units = running.shape[1] - 1
    wide = (w for w in range(1, units) if (running[:, w:] - running[:, :-w] > bound).all())
    return next(wide, units)


def _swept_cuts(loads: Array, parts: int) -> Array:
    """The same without borders.

    The least bound that a greedy sweep can keep, for all plans at once; every part gets at least
    one unit. It is halved in between: a sweep that fits lowers the upper end to its fullest part,
    one that does not lifts the lower end to the least bound that would move an edge, so that a
    handful of sweeps meet at the very bound. Plans with the same loads are cut once.
    """
    first, row = distinct(loads)
    loads, units = loads[first], loads.shape[-1]
    running = np.concatenate([np.zeros((len(loads), 1)), np.cumsum(loads, axis=-1)], axis=-1)
    high = running[:, -1]
    low = np.maximum(loads.max(axis=-1), high / parts)
    while (low < high * (1 - 1e-12)).any():
        middle = (low + high) / 2
        edges = _sweep(running, parts, middle)
        fits = edges[:, -1] >= units
        begin, end, beyond = (
            np.take_along_axis(running, edge_column, axis=-1)
            for edge_column in (edges[:, :-1], edges[:, 1:], np.minimum(edges[:, 1:] + 1, units))
        )
        wider = np.where(beyond - begin > middle[:, None], beyond - begin, np.inf)
        high = np.where(fits, (end - begin).max(axis=-1), high)
        low = np.where(fits, low, wider.min(axis=-1))
    return _sweep(running, parts, high * (1 + 1e-12))[row]


def _sweep(running: Array, parts: int, bound: Array) -> Array:
    """Edges of parts that each take as many units as the bound allows."""
    n, units = len(running), running.shape[1] - 1
    edges = np.zeros((n, parts + 1), int)
    rows = np.arange(n)
    for part in range(parts):
        limit = running[rows, edges[:, part]] + bound * (1 + 1e-12)
        reach = (running <= limit[:, None]).sum(axis=-1) - 1
        left = parts - part - 1
        edges[:, part + 1] = np.clip(reach, edges[:, part] + 1, np.maximum(units - left, 1))
    return edges

"""Stages of a pipeline: which units each device holds, and sums of rows over them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.mesh import distinct


class Stages:
    """Deals a model's units to p devices in v chunks each, and adds rows up by device.

    Chunk c sits on device c mod p; in a V every other round of them comes back from the last.
    """

    def __init__(
        self, model: Model, p: int, v: int, even: bool, load: Array, vee: bool = False
    ) -> None:
        self.counts, self.ends = model.units
        self.begin = np.argmax(self.counts > 0, axis=-1)  # a unit is a run of rows
        self.stop = self.counts.shape[1] - np.argmax(self.counts[:, ::-1] > 0, axis=-1)
        self.p, self.v, self.vee, self.model = p, v, vee, model
        chunks = min(p * v, len(self.ends))
        self.chunks = chunks
        if chunks <= 1:
            self.cuts = np.array([[0, len(self.ends)]])
        elif even and (dealt := even_cuts(model, chunks)) is not None:
            self.cuts = dealt[None, :]
        else:
            self.cuts = balanced_cuts(load @ self.counts.T, chunks)
        # where all plans share their cuts, a device's rows are one count each
        self.rows = self.gather(self.counts.T).T if len(self.cuts) == 1 else None

    def total(self, values: Array, columns: Array | None = None) -> Array:
        """(plans, rows) → (plans, p): what each device of a pipeline has in all.

        `columns` names the rows that the values are of, where they are not of all.
        """
        values = np.atleast_2d(values)
        if self.rows is not None:
            return values @ (self.rows.T if columns is None else self.rows.T[columns])
        return self.gather(self.units(values, columns))

    def units(self, values: Array, columns: Array | None = None) -> Array:
        """(plans, rows) → (plans, units): a row counts as often as its unit has it."""
        rows = self.counts.T
        return values @ (rows if columns is None else rows[columns])

    def last(self, values: Array, columns: Array) -> Array:
        """(plans, rows) → (plans, p): as `total`, of each row's copies only the last."""
        unit = len(self.ends) - 1 - np.argmax(self.counts[::-1] > 0, axis=0)
        hands_on = np.arange(len(self.ends)) == unit[columns][:, None]
        return self.gather(values @ hands_on)

    def gather(self, units: Array) -> Array:
        """(plans, units) → (plans, p)."""
        if self.chunks <= 1:
            return np.sum(units, axis=-1, keepdims=True)
        return self.fold(self.chunk(units))

    def chunk(self, units: Array, joined: np.ufunc = np.add) -> Array:
        """(plans, units) → (plans, chunks): their sums, or whatever `joined` makes of them.

        Equal chunks come to equal sums, to the last bit: of stages that tie the first is named.
        """
        units, begin = _aligned(units, self.cuts[:, :-1])
        begin = begin + np.arange(len(units))[:, None] * units.shape[1]
        return joined.reduceat(units.ravel(), begin.ravel()).reshape(begin.shape)

    def fold(self, chunks: Array, joined: np.ufunc = np.add) -> Array:
        """(plans, chunks) → (plans, p): those of each device, joined."""
        padded = _padded(chunks, 0, self.p * self.v)
        rounds = padded.reshape(len(padded), self.v, self.p)
        if self.vee:
            back = np.arange(self.v) % 2 > 0
            rounds = np.where(back[:, None], rounds[:, :, ::-1], rounds)
        return joined.reduce(rounds, axis=1)

    def received_ahead(self, borders: Array) -> Array:
        """(plans, chunks - 1) → (plans, p): what each device receives from the chunk before."""
        return self.fold(_padded(self._between(borders), 1, self.chunks))

    def received(self, borders: Array) -> Array:
        """(plans, chunks - 1) → (plans, p): what each device receives, from either side."""
        return self.fold(self._between(borders)) + self.received_ahead(borders)

    def _between(self, borders: Array) -> Array:
        """Without those where a V turns, between two chunks of one device."""
        if not self.vee:
            return borders
        turns = np.arange(1, borders.shape[-1] + 1) % self.p == 0
        return np.where(turns, 0.0, borders)

    def most(self, units: Array) -> Array:
        """(plans, units) → (plans, p): the largest single unit of each device."""
        if self.chunks <= 1:
            return units.max(axis=-1, keepdims=True)
        return self.fold(self.chunk(units, np.maximum), np.maximum)

    def borders(self, values: Array) -> Array:
        """(plans, rows) → (plans, chunks - 1): the row that ends each chunk but the last."""
        values, rows = _aligned(values, self.ends.astype(int)[self.cuts[:, 1:-1] - 1])
        return np.take_along_axis(values, rows, axis=-1)


def _padded(values: Array, before: int, size: int) -> Array:
    """(plans, few) → (plans, size): zeros before and after."""
    if values.shape[1] == size:
        return values
    padded = np.zeros((len(values), size))
    padded[:, before : before + values.shape[1]] = values
    return padded


def _aligned(one: Array, other: Array) -> tuple[Array, Array]:
    """Both with as many plans as the one that has more."""
    plans = max(len(one), len(other))
    return (
        np.broadcast_to(one, (plans, one.shape[1])),
        np.broadcast_to(other, (plans, other.shape[1])),
    )


@lru_cache(1024)
def even_cuts(model: Model, chunks: int) -> Array | None:
    """Equal blocks dealt evenly, what comes before on the first, what after on the last."""
    counts, ends = model.units
    folded = counts @ model.folded > 0
    blocks = np.flatnonzero(folded)
    if len(blocks) < chunks or blocks[-1] - blocks[0] + 1 != len(blocks):
        return None
    shares = [len(part) for part in np.array_split(blocks, chunks)]
    cuts = blocks[0] + np.cumsum([0, *shares])
    cuts[0], cuts[-1] = 0, len(ends)
    return cuts


def balanced_cuts(loads: Array, parts: int) -> Array:
    """(plans, units) loads → (plans, parts + 1) edges that make the fullest part least.

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
            np.take_along_axis(running, at, axis=-1)
            for at in (edges[:, :-1], edges[:, 1:], np.minimum(edges[:, 1:] + 1, units))
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

"""Stages of a pipeline: which units each device holds, and sums of rows over them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.mesh import distinct

# Shares of FLOP, bytes and kernels in the load of a unit, and how much dearer a byte is that
# crosses a border than one that a kernel moves: from machines whose kernels set the pace to those
# whose memory, host or network does. They are the same for all machines: see `ways_to_cut`.
LOADS = (
    ((1.0, 0.0, 0.0), 8.0), ((1.0, 0.0, 0.0), 512.0), ((1.0, 0.0, 0.0), 4096.0),
    ((0.75, 0.25, 0.0), 8.0), ((0.6, 0.2, 0.2), 64.0), ((0.2, 0.6, 0.2), 8.0),
    ((0.5, 0.0, 0.5), 0.0), ((0.0, 0.0, 1.0), 0.0), ((0.0, 0.0, 1.0), 8.0),
)  # fmt: skip
PASSES = 6  # times that a tensor is read or written in an iteration, two of them ahead


class Stages:
    """Deals a model's units to p devices in v chunks each, and adds rows up by device.

    Cuts are at given `edges`, or even, or balance the `load` of each unit.

    Chunk c sits on device c mod p; in a V every other round of them comes back from the last.
    """

    def __init__(
        self, model: Model, p: int, v: int, even: bool, load: Array, vee: bool = False,
        edges: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.counts, self.ends = model.units
        self.begin = np.argmax(self.counts > 0, axis=-1)  # a unit is a run of rows
        self.stop = self.counts.shape[1] - np.argmax(self.counts[:, ::-1] > 0, axis=-1)
        self.p, self.v, self.vee, self.model = p, v, vee, model
        chunks = min(p * v, len(self.ends))
        self.chunks = chunks
        if chunks <= 1:
            self.cuts = np.array([[0, len(self.ends)]])
        elif len(edges) == chunks + 1:
            self.cuts = np.array([edges])
        elif even and (dealt := even_cuts(model, chunks)) is not None:
            self.cuts = dealt[None, :]
        else:
            self.cuts = balanced_cuts(load, chunks)
        # where all plans share their cuts, a device's rows are one count each
        self.rows = self.gather(self.counts.T).T if len(self.cuts) == 1 else None

    def levelled(self, load: Array, borders: Array) -> Array:
        """Cuts moved unit by unit while the fullest device gets less full.

        A device has several chunks: that the fullest chunk is least does not make it least.
        """
        running, across = np.pad(np.cumsum(load), (1, 0)), np.pad(borders, 1)

        def fullest(cuts: Array) -> float:
            chunks = np.diff(running[cuts]) + across[cuts[:-1]] + across[cuts[1:]]
            return float(self.fold(chunks[None, :]).max())

        cuts = self.cuts[0].copy()
        least, moved = fullest(cuts), True
        while moved:
            moved = False
            for edge in range(1, self.chunks):
                for step in (-1, 1):
                    trial = cuts.copy()
                    trial[edge] += step
                    if cuts[edge - 1] < trial[edge] < cuts[edge + 1] and (
                        fullest(trial) < least * (1 - 1e-9)
                    ):
                        cuts, least, moved = trial, fullest(trial), True
        return np.asarray(cuts)

    def total(self, values: Array, columns: Array | None = None) -> Array:
        """(plans, rows) → (plans, p): what each device of a pipeline has in all.

        `columns` names the rows that the values are of, where they are not of all.
        """
        if values.ndim < 2:
            values = values[None]
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
            return np.asarray(np.sum(units, axis=-1, keepdims=True))
        return self.fold(self.chunk(units))

    def chunk(self, units: Array, joined: np.ufunc = np.add) -> Array:
        """(plans, units) → (plans, chunks): their sums, or whatever `joined` makes of them.

        Equal chunks come to equal sums, to the last bit: of stages that tie the first is named.
        """
        units, begin = _aligned(units, self.cuts[:, :-1])
        begin = begin + np.arange(len(units))[:, None] * units.shape[1]
        return joined.reduceat(units.ravel(), begin.ravel()).reshape(begin.shape)

    def first(self, units: Array) -> Array:
        """(plans, units) → (plans, chunks): that of the unit that each begins with."""
        return np.asarray(np.take_along_axis(*_aligned(units, self.cuts[:, :-1]), axis=-1))

    @cached_property
    def owner(self) -> Array:
        """(plans or one, units): the device that each unit sits on."""
        at = np.arange(len(self.ends))
        chunk = (at[None, None, :] >= self.cuts[:, 1:-1, None]).sum(axis=1)
        back = self.vee & ((chunk // self.p) % 2 > 0)
        return np.asarray(np.where(back, self.p - 1 - chunk % self.p, chunk % self.p))

    def fold(self, chunks: Array, joined: np.ufunc = np.add) -> Array:
        """(plans, chunks) → (plans, p): those of each device, joined."""
        padded = _padded(chunks, 0, self.p * self.v)
        rounds = padded.reshape(len(padded), self.v, self.p)
        if self.vee:
            back = np.arange(self.v) % 2 > 0
            rounds = np.where(back[:, None], rounds[:, :, ::-1], rounds)
        return np.asarray(joined.reduce(rounds, axis=1))

    def received_ahead(self, borders: Array) -> Array:
        """(plans, chunks - 1) → (plans, p): what each device receives from the chunk before."""
        return self.fold(_padded(self._between(borders), 1, self.chunks))

    def received(self, borders: Array) -> Array:
        """(plans, chunks - 1) → (plans, p): what each device receives, from either side."""
        return self.fold(self._between(borders)) + self.received_ahead(borders)

    def received_most(self, borders: Array) -> tuple[Array, Array]:
        """(plans, chunks - 1) → (plans, p) twice: the largest received from ahead, from behind."""
        between = self._between(borders)
        ahead, behind = (np.pad(between, [(0, 0), side]) for side in ((1, 0), (0, 1)))
        return self.fold(ahead, np.maximum), self.fold(behind, np.maximum)

    def _between(self, borders: Array) -> Array:
        """Without those where a V turns, between two chunks of one device."""
        if not self.vee:
            return borders
        turns = np.arange(1, borders.shape[-1] + 1) % self.p == 0
        return np.where(turns, 0.0, borders)

    def most(self, units: Array) -> Array:
        """(plans, units) → (plans, p): the largest single unit of each device."""
        if self.chunks <= 1:
            return np.asarray(units.max(axis=-1, keepdims=True))
        return self.fold(self.chunk(units, np.maximum), np.maximum)

    def largest(self, values: Array, columns: Array) -> Array:
        """(plans, rows) → (plans, p): the largest value among the rows of each device."""
        if self.chunks <= 1:
            return np.asarray(values.max(axis=-1, keepdims=True, initial=0.0))
        kinds, unit = _unit_kinds(self.model, tuple(columns.tolist()))
        most = [values[:, mine].max(axis=-1, initial=0.0) for mine in kinds]
        return self.most(np.stack(most, axis=-1)[:, unit])

    def borders(self, values: Array) -> Array:
        """(plans, rows) → (plans, chunks - 1): the row that ends each chunk but the last."""
        values, rows = _aligned(values, self.ends.astype(int)[self.cuts[:, 1:-1] - 1])
        return np.take_along_axis(values, rows, axis=-1)


@lru_cache(256)
def _unit_kinds(model: Model, columns: tuple[int, ...]) -> tuple[Array, Array]:
    """Which of some rows the kinds of units have, and each unit's kind."""
    has = model.units[0][:, columns] > 0
    kinds, unit = np.unique(has, axis=0, return_inverse=True)
    return kinds, unit.ravel()


def _padded(values: Array, before: int, size: int) -> Array:
    """(plans, few) → (plans, size): zeros before and after."""
    if values.shape[1] == size:
        return values
    padded = np.zeros((len(values), size))
    padded[:, before : before + values.shape[1]] = values
    return padded


def _aligned(one: Array, other: Array) -> tuple[Array, Array]:
    """Both with as many plans as the one that has more."""
    if len(one) == len(other):
        return one, other
    if len(one) == 1:
        return one.repeat(len(other), axis=0), other
    return one, other.repeat(len(one), axis=0)


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
    return np.asarray(cuts)


@lru_cache(1024)
def ways_to_cut(model: Model, p: int, v: int, vee: bool) -> tuple[tuple[int, ...], ...]:
    """Edges that are worth trying, of which a plan takes those that make it fastest.

    Each makes the fullest part, or the fullest of devices with several, least by one of LOADS.
    They must not depend on prices: the best of the same few ways is never slower on a better
    machine or faster with more samples, and what balances the prices of the moment may be.
    """
    counts, ends = model.units
    parts = (model.mac, model.x + model.y, np.ones(len(model)))
    each = [counts @ part for part in parts]
    flop, moved, kernels = (units / max(units.sum(), 1.0) for units in each)
    crossing = model.y[ends.astype(int)[:-1]] / max(each[1].sum(), 1.0) / PASSES
    shares, dear = (np.array(part) for part in zip(*LOADS, strict=True))
    loads, borders = shares @ np.array([flop, moved, kernels]), dear[:, None] * crossing
    dealt = balanced_cuts(loads, min(p * v, len(ends)), borders)
    if v > 1:
        dealt = np.array([
            Stages(model, p, v, False, load, vee, edges.tolist()).levelled(load, border)
            for edges, load, border in zip(dealt, loads, borders, strict=True)
        ])  # fmt: skip
    return tuple(dict.fromkeys(tuple(edges) for edges in dealt.tolist()))


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
    n, units = loads.shape
    running = np.pad(np.cumsum(loads, axis=-1), [(0, 0), (1, 0)])
    across = np.pad(borders, [(0, 0), (1, 1)])
    width = _widest(running, across, parts)

    def before(values: Array, else_: float) -> tuple[Array, Array]:
        """Values at edges, and [plan, begin, end] of them: a begin is at most `width` before."""
        padded = np.pad(values, [(0, 0), (width, 0)], constant_values=else_)
        seen = np.lib.stride_tricks.sliding_window_view(padded, units + 1, axis=-1)[:, :-1]
        return padded[:, width:], seen

    part = running[:, None] - before(running, -np.inf)[1] + across[:, None] + before(across, 0)[1]
    none = np.where(np.arange(units + 1) > 0, np.inf, np.zeros((n, 1)))
    fullest, ways = before(none, np.inf)  # the ways to come there follow what is written here
    for _ in range(parts):
        fullest[:] = np.maximum(ways, part).min(axis=1)
    part = np.where(part <= fullest[:, -1, None, None] * (1 + 1e-12), across[:, None], np.inf)
    crossed, ways = before(none, np.inf)
    begins = []
    for _ in range(parts):
        sums = ways + part
        begins.append(sums.argmin(axis=1))
        crossed[:] = sums.min(axis=1)
    edges, rows = np.full((n, parts + 1), units), np.arange(n)
    for k in reversed(range(parts)):
        end = edges[:, k + 1]
        edges[:, k] = end - width + begins[k][rows, end]
    return edges


def _widest(running: Array, across: Array, parts: int) -> int:
    """Units that a part may have, at most: a wider one is fuller than the fullest of some cut.

    Of parts that each take as many units as they can, up to their share and one unit more.
    """
    most = np.diff(running).max(axis=-1) + running[:, -1] / parts
    edges = _sweep(running, parts, most)
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

"""Stages of a pipeline: which units each device holds, and sums of rows over them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.crossings import Crossings, crossings, received_by
from oracle.plan.partition import balanced_cuts, joined_cuts

# Shares of FLOP, bytes and kernels in the load of a unit, and how much dearer a byte is that
# crosses a border than one that a kernel moves: from machines whose kernels set the pace to those
# whose memory, host or network does. They are the same for all machines: see `ways_to_cut`.
LOADS = (
    ((1.0, 0.0, 0.0), 8.0), ((1.0, 0.0, 0.0), 512.0), ((1.0, 0.0, 0.0), 4096.0),
    ((0.75, 0.25, 0.0), 8.0), ((0.6, 0.2, 0.2), 64.0), ((0.2, 0.6, 0.2), 8.0),
    ((0.5, 0.0, 0.5), 0.0), ((0.0, 0.0, 1.0), 0.0), ((0.0, 0.0, 1.0), 8.0),
)  # fmt: skip
PASSES = 6  # times that a tensor is read or written in an iteration, two of them ahead
FEW = 512  # ways to cut a model that is no chain, up to which all of them are tried
NEAR = 256  # ways that are a unit off, up to which all of those are
# Multiply-accumulates of a kernel that take as long as an element that it moves, shares of kernels
# in the load, and the same of a byte that crosses: where tensors pass other stages by.
ROOFS = tuple((roof, share, dear) for roof in (4.0, 16.0, 64.0, 256.0)
              for share in (0.0, 0.2) for dear in (1.0, 64.0))  # fmt: skip


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
        self.plain = model.pieces.links.plain  # of a chain, chunks pass on but what they end with
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

    def levelled(self, load: Array, received: Array) -> Array:
        """Cuts moved unit by unit while the fullest device gets less full.

        A device has several chunks: that the fullest chunk is least does not make it least. Each
        also takes what it has `received`, by the units where it begins and ends.
        """
        running = np.pad(np.cumsum(load), (1, 0))

        def fullest(cuts: Array) -> float:
            chunks = np.diff(running[cuts]) + received[cuts[:-1], cuts[1:]]
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

    def opening(self, units: Array) -> Array:
        """(plans, units) → (plans, p): of the first unit of each chunk that has any."""
        count = units.shape[1]
        at = self.chunk(np.where(units > 0, np.arange(count), count), np.minimum)
        values, at = _aligned(np.pad(units, ((0, 0), (0, 1))), at)
        return self.fold(np.take_along_axis(values, at, axis=-1))

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

    @cached_property
    def crossed(self) -> Crossings:
        """The tensors that cross between chunks; of a chain nobody needs to ask."""
        return crossings(self.model, self.cuts, device_of(self.chunks, self.p, self.vee), self.p)

    def crosses(self, values: Array) -> Array:
        """(plans, tensors sent): 1 for those that cross, of what `borders` has found."""
        if self.plain:
            return np.ones_like(values)
        return np.broadcast_to(self.crossed.sent, values.shape) * 1.0

    def received_ahead(self, borders: Array) -> Array:
        """(plans, tensors sent) → (plans, p): what each device receives from chunks before."""
        if not self.plain:
            return self.crossed.received_ahead(borders)
        return self.fold(_padded(self._between(borders), 1, self.chunks))

    def received(self, borders: Array) -> Array:
        """(plans, tensors sent) → (plans, p): what each device receives, from either side."""
        if not self.plain:
            return self.crossed.received(borders)
        return self.fold(self._between(borders)) + self.received_ahead(borders)

    def received_most(self, borders: Array) -> tuple[Array, Array]:
        """(plans, tensors sent) → (plans, p) twice: the largest received from either side."""
        if not self.plain:
            return self.crossed.received_most(borders)
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
        """(plans, rows) → (plans, tensors sent): of the rows that make them.

        In a chain, of the row that ends each chunk but the last.
        """
        if not self.plain:
            return self.crossed.values(values)
        values, rows = _aligned(values, self.ends.astype(int)[self.cuts[:, 1:-1] - 1])
        return np.take_along_axis(values, rows, axis=-1)


def device_of(chunks: int, p: int, vee: bool) -> Array:
    """(chunks,) the device that holds each."""
    rounds, at = np.divmod(np.arange(chunks), p)
    back = vee & (rounds % 2 > 0)
    return np.where(back, p - 1 - at, at)


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
    units = np.flatnonzero(folded)
    places = {place for one in model.segments for place in (one.stop, *one.cuts)}
    blocks = 1 + np.flatnonzero(folded & np.isin(ends + 1, list(places)))  # behind each
    if len(blocks) < chunks or units[-1] - units[0] + 1 != len(units):
        return None
    shares = [len(part) for part in np.array_split(blocks, chunks)]
    cuts = np.array([0, *blocks[np.cumsum(shares) - 1]])
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
    if not model.pieces.links.plain and math.comb(len(ends) - 1, p * v - 1) <= FEW:
        inner = combinations(range(1, len(ends)), min(p * v, len(ends)) - 1)
        return tuple((0, *edges, len(ends)) for edges in inner)
    parts = (model.mac, model.x + model.y, np.ones(len(model)))
    each = [counts @ part for part in parts]
    flop, moved, kernels = (units / max(units.sum(), 1.0) for units in each)
    whole, chunks = max(each[1].sum(), 1.0), min(p * v, len(ends))
    shares, dear = (np.array(part) for part in zip(*LOADS, strict=True))
    loads = shares @ np.array([flop, moved, kernels])
    if model.pieces.links.plain:
        borders = dear[:, None] * (model.y[ends.astype(int)[:-1]] / whole / PASSES)
        dealt = balanced_cuts(loads, chunks, borders)
        across = np.pad(borders, [(0, 0), (1, 1)])
        received = across[:, :, None] + across[:, None]
    else:
        roofs, share, more = (np.array(part) for part in zip(*ROOFS, strict=True))
        under = np.maximum(model.mac / roofs[:, None], parts[1]) @ counts.T
        under = under / under.sum(axis=-1, keepdims=True)
        loads = np.concatenate([loads, under + share[:, None] * (kernels - under)])
        dear = np.concatenate([dear, more])
        both = dear[:, None, None, None] * (received_by(model) / whole / PASSES)
        received = both.sum(axis=1)
        dealt = joined_cuts(loads, chunks, received, both[:, 0])
    if v > 1:
        dealt = np.array([
            Stages(model, p, v, False, load, vee, edges.tolist()).levelled(load, mine)
            for edges, load, mine in zip(dealt, loads, received, strict=True)
        ])  # fmt: skip
    ways = dict.fromkeys(tuple(edges) for edges in dealt.tolist())
    return tuple(ways if model.pieces.links.plain else beside(list(ways), loads))


def beside(ways: Sequence[tuple[int, ...]], loads: Array) -> Iterator[tuple[int, ...]]:
    """Ways to cut, and those in which one edge is a unit off, each once.

    Where these are many, only those in which a part gives a unit away that is fullest by a load.
    """
    found = dict.fromkeys(ways)
    running = np.pad(np.cumsum(loads, axis=1), [(0, 0), (1, 0)])
    for edges in ways:
        off = [(at, step) for at in range(1, len(edges) - 1) for step in (-1, 1)]
        if len(ways) * len(off) > NEAR:
            ends = np.array(edges)
            full = {*(running[:, ends[1:]] - running[:, ends[:-1]]).argmax(axis=1).tolist()}
            off = [(at, step) for at, step in off if (at if step > 0 else at - 1) in full]
        for at, step in off:
            if edges[at - 1] < edges[at] + step < edges[at + 1]:
                found[(*edges[:at], edges[at] + step, *edges[at + 1 :])] = None
    yield from found

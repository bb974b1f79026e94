"""Stages of pipelines: which units each device holds, and sums of rows over them.

A table of plans has pipelines of many shapes. Its arrays are as wide as the widest: a chunk past a
plan's last one is empty, and so is a device past its last stage. Sums and maxima of what is empty
are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.crossings import Crossings, chunk_of, crossings


class Stages:
    """Deals a model's units to the devices of n pipelines, and adds rows up by device.

    Pipeline i has p[i] devices with v[i] chunks each, which begin and end at the units edges[i].
    Chunk c sits on device c mod p; in a V every other round of chunks comes back from the last.
    """

    def __init__(self, model: Model, p: Array, v: Array, vee: Array, edges: Array) -> None:
        self.model = model
        self.p, self.v, self.vee = (np.reshape(column, (-1, 1)) for column in (p, v, vee))  # (n, 1)
        self.edges = edges[:, : 1 + int((self.p * self.v).max())]  # (n, chunks + 1)
        self.counts, self.ends = model.units
        self.begin = np.argmax(self.counts > 0, axis=-1)  # a unit is a run of rows
        self.stop = self.counts.shape[1] - np.argmax(self.counts[:, ::-1] > 0, axis=-1)
        self.plain = model.pieces.links.plain  # of a chain, chunks pass on but what they end with
        self.devices, self.rounds = int(self.p.max()), int(self.v.max())  # of the widest
        self.chunks = self.edges.shape[1] - 1
        self.live = self.edges[:, 1:-1] < len(self.ends)  # (n, chunks - 1): borders that there are

    @classmethod
    def of(cls, model: Model, p: int, v: int, edges: Sequence[int], vee: bool = False) -> Stages:
        """Those of one pipeline."""
        return cls(model, np.array(p), np.array(v), np.array(vee), np.array([edges]))

    @classmethod
    def along(cls, model: Model, pipeline: Any, edges: Array) -> Stages:
        """Those of pipelines as plans have them."""
        p, v = (column.astype(int) for column in (pipeline.degree, pipeline.interleave))
        return cls(model, p, v, pipeline.vee, edges)

    def take(self, pipelines: Array) -> Stages:
        """Those of some pipelines."""
        p, v, vee = (column[pipelines] for column in (self.p, self.v, self.vee))
        return Stages(self.model, p, v, vee, self.edges[pipelines])

    def __len__(self) -> int:
        return len(self.edges)

    @property
    def there(self) -> Array:
        """(n, devices) 1 for the devices that each pipeline has."""
        return np.asarray(np.where(np.arange(self.devices) < self.p, 1.0, 0.0))

    def cuts(self, pipeline: int) -> tuple[int, ...]:
        """The units where chunks of one pipeline begin, and the end."""
        edges = self.edges[pipeline]
        return (*edges[edges < len(self.ends)].tolist(), len(self.ends))

    def total(self, values: Array, columns: Array | None = None) -> Array:
        """(plans, rows) → (plans, devices): what each device of a pipeline has in all.

        `columns` names the rows that the values are of, where they are not of all.
        """
        return self.gather(self.units(np.atleast_2d(values), columns))

    def totals(self, values: Sequence[Array]) -> list[Array]:
        """The totals of several quantities, added up at once."""
        shape = np.broadcast_shapes(
            (1, self.counts.shape[1]), *(quantity.shape for quantity in values)
        )
        return list(self.total(np.stack([np.broadcast_to(quantity, shape) for quantity in values])))

    def units(self, values: Array, columns: Array | None = None) -> Array:
        """(plans, rows) → (plans, units): a row counts as often as its unit has it."""
        rows = self.counts.T
        return values @ (rows if columns is None else rows[columns])

    def last(self, values: Array, columns: Array) -> Array:
        """(plans, rows) → (plans, devices): as `total`, of each row's copies only the last."""
        unit = len(self.ends) - 1 - np.argmax(self.counts[::-1] > 0, axis=0)
        hands_on = np.arange(len(self.ends)) == unit[columns][:, None]
        return self.gather(values @ hands_on)

    def gather(self, units: Array, joined: np.ufunc = np.add) -> Array:
        """(plans, units) → (plans, devices): their sums, or whatever `joined` makes of them."""
        ended = self._ended(units)
        if self.rounds > 1:
            ended = _taken(ended, self._by_device[0])
        return _joined(ended, self._by_device[1], joined)

    @cached_property
    def _by_device(self) -> tuple[Array, Array]:
        """(plans, units + 1) units device by device, and (plans, devices) where each begins."""
        if self.rounds == 1:
            return self.edges, _padded(self.edges[:, :-1], 0, self.devices, len(self.ends))
        owner = np.pad(self.owner, [(0, 0), (0, 1)], constant_values=self.devices)
        order = np.argsort(owner, axis=-1, kind="stable")
        begin = (owner[:, None, :] < np.arange(self.devices)[:, None]).sum(axis=-1)
        has_units = (owner[:, None, :] == np.arange(self.devices)[:, None]).any(axis=-1)
        return order, np.where(has_units, begin, len(self.ends))

    def chunk(self, units: Array, joined: np.ufunc = np.add, empty: float = 0.0) -> Array:
        """(plans, units) → (plans, chunks): their sums, or whatever `joined` makes of them.

        Equal chunks come to equal sums, to the last bit: of stages that tie the first is named.
        """
        return _joined(self._ended(units, empty), self.edges[:, :-1], joined)

    def _ended(self, units: Array, empty: float = 0.0) -> Array:
        """(plans, units) → (plans, units + 1): with an empty one, which chunks without any have."""
        *quantities, plans, width = units.shape
        ended = np.full((*quantities, max(len(self), plans), width + 1), empty, units.dtype)
        ended[..., :-1] = units
        return ended

    def first(self, units: Array) -> Array:
        """(plans, units) → (plans, chunks): that of the unit that each begins with."""
        return _taken(self._ended(units), self.edges[:, :-1])

    def closing(self, units: Array) -> Array:
        """(plans, units) → (plans, chunks): that of the unit that each ends with."""
        return _taken(units, self.edges[:, 1:] - 1)

    def handed(self, units: Array) -> Array:
        """(plans, units) → (plans, chunks - 1): that of the unit before each border.

        Behind a pipeline's last chunk it is the model's last unit, which `crosses` leaves out.
        """
        return self.closing(units)[:, :-1]

    def opening(self, units: Array) -> Array:
        """(plans, units) → (plans, devices): of the first unit of each chunk that has any."""
        count = units.shape[-1]
        first_units = self.chunk(np.where(units > 0, np.arange(count), count), np.minimum, count)
        return self.fold(_taken(self._ended(units), first_units))

    @cached_property
    def owner(self) -> Array:
        """(plans, units): the device that each unit sits on."""
        return _taken(self.device, chunk_of(self.edges, len(self.ends)))

    @cached_property
    def device(self) -> Array:
        """(plans, chunks) the device that each chunk sits on."""
        rounds, seat = np.divmod(np.arange(self.chunks), self.p)
        return np.asarray(np.where(self.vee & (rounds % 2 > 0), self.p - 1 - seat, seat))

    @cached_property
    def _seat(self) -> Array:
        """(plans, rounds, devices): a device's chunk of each round; one more than all of none."""
        rounds, device = np.arange(self.rounds)[:, None], np.arange(self.devices)
        p, back = self.p[:, :, None], self.vee[:, :, None] & (rounds % 2 > 0)
        chunk = rounds * p + np.where(back, p - 1 - device, device)
        has_chunk = (device < p) & (chunk < self.chunks)
        return np.asarray(np.where(has_chunk, chunk, self.chunks))

    def seated(self, chunks: Array) -> Array:
        """(plans, chunks) → (plans, rounds, devices): zero where a device has none."""
        if self.rounds == 1:
            return np.asarray(_padded(chunks, 0, self.devices)[..., None, :])
        seats = self._seat.reshape(len(self), -1)
        seated_chunks = _taken(_padded(chunks, 0, self.chunks + 1), seats)
        return np.asarray(
            seated_chunks.reshape(*seated_chunks.shape[:-1], self.rounds, self.devices)
        )

    def fold(self, chunks: Array, joined: np.ufunc = np.add) -> Array:
        """(plans, chunks) → (plans, devices): those of each device, joined."""
        if self.rounds == 1:
            return _padded(chunks, 0, self.devices)
        return np.asarray(joined.reduce(self.seated(chunks), axis=-2))

    @cached_property
    def crossed(self) -> Crossings:
        """The tensors that cross between chunks; of a chain nobody needs to ask."""
        return crossings(self.model, self.edges, self.device, self.devices)

    def crosses(self, values: Array) -> Array:
        """(plans, tensors sent): 1 for those that cross, of what `borders` has found."""
        return np.broadcast_to(self.live if self.plain else self.crossed.sent, values.shape) * 1.0

    def received_ahead(self, borders: Array) -> Array:
        """(plans, tensors sent) → (plans, devices): what each receives from chunks before."""
        if not self.plain:
            return self.crossed.received_ahead(borders)
        return self.fold(_padded(self._between(borders), 1, self.chunks))

    def received(self, borders: Array) -> Array:
        """(plans, tensors sent) → (plans, devices): what each receives, from either side."""
        if not self.plain:
            return self.crossed.received(borders)
        behind = _padded(self._between(borders), 0, self.chunks)
        return self.fold(behind) + self.received_ahead(borders)

    def received_most(self, borders: Array) -> tuple[Array, Array]:
        """(plans, tensors sent) → (plans, devices) twice: the largest received from either side."""
        if not self.plain:
            return self.crossed.received_most(borders)
        between = self._between(borders)
        ahead, behind = (_padded(between, before, self.chunks) for before in (1, 0))
        return self.fold(ahead, np.maximum), self.fold(behind, np.maximum)

    def _between(self, borders: Array) -> Array:
        """Without those where a V turns, between two chunks of one device."""
        if not self.vee.any():
            return borders
        turns = np.arange(1, borders.shape[-1] + 1) % self.p == 0
        return np.where(self.vee & turns, 0.0, borders)

    def most(self, units: Array) -> Array:
        """(plans, units) → (plans, devices): the largest single unit of each device."""
        return self.gather(units, np.maximum)

    def largest(self, values: Array, columns: Array) -> Array:
        """(plans, rows) → (plans, devices): the largest value among the rows of each device."""
        kinds, unit = _unit_kinds(self.model, tuple(columns.tolist()))
        kind_maxima = [values[:, of_kind].max(axis=-1, initial=0.0) for of_kind in kinds]
        return self.most(np.stack(kind_maxima, axis=-1)[:, unit])

    def borders(self, values: Array) -> Array:
        """(plans, rows) → (plans, tensors sent): of the rows that make them.

        In a chain, of the row that ends each chunk but the last.
        """
        if not self.plain:
            return self.crossed.values(values)
        return self.handed(values[:, self.ends.astype(int)])


@lru_cache(256)
def _unit_kinds(model: Model, columns: tuple[int, ...]) -> tuple[Array, Array]:
    """Which of some rows the kinds of units have, and each unit's kind."""
    has = model.units[0][:, columns] > 0
    kinds, unit = np.unique(has, axis=0, return_inverse=True)
    return kinds, unit.ravel()


def _padded(values: Array, before: int, size: int, empty: int = 0) -> Array:
    """(plans, few) → (plans, size): zeros before and after, or whatever is empty."""
    if values.shape[-1] == size:
        return values
    padded = np.full((*values.shape[:-1], size), empty, values.dtype)
    padded[..., before : before + values.shape[-1]] = values
    return padded


def _taken(values: Array, places: Array) -> Array:
    """(plans or one, many) → (plans, few): of each plan the values at some places."""
    *quantities, plans, width = values.shape
    rows = np.arange(plans)[:, None] * width
    return np.asarray(values.reshape(*quantities, plans * width).take(places + rows, axis=-1))


def _joined(values: Array, begin: Array, joined: np.ufunc) -> Array:
    """(plans, many) → (plans, few): runs of values that begin at some places, joined."""
    *quantities, plans, width = values.shape
    places = begin + np.arange(plans)[:, None] * width
    flat = values.reshape(*quantities, plans * width)
    return np.asarray(joined.reduceat(flat, places.ravel(), axis=-1).reshape(
        *quantities, *places.shape))  # fmt: skip

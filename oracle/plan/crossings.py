"""Tensors that cross between the chunks of a pipeline: from where to where, and what they add to.

A tensor goes from the chunk that makes it to each chunk that reads it, once and directly, as
PyTorch's pipelines send it; its gradients come back the same way. Chunks of one device send each
other nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array


@dataclass(frozen=True, eq=False)
class Crossings:
    """Tensors that cross under each way to cut: (ways, k), one entry a tensor and reading chunk."""

    row: Array  # that makes it
    source: Array  # the chunk that makes it
    target: Array  # the chunk that reads it
    next: Array  # whether it is the last that its chunk makes, read by the chunk after
    live: Array  # whether there is one: ways that are crossed by fewer have fewer
    device: Array  # (ways, chunks) of each chunk
    devices: int

    @cached_property
    def sent(self) -> Array:
        """Whether it goes to another device."""
        return np.asarray(self.live & (self._sits(self.source) != self._sits(self.target)))

    def _sits(self, chunk: Array) -> Array:
        """(ways, k) the device of a chunk of each entry."""
        return np.asarray(np.take_along_axis(self.device, chunk, axis=-1))

    def values(self, rows: Array) -> Array:
        """(plans, rows) → (plans, k): what is sent, of values that rows have."""
        ways, plans = len(self.row), len(rows)
        if ways == 1:
            return np.asarray(rows[:, self.row[0]] * self.sent)
        plan_rows = np.arange(plans)[:, None] if plans > 1 else np.zeros((1, 1), int)
        return np.asarray(rows[plan_rows, self.row] * self.sent)

    @cached_property
    def _ahead(self) -> Array:
        return self._of(self.target)

    @cached_property
    def _behind(self) -> Array:
        return self._of(self.source)

    def _of(self, chunk: Array) -> Array:
        """(ways, k, devices): which device each entry belongs to, by one of its chunks."""
        of_device = self._sits(chunk)[:, :, None] == np.arange(self.devices)
        return np.asarray(of_device & self.sent[:, :, None])

    def received_ahead(self, values: Array) -> Array:
        """(plans, k) → (plans, devices): what each receives before its forward passes."""
        return _added(values, self._ahead)

    def received(self, values: Array) -> Array:
        """(plans, k) → (plans, devices): what each receives before either pass."""
        return _added(values, self._ahead) + _added(values, self._behind)

    def received_most(self, values: Array) -> tuple[Array, Array]:
        """(plans, k) → (plans, devices) twice: the largest tensor received in either pass."""
        maxima = ((values[:, :, None] * which).max(axis=1, initial=0.0)
                 for which in (self._ahead, self._behind))  # fmt: skip
        ahead, behind = maxima
        return ahead, behind

    @cached_property
    def last(self) -> Array:
        """Whether an entry is the last that is sent of its tensor, in each way to cut."""
        is_last = np.zeros(self.row.shape, bool)
        for way, sent in enumerate(self.sent):
            entries = np.flatnonzero(sent)[::-1]
            pairs = np.stack([self.row[way], self.source[way]], axis=-1)[entries]
            is_last[way, entries[np.unique(pairs, axis=0, return_index=True)[1]]] = True
        return is_last

    def added(self, rows: Array, chunk: Array, entries: Array, chunks: int) -> Array:
        """(plans, rows) → (plans, chunks): values of rows, of some entries, added up by chunk."""
        total = np.zeros((max(len(rows), len(self.row)), chunks))
        way, entry = np.nonzero(entries)
        values = rows[way if len(rows) > 1 else 0, self.row[way, entry]]
        np.add.at(total, (way, chunk[way, entry]), values)
        return total

    def at(self, values: Array, chunk: Array) -> Array:
        """(plans, k) → (plans, devices): values of entries added up at a chunk of each."""
        return _added(values, self._of(chunk))


def _added(values: Array, which: Array) -> Array:
    if len(which) == 1:
        return np.asarray(values @ which[0])
    return np.asarray(np.einsum("...nk,nkp->...np", values, which))


def crossings(model: Model, cuts: Array, device: Array, devices: int) -> Crossings:
    """What crosses where a model is cut at these units, (ways, chunks + 1), and chunks sit so."""
    links = model.pieces.links
    chunk = chunk_of(cuts, len(model.pieces.ends))
    crosses = chunk[:, links.reader] != chunk[:, links.before]
    crossing_links = np.flatnonzero(crosses.any(axis=0))
    row, maker, reader = (
        column[crossing_links] for column in (links.row, links.maker, links.reader)
    )
    source, target = chunk[:, maker], chunk[:, reader]
    rows = np.broadcast_to(row, source.shape)
    device = np.broadcast_to(device, (len(cuts), device.shape[-1]))
    return Crossings(
        rows, source, target, links.next[crossing_links] & np.ones_like(source, bool),
        crosses[:, crossing_links], device, devices,
    )  # fmt: skip


def chunk_of(edges: Array, units: int) -> Array:
    """(ways, units) the chunk of each unit."""
    return np.asarray((np.arange(units) >= edges[:, 1:-1, None]).sum(axis=1))


@lru_cache(256)
def received_by(model: Model) -> Array:
    """[begin, end] elements of a sample that a stage of these units receives, both ways.

    Of each tensor made before that one of its units reads, and of each gradient of what it makes
    that is read behind it, once.
    """
    links, units = model.pieces.links, len(model.pieces.ends)
    change = np.zeros((2, units + 2, units + 2))
    y = model.y[links.row]
    last: dict[tuple[int, int], int] = {}
    for row, maker, reader, before, size in zip(
        links.row.tolist(), links.maker.tolist(), links.reader.tolist(), links.before.tolist(),
        y.tolist(), strict=True,
    ):  # fmt: skip
        _fill(change[0], (before + 1, reader), (reader + 1, units), size)
        last[row, maker] = max(reader, last.get((row, maker), 0))
    for (row, maker), reader in last.items():
        _fill(change[1], (0, maker), (maker + 1, reader), float(model.y[row]))
    elements: Array = change.cumsum(axis=1).cumsum(axis=2)[:, :-1, :-1]
    return elements


def _fill(change: Array, begin: tuple[int, int], end: tuple[int, int], size: float) -> None:
    """Add `size` to a rectangle, bounds included, once sums run over both axes."""
    (a, b), (c, d) = begin, end
    change[a, c] += size
    change[b + 1, c] -= size
    change[a, d + 1] -= size
    change[b + 1, d + 1] += size

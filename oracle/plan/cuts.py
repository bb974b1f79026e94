"""Where a pipeline may be cut into chunks: evenly, or in a few ways that balance its load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.crossings import received_by
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
TIE = 1e-9  # relative, below which two costs are one
FEW = 512  # ways to cut a model that is no chain, up to which all of them are tried
NEAR = 256  # ways that are a unit off, up to which all of those are
# Multiply-accumulates of a kernel that take as long as an element that it moves, shares of kernels
# in the load, and the same of a byte that crosses: where tensors pass other stages by.
ROOFS = tuple((roof, share, dear) for roof in (4.0, 16.0, 64.0, 256.0)
              for share in (0.0, 0.2) for dear in (1.0, 64.0))  # fmt: skip


@lru_cache(1024)
def even_cuts(model: Model, chunks: int) -> Array | None:
    """Equal blocks dealt evenly, what comes before on the first, what after on the last."""
    counts, ends = model.units
    folded = counts @ model.folded > 0
    units = np.flatnonzero(folded)
    places = {place for segment in model.segments for place in (segment.stop, *segment.cuts)}
    blocks = 1 + np.flatnonzero(folded & np.isin(ends + 1, list(places)))  # behind each
    if len(blocks) < chunks or units[-1] - units[0] + 1 != len(units):
        return None
    shares = [len(part) for part in np.array_split(blocks, chunks)]
    cuts = np.array([0, *blocks[np.cumsum(shares) - 1]])
    cuts[0], cuts[-1] = 0, len(ends)
    return np.asarray(cuts)


def dealt_by_cost(model: Model, chunks: int) -> list[int]:
    """The unit that begins each chunk; fewer where units run out before chunks do.

    Each chunk takes units in order until its share of all products is passed. The unit that passes
    it is the chunk's last, so later chunks have less.
    """
    counts, _ = model.units
    passed = np.cumsum(counts @ (model.mac * model.weighted))
    shares = passed[-1] * np.arange(1, chunks + 1) / chunks
    edges = [0]
    for unit, cost in enumerate(passed[:-1], start=1):
        if len(edges) < chunks and cost > shares[len(edges) - 1] * (1 + TIE):
            edges.append(unit)
    return edges


def cuts_by_cost(model: Model, chunks: int) -> Array | None:
    """Units dealt by cost; the last chunks have one each where dealing leaves them without any.

    Nothing where there are fewer units than chunks.
    """
    units, edges = len(model.units[0]), dealt_by_cost(model, chunks)
    if units < chunks:
        return None
    latest = units - chunks + np.arange(chunks + 1)  # that leaves a unit for each chunk behind
    dealt = np.pad(edges, (0, chunks + 1 - len(edges)), constant_values=units)
    return np.asarray(np.minimum(dealt, latest))


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
    chunks = min(p * v, len(ends))
    first_units = pieces_of(model, chunks)
    unit_loads = [np.add.reduceat(counts @ part, first_units) for part in parts]
    ends = np.append(ends[first_units[1:] - 1], ends[-1])
    flop, moved, kernels = (units / max(units.sum(), 1.0) for units in unit_loads)
    all_bytes = max(unit_loads[1].sum(), 1.0)
    shares, dear = (np.array(part) for part in zip(*LOADS, strict=True))
    loads = shares @ np.array([flop, moved, kernels])
    if model.pieces.links.plain:
        borders = dear[:, None] * (model.y[ends.astype(int)[:-1]] / all_bytes / PASSES)
        dealt = balanced_cuts(loads, chunks, borders)
        across = np.pad(borders, [(0, 0), (1, 1)])
        received = across[:, :, None] + across[:, None]
    else:
        roofs, share, more = (np.array(part) for part in zip(*ROOFS, strict=True))
        under = np.maximum(model.mac / roofs[:, None], parts[1]) @ counts.T
        under = under / under.sum(axis=-1, keepdims=True)
        loads = np.concatenate([loads, under + share[:, None] * (kernels - under)])
        dear = np.concatenate([dear, more])
        border_loads = dear[:, None, None, None] * (received_by(model) / all_bytes / PASSES)
        received = border_loads.sum(axis=1)
        dealt = joined_cuts(loads, chunks, received, border_loads[:, 0])
    if v > 1:
        device = device_of(dealt.shape[1] - 1, p, vee)
        dealt = np.array([levelled(*unit_loads, device)
                          for unit_loads in zip(dealt, loads, received, strict=True)])  # fmt: skip
    dealt = np.append(first_units, len(counts))[dealt]
    ways = dict.fromkeys(tuple(edges) for edges in dealt.tolist())
    return tuple(ways if model.pieces.links.plain else beside(list(ways), loads))


def pieces_of(model: Model, chunks: int) -> Array:
    """The first unit of each piece that a pipeline is cut between: every unit is a piece.

    But what follows the last block of a transformer stays whole, as launchers keep it, unless
    there are more chunks than pieces.
    """
    counts, attends = model.units[0], np.array([row.work == "attention" for row in model.rows])
    if not model.pieces.links.plain or not attends.any():
        return np.arange(len(counts))
    last_block = np.flatnonzero(counts @ (attends | model.folded))[-1]
    pieces = min(last_block + 2, len(counts))
    return np.arange(pieces if chunks <= pieces else len(counts))


def beside(ways: Sequence[tuple[int, ...]], loads: Array) -> Iterator[tuple[int, ...]]:
    """Ways to cut, and those in which one edge is a unit off, each once.

    Where these are many, only those in which a part gives a unit away that is fullest by a load.
    """
    ways_found = dict.fromkeys(ways)
    running = np.pad(np.cumsum(loads, axis=1), [(0, 0), (1, 0)])
    for edges in ways:
        off = [(edge, step) for edge in range(1, len(edges) - 1) for step in (-1, 1)]
        if len(ways) * len(off) > NEAR:
            ends = np.array(edges)
            full = {*(running[:, ends[1:]] - running[:, ends[:-1]]).argmax(axis=1).tolist()}
            off = [(edge, step) for edge, step in off if (edge if step > 0 else edge - 1) in full]
        for edge, step in off:
            if edges[edge - 1] < edges[edge] + step < edges[edge + 1]:
                ways_found[(*edges[:edge], edges[edge] + step, *edges[edge + 1 :])] = None
    yield from ways_found


def levelled(edges: Array, load: Array, received: Array, device: Array) -> Array:
    """Edges moved unit by unit while the fullest device gets less full.

    A device has several chunks: that the fullest chunk is least does not make it least. Each also
    takes what it has `received`, by the units where it begins and ends.
    """
    running = np.pad(np.cumsum(load), (1, 0))

    def fullest(edges: Array) -> float:
        chunks = np.diff(running[edges]) + received[edges[:-1], edges[1:]]
        return float(np.bincount(device, chunks).max())

    least_full, moved = fullest(edges), True
    while moved:
        moved = False
        for edge in range(1, len(edges) - 1):
            for step in (-1, 1):
                trial = edges.copy()
                trial[edge] += step
                if edges[edge - 1] < trial[edge] < edges[edge + 1] and (
                    fullest(trial) < least_full * (1 - 1e-9)
                ):
                    edges, least_full, moved = trial, fullest(trial), True
    return np.asarray(edges)


def device_of(chunks: int, p: int, vee: bool) -> Array:
    """(chunks,) the device that holds each."""
    rounds, place = np.divmod(np.arange(chunks), p)
    back = vee & (rounds % 2 > 0)
    return np.where(back, p - 1 - place, place)

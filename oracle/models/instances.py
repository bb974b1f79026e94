"""Rows as they run, every copy of a repeated block by itself, and the tensors that pass among them.

A tensor is *wanted* by the rows whose backward pass reads it: its maker, where that wants its own
output, and readers that want their inputs. Flattening and reshaping make no tensor of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.model import Floats, Model
from oracle.models.places import Ints

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Instances:
    """Rows in the order in which they run, one entry an instance."""

    row: Ints
    unit: Ints  # of the model that it is in
    feeds: tuple[tuple[int, ...], ...]  # instances whose tensors it reads; -1: the samples
    read: Ints  # the last instance that reads what it makes, or it itself
    first: Ints  # the first that wants it, and the last; -1: nobody
    last: Ints
    made: Floats  # elements that it makes of its own, per sample; 0 if it only sees one otherwise
    share: Floats  # of all elements that its row keeps, those of what it makes


@lru_cache(masks.MODELS)
def instances(model: Model) -> Instances:
    """Return the instances of a model."""
    order = list(_order(model))
    segment_of = [k for k, part in enumerate(model.segments) for _ in range(part.start, part.stop)]
    latest, copies = [NOBODY] * len(model), [0] * len(model)
    feeds: list[tuple[int, ...]] = []
    origin: list[int] = []  # the instance in whose memory its output lies
    read, first, last = (np.full(len(order), NOBODY) for _ in range(3))
    for number, (_, row) in enumerate(order):
        segment, spec = model.segments[segment_of[row]], model.rows[row]
        sources = []
        for feed in model.feeds[row]:
            before = segment.stop - 1 if feed == segment.start - 1 and copies[row] else feed
            sources.append(NOBODY if before < 0 else origin[latest[before]])
        feeds.append(tuple(sources))
        sees = spec.kind in ("flatten", "reshape")
        origin.append(sources[spec.part if len(sources) > 1 else 0] if sees else number)
        read[number] = number
        for maker in sources:
            if maker >= 0:
                read[maker] = number
        wants = sources * ("x" in spec.needs) + [origin[number]] * ("y" in spec.needs)
        for maker in wants:
            if maker >= 0:
                first[maker] = number if first[maker] == NOBODY else first[maker]
                last[maker] = number
        latest[row], copies[row] = number, copies[row] + 1
    units, rows = np.array(order, int).reshape(-1, 2).T
    elements = (model.y * masks.moved(model))[rows]
    kept_elements = model.kept[rows]
    share = np.divide(
        elements,
        kept_elements,
        out=np.zeros(len(rows)),
        where=(kept_elements > 0) & (first != NOBODY),
    )
    return Instances(rows, units, tuple(feeds), read, first, last, elements, share)


def _order(model: Model) -> list[tuple[int, int]]:
    """Return (unit, row) of each instance; rows that recur equally often in a unit recur as one."""
    order: list[tuple[int, int]] = []
    for unit, counts in enumerate(model.units[0].astype(int)):
        for segment in model.segments:
            rows = [row for row in range(segment.start, segment.stop) if counts[row]]
            runs: list[list[int]] = []
            for row in rows:
                if runs and counts[row] == counts[runs[-1][0]] > 1:
                    runs[-1].append(row)
                else:
                    runs.append([row])
            order += [(unit, row) for run in runs for _ in range(counts[run[0]]) for row in run]
    return order


def equal_runs(rows: list[int], counts: Floats) -> Iterator[list[int]]:
    """Yield runs of rows that recur equally often together; every other row by itself."""
    run: list[int] = []
    for row in rows:
        if run and (counts[row] != counts[run[-1]] or counts[row] < 2 or row != run[-1] + 1):
            yield run
            run = []
        run.append(row)
    if run:
        yield run

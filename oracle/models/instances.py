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
    """Those of a model."""
    order = list(_order(model))
    segment = [k for k, one in enumerate(model.segments) for _ in range(one.start, one.stop)]
    latest, copies = [NOBODY] * len(model), [0] * len(model)
    feeds: list[tuple[int, ...]] = []
    origin: list[int] = []  # the instance in whose memory its output lies
    read, first, last = (np.full(len(order), NOBODY) for _ in range(3))
    for at, (_, row) in enumerate(order):
        one, told = model.segments[segment[row]], model.rows[row]
        own = []
        for feed in model.feeds[row]:
            before = one.stop - 1 if feed == one.start - 1 and copies[row] else feed
            own.append(NOBODY if before < 0 else origin[latest[before]])
        feeds.append(tuple(own))
        sees = told.kind in ("flatten", "reshape")
        origin.append(own[told.part if len(own) > 1 else 0] if sees else at)
        read[at] = at
        for maker in own:
            if maker >= 0:
                read[maker] = at
        wants = [*(own if "x" in told.needs else []), *([origin[at]] if "y" in told.needs else [])]
        for maker in wants:
            if maker >= 0:
                first[maker] = at if first[maker] == NOBODY else first[maker]
                last[maker] = at
        latest[row], copies[row] = at, copies[row] + 1
    units, rows = np.array(order, int).reshape(-1, 2).T
    made = (model.y * masks.moved(model))[rows]
    kept = model.kept[rows]
    share = np.divide(made, kept, out=np.zeros(len(rows)), where=(kept > 0) & (first != NOBODY))
    return Instances(rows, units, tuple(feeds), read, first, last, made, share)


def _order(model: Model) -> list[tuple[int, int]]:
    """(unit, row) of each instance: rows that recur equally often in a unit recur together."""
    found: list[tuple[int, int]] = []
    for unit, counts in enumerate(model.units[0].astype(int)):
        for one in model.segments:
            mine = [row for row in range(one.start, one.stop) if counts[row]]
            runs: list[list[int]] = []
            for row in mine:
                if runs and counts[row] == counts[runs[-1][0]] > 1:
                    runs[-1].append(row)
                else:
                    runs.append([row])
            found += [(unit, row) for run in runs for _ in range(counts[run[0]]) for row in run]
    return found


def equal_runs(rows: list[int], counts: Floats) -> Iterator[list[int]]:
    """Runs of rows that recur equally often together; of rows that do not, each by itself."""
    run: list[int] = []
    for row in rows:
        if run and (counts[row] != counts[run[-1]] or counts[row] < 2 or row != run[-1] + 1):
            yield run
            run = []
        run.append(row)
    if run:
        yield run

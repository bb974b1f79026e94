"""Sweeps: the same question over devices, batches, models, systems and what-if factors.

    from oracle.ask.sweep import Grid, sweep
    found = sweep(Grid(("resnet50",), ("abci",), (1, 2, 4, 8), (64.0,), per_device=True))
    found.table()

A sweep with a folder can be killed at any time and started again: see `oracle.ask.sweep.ledger`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.ask.sweep.grid import Grid, numbers, sizes
from oracle.ask.sweep.ledger import Ledger
from oracle.ask.sweep.row import COLUMNS
from oracle.ask.sweep.table import FORMATS, needs, written
from oracle.spec.document import refusal
from oracle.spec.files import read_bytes, write
from oracle.spec.tabular import as_html, in_a_line, no_such
from oracle.spec.what_if import FACTORS, supposed

# columns of a table in a notebook
BRIEF = ("model", "system", "what_if", "way", "devices", "batch", "plan", "seconds", "seconds_low",
         "seconds_high", "memory", "why")  # fmt: skip
SLICE = 8  # points that are worth one more process


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The rows that are there, in the order of the grid."""

    grid: Grid
    rows: list[dict[str, Any]]
    place: Path | None = None  # of the result file, once every point is there

    @property
    def complete(self) -> bool:
        return len(self.rows) == len(self.grid)

    def table(self) -> Any:
        """A pandas DataFrame, one row a point."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(COLUMNS))

    def to_frame(self) -> Any:
        """The same by the name that data frames use."""
        return self.table()

    def to_dict(self) -> dict[str, Any]:
        """What `--format json` prints."""
        return {"schema": 1, "rows": [dict(row) for row in self.rows]}

    def says(self) -> str:
        """Of what, and how many rows there are."""
        asked = f"{', '.join(self.grid.models)} on {', '.join(self.grid.systems)}"
        return f"{asked}: {len(self.rows)} of {len(self.grid)} rows"

    def __repr__(self) -> str:
        return in_a_line(self, self.says())

    def _repr_html_(self) -> str:
        return as_html(self.says(), self.rows, BRIEF)

    def __getattr__(self, name: str) -> Any:
        raise no_such(self, name)


def sweep(
    grid: Grid, folder: str | os.PathLike[str] | None = None, *, jobs: int | None = None,
    shard: tuple[int, int] = (1, 1), dask: str | None = None, form: str = "csv",
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int, float], None] = lambda done, size, seconds: None,
) -> Sweep:  # fmt: skip
    """Answer every point of a grid that has no row yet, and put the rows together.

    `shard` (i, n) takes every n-th point from the i-th on, for one task of n; whichever task
    finds all rows there writes the result. `stop` is asked between rows.
    """
    needs(form)
    grid.check()
    with contextlib.ExitStack() as stack:
        keep = folder is not None
        place = Path(folder) if folder is not None else Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="oracle-sweep-")))  # fmt: skip
        ledger = Ledger(place, grid)
        there = ledger.done()
        mine = range(shard[0] - 1, len(grid), shard[1])
        points = [number for number in mine if number not in there]
        begin, count = time.monotonic(), len(mine) - len(points)
        for _ in _answers(grid, ledger, place, points, jobs, dask, stop):
            count += 1
            progress(count, len(mine), time.monotonic() - begin)
        rows = ledger.merged()
        result = None
        if keep and len(rows) == len(grid):
            result = place / f"result.{form}"
            content = written(rows, form)
            if result.exists() and not result.is_symlink() and not result.is_file():
                raise refusal(str(result), "this is not a regular file", "another --out folder")
            if not _holds(result, content):
                write(result, content)
        return Sweep(grid, rows, result)


def _holds(place: Path, content: bytes) -> bool:
    """Whether a file is there already, as it would be written."""
    if place.is_symlink() or not place.is_file() or place.stat().st_size != len(content):
        return False
    return read_bytes(place, "result", len(content), links=False) == content


def _answers(
    grid: Grid, ledger: Ledger, place: Path, points: list[int], jobs: int | None,
    dask: str | None, stop: Callable[[], bool],
) -> Any:  # fmt: skip
    from oracle.ask.sweep import crew

    if dask is not None and points:
        return crew.on_dask(grid, ledger, points, dask, stop)
    hands = jobs or min(len(os.sched_getaffinity(0)), len(points) // SLICE)
    if hands <= 1 or len(points) <= 1:
        return crew.alone(grid, ledger, points, stop)
    return crew.together(grid, place, points, hands, stop)


__all__ = [
    "COLUMNS", "FACTORS", "FORMATS", "Grid", "Ledger", "Sweep", "numbers", "sizes", "supposed",
    "sweep", "unusable", "written",
]  # fmt: skip

"""Climbing from the best plans: change what can be changed of them until nothing is better."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any, Protocol

import numpy as np

from oracle.ask.progress import parts
from oracle.ask.space import Floats, Space

SCANNED = 12  # products whose knobs are turned one by one
CLIMBERS = 3  # products that climb on from their best setting
ROUNDS = 16
STAGES = (3, 4, 2)  # how long its parts take beside each other, of questions that take seconds
DEAR_ROUNDS = 3  # of trying what takes long to price, and of climbing on with it


def changed(rows: Floats, column: int, value: float) -> Floats:
    rows = rows.copy()
    rows[:, column] = value
    return rows


class Pool(Protocol):
    """Candidates that were evaluated, and how more are."""

    space: Space
    rows: Floats

    @property
    def hopeful(self) -> Any:
        """Which may come near the best by the cuts, chunks and turns of their pipeline."""

    def add(self, rows: Floats) -> None:
        """Evaluate candidates that nobody has; those that cannot matter need not be."""

    @property
    def turned(self) -> Any:
        """Which of those behind the best have their knobs turned one by one."""

    def leading(self, count: int, among: Any = True) -> list[int]:
        """The best candidates of different degrees."""


def climb(pool: Pool) -> None:
    """Change what can be changed of the best, one thing or two, until nothing is better."""
    if not len(pool.rows):
        return
    with parts(*STAGES) as done:
        _climb(pool, done)


def _climb(pool: Pool, done: Callable[[], None]) -> None:
    space = pool.space
    (first,) = pool.leading(1)
    other_numbers = [number for number in pool.leading(SCANNED, pool.turned) if number != first]
    pool.add(
        np.concatenate(
            [
                _steps(space, pool.rows[first], reach=None),
                *(_turns(space, pool.rows[number], reach=1) for number in other_numbers),
            ]
        )
    )
    done()
    for _ in range(ROUNDS):
        climbers = pool.leading(CLIMBERS)
        steps = [_steps(space, pool.rows[number]) for number in climbers]
        pool.add(np.concatenate([*steps, _double_steps(space, pool.rows[climbers[0]])]))
        if pool.leading(CLIMBERS) == climbers:
            break
    done()
    _try_dear(pool)
    done()


def _try_dear(pool: Pool) -> None:
    """Values that take long to price, of the best that have the axis; on from a new best of all.

    Each is tried beside the next sizes of micro-batches too: what it makes equal or short may
    want them larger or smaller.
    """
    space = pool.space
    best: int | None = None
    dear = [(column, value) for column, (_, knob) in enumerate(space.columns)
            if knob != "degree" for value in space.dear(column)]  # fmt: skip
    for _ in range(DEAR_ROUNDS if dear else 0):
        steps: list[Floats] = [] if best is None else [_steps(space, pool.rows[best], reach=1)]
        tried = [_with_dear(pool, column, value) for column, value in dear]
        (before,) = pool.leading(1)
        pool.add(np.concatenate([*steps, *tried]))
        (best,) = pool.leading(1)
        if best == before:
            return


def _with_dear(pool: Pool, column: int, value: float) -> Floats:
    """The leading candidates that have its axis with a dear value, beside what it may want."""
    space, (name, _) = pool.space, pool.space.columns[column]
    wide: Any = True
    if name in space.limits:
        wide = (pool.rows[:, space.columns.index((name, "degree"))] > 1) & pool.hopeful
    leading = pool.leading(CLIMBERS, wide)
    rows = changed(pool.rows[leading], column, value)
    sizes = [changed(row[None], space.micro, size)
             for row in rows for size in space.values(row, space.micro, 1)]  # fmt: skip
    # a value may ask for the least of another number, or for the next: two chunks a stage
    with_least = [changed(rows, c, number) for c in range(space.micro + 1, len(space.columns))
             if c != column and space.counted(c)
             for number in space.knobs[space.columns[c]][:2]]  # fmt: skip
    return np.concatenate([rows, *sizes, *with_least])


def _steps(space: Space, row: Floats, reach: int | None = 2) -> Floats:
    """One candidate with one thing changed: a knob, the micro-batch, a degree moved."""
    return np.concatenate([space.moved(row), _turns(space, row, reach)])


def _double_steps(space: Space, row: Floats) -> Floats:
    """One candidate with two things changed."""
    columns = range(space.micro, len(space.columns))
    changes = {column: space.values(row, column, reach=1) for column in columns}
    moved = space.moved(row)
    rows = [_steps(space, row)]
    for first_column, second_column in combinations(columns, 2):
        for value, second in product(changes[first_column], changes[second_column]):
            rows.append(changed(changed(row[None], first_column, value), second_column, second))
    changes[space.micro] = space.values(row, space.micro, reach=2)  # a factor of two on two axes
    for column, values in changes.items():
        rows += [changed(moved, column, value) for value in values]
    return np.concatenate(rows)


def _turns(space: Space, row: Floats, reach: int | None) -> Floats:
    """One candidate with a knob or the micro-batch changed."""
    rows = [changed(row[None], column, value)
             for column in range(space.micro, len(space.columns))
             for value in space.values(row, column, reach)]  # fmt: skip
    return np.concatenate(rows) if rows else row[None]

"""Matrices of device pairs that a log prints, one row a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.readers.logs import number

WIDEST = 1024  # devices


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of pairs as (line, row, cells); a cell that is no number is None."""

    columns: int
    rows: tuple[tuple[int, int, tuple[float | None, ...]], ...]
    end: int  # the index of the first line after it

    def pairs(self) -> list[tuple[int, int, int, float]]:
        """Return (line, row, column, number) of every two devices with a number above 0."""
        return [
            (line, row, column, cell)
            for line, row, cells in self.rows
            for column, cell in enumerate(cells)
            if cell and row != column
        ]


def matrix(lines: Sequence[str], start: int, labels: Sequence[str] = ()) -> Matrix | None:
    """Return the matrix whose columns are named in `lines[start]`, perhaps after a label."""
    head = lines[start].split()
    if head and head[0] in labels:
        head = head[1:]
    width = len(head)
    if not 0 < width <= WIDEST or head != [str(k) for k in range(width)]:
        return None
    rows: list[tuple[int, int, tuple[float | None, ...]]] = []
    k = start + 1
    while k < len(lines) and len(rows) < WIDEST:
        fields = lines[k].split()
        if len(fields) != width + 1 or fields[0] != str(len(rows)):
            break
        rows.append((k + 1, len(rows), tuple(number(field) for field in fields[1:])))
        k += 1
    return Matrix(width, tuple(rows), k)

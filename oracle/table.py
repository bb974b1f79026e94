"""Rows as text that other programs read: CSV, and tables of Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


class Tabular:
    """An answer that is rows: as a frame, and as a table in a notebook."""

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each plan, point, fit or factor."""
        raise NotImplementedError

    def table(self) -> Any:
        """A pandas DataFrame of the rows."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_frame(self) -> Any:
        """The same by the name that data frames use."""
        return self.table()

    def _repr_html_(self) -> str:
        return str(self.table().to_html())


def columns(rows: Rows) -> list[str]:
    """Every name that a row has, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in row))


def as_csv(rows: Rows, names: Sequence[str] | None = None) -> str:
    """Comma-separated, numbers to nine digits; a cell is never taken for a formula."""
    names = columns(rows) if names is None else names
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def as_markdown(rows: Rows, names: Sequence[str] | None = None) -> str:
    """A table as Markdown has it; numbers stand to the right, to four digits."""
    names = columns(rows) if names is None else names
    right = [
        all(isinstance(row.get(name), int | float | None) for row in rows) and bool(rows)
        for name in names
    ]
    lines = [list(names), ["---:" if number else "---" for number in right]]
    lines += [[_word(row.get(name)) for name in names] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return format(value, ".9g")
    text = str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _word(value: Any) -> str:
    if isinstance(value, float):
        return format(value, ".4g")
    text = "" if value is None else str(value)
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())

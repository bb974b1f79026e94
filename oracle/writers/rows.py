"""Rows as text for other programs: CSV, and tables of Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def columns(rows: Rows) -> list[str]:
    """Return every name that a row has, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def as_csv(rows: Rows, names: Sequence[str] | None = None) -> str:
    """Return rows as CSV, numbers to nine digits; no cell is taken for a formula."""
    names = columns(rows) if names is None else names
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def as_markdown(rows: Rows, names: Sequence[str] | None = None) -> str:
    """Return rows as a Markdown table; numbers are on the right, to four digits."""
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
    text = "".join(c if c.isprintable() else " " for c in str(value))  # one row, one line
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _word(value: Any) -> str:
    if isinstance(value, float):
        return format(value, ".4g")
    text = "" if value is None else str(value)
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())

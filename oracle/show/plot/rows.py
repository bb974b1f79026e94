"""Rows to draw, read from CSV or JSON files: of a sweep, of measurements, of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.spec.document import refusal
from oracle.spec.files import ROWS, csv_of, json_of, read_text

POSITIVE = ("devices", "batch", "seconds", "seconds_low", "seconds_high", "samples_per_second",
            "memory", "capacity", "predicted", "measured")  # fmt: skip
WORDS = ("plan", "way", "group", "status", "model", "system", "what_if")


def read_rows(path: str) -> list[dict[str, Any]]:
    """Rows of a CSV or JSON file; cells that are numbers are numbers."""
    text = read_text(path, "file of rows", ROWS)
    if text.lstrip()[:1] not in ("{", "["):
        names, lines = csv_of(text, path)
        return [{name: _cell(row.get(name)) for name in names if name} for _, row in lines]
    data = json_of(text, path)
    found = data.get("rows") if isinstance(data, dict) else data
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        hint = "CSV with a header, or JSON"
        raise refusal("sweep", f"{path} has no rows to read", hint)
    return found


def _cell(text: str | None) -> Any:
    if text is None or text == "":
        return None if text is None else ""
    try:
        value = float(text)
    except ValueError:
        return text.removeprefix("'")
    return int(value) if value.is_integer() and text.isdigit() else value


def columns(rows: Sequence[dict[str, Any]], wanted: Sequence[str], path: str) -> None:
    """Refuse rows that lack a column, or whose cell is no number where one is due."""
    missing = [name for name in wanted if not rows or name not in rows[0]]
    if missing:
        raise refusal(
            "sweep", f"{path} has no column {', '.join(missing)}", f"columns: {', '.join(wanted)}"
        )
    for number, row in enumerate(rows, 2):
        for name in wanted:
            value = row.get(name)
            if name in WORDS:
                row[name] = "" if value is None else str(value)
                continue
            empty = value in ("", None) and row.get("status", "ok") != "ok"
            least_ = 1e-30 if name in POSITIVE else 0.0
            if not empty and not (isinstance(value, int | float) and least_ <= value < 1e30):
                least = "above 0" if name in POSITIVE else "from 0 on"
                raise refusal(
                    "sweep", f"{path}, row {number}: {name} is {value!r}", f"a number {least}"
                )


SWEPT = ("model", "system", "what_if", "way", "status", "plan", "devices", "batch", "seconds",
         "seconds_low", "seconds_high", "samples_per_second", "forward", "backward", "recompute",
         "update", "bubble", "exposed", "memory", "capacity")  # fmt: skip
ALIASES = {"strategy": "group", "way": "group", "p": "devices", "comp_s": "computation",
           "comm_s": "communication", "total_s": "total"}  # fmt: skip


def read_bars(path: str) -> list[dict[str, Any]]:
    """Measured bars; where a `who` column tells models from measurements, the latter."""
    rows = [{ALIASES.get(k, k): v for k, v in row.items()} for row in read_rows(path)]
    rows = [row for row in rows if row.get("who", "measured") in ("measured", "empirical")]
    rows = [row for row in rows if row.get("computation") not in ("", None)]
    columns(rows, ("group", "devices", "computation", "communication"), path)
    return rows

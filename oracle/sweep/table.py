"""The rows of a sweep as CSV, JSON, parquet, or a table to read."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from oracle.sweep.grid import unusable
from oracle.sweep.row import COLUMNS
from oracle.table import as_csv, as_markdown
from oracle.units import show

Rows = Sequence[dict[str, Any]]
FORMATS = ("csv", "json", "md", "parquet")
LONGEST = 400  # rows of a table to read


def written(rows: Rows, form: str) -> bytes:
    """A file's content; the same rows give the same bytes."""
    return {"csv": _csv, "json": _json, "md": _markdown, "parquet": _parquet}[form](rows)


def _csv(rows: Rows) -> bytes:
    return as_csv(rows, COLUMNS).encode()


def _markdown(rows: Rows) -> bytes:
    return as_markdown(rows, COLUMNS).encode()


def _json(rows: Rows) -> bytes:
    lines = ",\n".join(json.dumps({n: row[n] for n in COLUMNS}, allow_nan=False) for row in rows)
    return ('{"schema": 1, "rows": [\n' + lines + "\n]}\n").encode()


def _parquet(rows: Rows) -> bytes:
    try:
        import pyarrow  # type: ignore[import-not-found,unused-ignore]
        from pyarrow import parquet  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        hint = "pip install 'oracle-training[parquet]', or --format csv"
        raise unusable("parquet needs pyarrow, which is not installed here", hint) from None
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    kinds = {name: pyarrow.string() if name in TEXT else pyarrow.int64() if name in WHOLE
             else pyarrow.float64() for name in COLUMNS}  # fmt: skip
    table = pyarrow.table({n: pyarrow.array(v, kinds[n]) for n, v in columns.items()})
    out = io.BytesIO()
    parquet.write_table(table, out)
    return out.getvalue()


TEXT = ("model", "system", "what_if", "way", "status", "plan", "why")
WHOLE = ("point", "devices", "batch")


def needs(form: str) -> None:
    """Say now, not after hours, that a format cannot be written."""
    if form == "parquet":
        _parquet([])


def text(rows: Rows) -> str:
    """A table to read: one block for each curve, with speed-up and efficiency."""
    from oracle.sweep.row import label

    curves: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        curves.setdefault(
            tuple(str(row[n]) for n in ("model", "system", "what_if", "way")), []
        ).append(row)
    lines: list[str] = []
    for members in curves.values():
        first = next((row for row in members if row["status"] == "ok"), None)
        lines += ["", label(members[0], ("model", "system", "what_if", "way")),
                  f"  {'devices':>7} {'batch':>8} {'iteration':>10} {'samples/s':>10} "
                  f"{'efficiency':>10} {'memory':>9}  plan"]  # fmt: skip
        for row in members:
            lines.append(_line(row, first))
    if len(lines) > LONGEST:
        lines = [*lines[:LONGEST], f"… {len(lines) - LONGEST} lines more: --format csv has all"]
    return "\n".join(lines).strip("\n")


def _line(row: dict[str, Any], first: dict[str, Any] | None) -> str:
    head = f"  {row['devices']:>7} {row['batch']:>8} "
    if row["status"] != "ok" or first is None:
        return head + f"{'—':>10} {'':>10} {'':>10} {'':>9}  {row['status']}: {row['why']}"
    rate, base = row["samples_per_second"], first["samples_per_second"] / first["devices"]
    return head + (
        f"{show(row['seconds'], 's'):>10} {rate:>10.4g} {rate / row['devices'] / base:>10.0%} "
        f"{show(row['memory'], 'B'):>9}  {row['plan']}"
    )

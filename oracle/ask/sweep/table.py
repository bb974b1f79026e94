"""The rows of a sweep as CSV, JSON, Markdown or parquet files."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from oracle.ask.sweep.row import COLUMNS
from oracle.spec.document import refusal
from oracle.writers.rows import as_csv, as_markdown

Rows = Sequence[dict[str, Any]]
FORMATS = ("csv", "json", "md", "parquet")


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
        raise refusal("sweep", "parquet needs pyarrow, which is not installed here", hint) from None
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

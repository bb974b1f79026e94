"""The rows of a sweep as a table to read: one block for each curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.ask.sweep.row import label
from oracle.show.terminal import width, wrapped
from oracle.spec.units import number, show

Rows = Sequence[dict[str, Any]]
LONGEST = 400  # rows of a table to read


def sweep_text(rows: Rows) -> str:
    """A table to read: one block for each curve, with speed-up and efficiency."""
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
            lines += _lines(row, first)
    if len(lines) > LONGEST:
        lines = [*lines[:LONGEST], f"… {len(lines) - LONGEST} lines more: --format csv has all"]
    return "\n".join(lines).strip("\n")


def _lines(row: dict[str, Any], first: dict[str, Any] | None) -> list[str]:
    """A point: its figures, and its plan or its reason beside them or, too long for that, below."""
    figures, text = _figures(row, first)
    line = f"{figures}  {text}"
    return [line] if len(line) <= width() else [figures, *wrapped(f"{' ' * 10}{text}", 12)]


def _figures(row: dict[str, Any], first: dict[str, Any] | None) -> tuple[str, str]:
    head = f"  {row['devices']:>7} {row['batch']:>8} "
    if row["status"] != "ok" or first is None:
        return f"{head}{'—':>10} {'':>10} {'':>10} {'':>9}", f"{row['status']}: {row['why']}"
    rate, base = row["samples_per_second"], first["samples_per_second"] / first["devices"]
    figures = (f"{show(row['seconds'], 's'):>10} {number(rate):>10} "
               f"{rate / row['devices'] / base:>10.0%} {show(row['memory'], 'B'):>9}")  # fmt: skip
    return head + figures, row["plan"]

"""A table of a benchmark: rows, figures to watch, notes; and how it is printed."""

from __future__ import annotations

from typing import Any

Table = dict[str, Any]  # title, rows, figures, notes


def figure(value: Any, unit: str, goal: str) -> dict[str, Any]:
    """One number to watch, with what it should be."""
    return {"value": float(value), "unit": unit, "goal": goal}


def rounded(value: Any) -> float:
    """To three significant digits."""
    return float(f"{float(value):.3g}")


def text(table: Table) -> str:
    """A table in columns, its figures and its notes below."""
    names = list(dict.fromkeys(key for row in table["rows"] for key in row))
    cells = [names] + [[str(row.get(name, "")) for name in names] for row in table["rows"]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(names))]
    out = ["", table["title"], ""]
    out += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells]  # fmt: skip
    out.append("")
    for name, found in table["figures"].items():
        goal = f"   (goal {found['goal']})" if found["goal"] else ""
        out.append(f"{name} = {rounded(found['value'])} {found['unit']}{goal}")
    return "\n".join([*out, *(f"note: {note}" for note in table.get("notes", []))])

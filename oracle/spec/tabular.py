"""Answers that are rows: in a line, as a data frame, as a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, ClassVar

from oracle.spec.document import nearest
from oracle.spec.units import show

# of columns that are quantities, the unit
UNITS = {
    "seconds": "s", "seconds_low": "s", "seconds_high": "s", "predicted": "s", "measured": "s",
    "epoch_seconds": "s", "memory": "B", "capacity": "B", "bandwidth": "B/s", "latency": "s",
}  # fmt: skip
SHOWN = 50  # rows of a table in a notebook


class Tabular:
    """An answer that is rows: in a line, as a frame, and as a table in a notebook."""

    brief: ClassVar[tuple[str, ...]] = ()  # columns of a table in a notebook; all if not said

    def says(self) -> str:
        """The answer in a line."""
        raise NotImplementedError

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

    def __repr__(self) -> str:
        return in_a_line(self, self.says())

    def _repr_html_(self) -> str:
        return as_html(self.says(), self.rows(), self.brief)

    def __getattr__(self, name: str) -> Any:
        """Nothing has this name: say which is near."""
        if hasattr(type(self), name):  # of ours, and it failed with an AttributeError of its own
            return object.__getattribute__(self, name)
        raise no_such(self, name)


def in_a_line(answer: object, said: str) -> str:
    """`Ranking(data:16 is fastest …)`, on one line."""
    return f"{type(answer).__name__}({' '.join(said.split())})"


def no_such(answer: object, name: str) -> AttributeError:
    """An attribute that is not there, with the nearest that is."""
    kind = type(answer)
    known = [word for word in {*dir(kind), *getattr(kind, "__dataclass_fields__", {})}
             if not word.startswith("_")]  # fmt: skip
    near = "" if name.startswith("_") else nearest(name, sorted(known))
    what = f"'{kind.__name__}' object has no attribute '{name}'"
    return AttributeError(f"{what}; did you mean `{near}`?" if near else what)


def as_html(said: str, rows: Iterable[Mapping[str, Any]], brief: Iterable[str] = ()) -> str:
    """A table that reads by itself: a caption, few columns, quantities with their units."""
    found = [*rows]
    names = [*(name for name in brief if any(name in row for row in found))]
    names = names or [*dict.fromkeys(name for row in found for name in row)]
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(_cell(name, row.get(name)) for name in names)}</tr>" for row in found[:SHOWN]
    )
    more = f" ({SHOWN} of {len(found)} rows)" if len(found) > SHOWN else ""
    return (f'<table><caption style="text-align: left">{escape(said + more)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")  # fmt: skip


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return "<td></td>"
    number = isinstance(value, float | int) and not isinstance(value, bool)
    if number:
        text = show(float(value), UNITS[name]) if name in UNITS else f"{value:.4g}"
        text = f"{value:,}" if isinstance(value, int) and name not in UNITS else text
        return f'<td style="text-align: right">{escape(text)}</td>'
    style = ' style="text-align: left; font-family: monospace"' if name == "plan" else ""
    return f"<td{style}>{escape(str(value))}</td>"

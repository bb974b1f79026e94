"""Networks that one may buy: step time against switches and cables, unbeaten ones ringed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.show.plot import style
from oracle.show.plot.front import numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]


def designs(rows: Sequence[Row], title: str = "", width: float = style.WIDE) -> Figure:
    """How much slower than the fastest, up, against switches and against cables, right; or USD.

    Rows are those of `oracle design-network`, the answer first.
    """
    priced = bool(rows) and all(row.get("cost") is not None for row in rows)
    panels = [("cost", "USD")] if priced else [("switches", "switches"), ("cables", "cables")]
    slow = np.array([100 * (row["slowdown"] - 1) for row in rows], float)
    best = [row["unbeaten"] for row in rows]
    first = rows[0]["network"] if rows else "nothing"
    alt = f"{len(rows)} networks by step time and size; {sum(best)} are unbeaten, {first} is chosen"
    many = len(panels)
    named = [at for at, row in enumerate(rows) if row["unbeaten"] or not at]
    listed = [(f"{number}  {rows[at]['network']}:", _said(rows[at], panels))
              for number, at in enumerate(named, 1)]  # fmt: skip
    families = list(dict.fromkeys(map(_family, rows)))
    with style.look():
        narrow = width <= style.NARROW
        height = (120 + 380 * many if narrow else 520) + style.key_height(listed, width)
        figure = style.canvas(width, height, alt)
        shape = (many, 1) if narrow else (1, many)
        each = np.atleast_1d(figure.subplots(*shape, sharey=True))
        for axes, (key, label) in zip(each, panels, strict=True):
            axes.grid(visible=True, axis="both")
            for at, row in enumerate(rows):
                family = families.index(_family(row))
                axes.scatter(row[key], slow[at], s=52, lw=0.8, edgecolor=style.PAPER, zorder=3,
                             color=style.CURVES[family % len(style.CURVES)],
                             marker=style.MARKERS[family // len(style.CURVES) % 9],
                             label=families[family] if key == panels[0][0] else None)  # fmt: skip
                if best[at]:
                    axes.scatter(row[key], slow[at], s=130, facecolors="none", lw=1.5,
                                 edgecolors=style.RED, zorder=2, label="unbeaten")  # fmt: skip
            axes.set_xlabel(label)
            axes.set_xlim(0, None)
            numbers(axes, [row[key] for row in rows], slow, named)
        each[0].set_ylabel("slower than the fastest, %")
        handles, labels = each[0].get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        style.above(figure, list(once.values()), list(once), title)
        style.below(figure, [said for _, said in listed], [name for name, _ in listed])
    return figure


def _said(row: Row, panels: Sequence[tuple[str, str]]) -> str:
    """How slow a network is, and what it takes."""
    sizes = (f"{row[key]:,.0f} {label}" for key, label in panels)
    return f"{100 * (row['slowdown'] - 1):.1f} % slower than the fastest, {', '.join(sizes)}"


def _family(row: Row) -> str:
    """A network's name without its ratio: `fat tree`."""
    return re.sub(r"(,.*| \d:1)$|^\d-D ", "", str(row["network"]))

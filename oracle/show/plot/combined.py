"""A search, data and model parallelism on more and more nodes, as a product and as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.show.plot import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
# of each line its column, name, colour and dashes
LINES = (
    ("product", "product of the factors", style.RED, (0, (5, 2))),
    ("honest", "with waves and batches as they are", style.BLUE, "-"),
    ("search_speedup", "search alone, against one device", style.GREEN, ":"),
    ("data_speedup", "data parallelism alone, likewise", style.ORANGE, ":"),
    ("model_speedup", "other kinds alone, likewise", style.PINK, ":"),
)


def combined(rows: Sequence[Row], title: str = "", width: float = style.WIDE) -> Figure:
    """Speed-up against one node over nodes: the product of factors, each of them, as it is.

    Rows are those of the table of `oracle workflow`; one that does not fit is a gap.
    """
    rows = sorted(rows, key=lambda row: row["nodes"])
    good = [row for row in rows if row.get("honest")]
    most = max((row.get("overstated") or 1.0 for row in good), default=1.0)
    alt = f"Speed-up on {len(rows)} numbers of nodes: the product says up to {most:.2f} × too much"
    nodes = np.array([row["nodes"] for row in rows], float)
    with style.look():
        figure = style.canvas(width, 520, alt)
        axes = figure.subplots()
        axes.grid(visible=True, axis="both")
        if rows:
            axes.plot(nodes[[0, -1]], nodes[[0, -1]], color=style.GREY, lw=1.0, zorder=1,
                      label="nodes")  # fmt: skip
        for at, (key, name, colour, dashes) in enumerate(LINES):
            values = np.array([row.get(key) or np.nan for row in rows], float)
            if np.isfinite(values).any():
                axes.plot(nodes, values, color=colour, ls=dashes, marker=style.MARKERS[at],
                          mec=style.PAPER, mew=0.8, label=name)  # fmt: skip
        axes.set_yscale("log")
        style.doubling(axes, [row["nodes"] for row in rows] or [1])
        axes.set_xlabel("nodes")
        axes.set_ylabel("times as fast as one node")
        style.plain_log(axes.yaxis)
        last = [tuple(np.asarray(v, float)[-1] for v in line.get_data()) for line in axes.lines]
        ends = [(x, y, str(line.get_label()), line.get_color())
                for (x, y), line in zip(last, axes.lines, strict=True)
                if np.isfinite(y)]  # fmt: skip
        if width > style.NARROW:
            style.at_ends(axes, ends, 400)
            style.above(figure, [], [], title)
        else:
            style.above(figure, axes.lines, [line.get_label() for line in axes.lines], title)
    return figure

"""Predicted against measured: one point a measurement, and the band of ten per cent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.plan.names import short_names
from oracle.show.plot import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
BAND = 0.1


def measured(
    rows: Sequence[Row], title: str = "", worst: int = 3, width: float = 760
) -> Figure:  # fmt: skip
    """Seconds predicted (up) against seconds measured (right), groups told apart.

    Each row has `predicted` and `measured`, and may have `group`, `label`, `low` and `high`.
    The farthest points carry their label.
    """
    p = np.array([row["predicted"] for row in rows], float)
    m = np.array([row["measured"] for row in rows], float)
    error = np.abs(p - m) / np.where(m > 0, m, 1) if len(rows) else np.zeros(0)
    divide, unit = style.scale([*p, *m] or [0.0], "s")
    groups = list(dict.fromkeys(str(row.get("group", "")) for row in rows))
    names = short_names([str(row.get("label") or "") for row in rows])
    inside = int((error <= BAND).sum())
    summary = (f"{inside} of {len(rows)} within ±10 %, mean error {error.mean():.1%}"
               if len(rows) else "no measurement")  # fmt: skip
    with style.look():
        figure = style.canvas(
            width, min(0.88 * width, 700) + 60, f"Predicted against measured seconds: {summary}"
        )
        axes = figure.subplots()
        axes.grid(visible=True, axis="both")
        axes.set_xscale("log")
        axes.set_yscale("log")
        if len(rows):
            ends = [row[key] for row in rows for key in ("low", "high") if row.get(key)]
            low, high = (min(*p, *m, *ends) / divide / 1.15, max(*p, *m, *ends) / divide * 1.15)
            edge = np.array([low, high])
            axes.fill_between(edge, edge * (1 - BAND), edge * (1 + BAND), color=style.PALE,
                              alpha=0.6, lw=0, label="±10 %")  # fmt: skip
            axes.plot(edge, edge, color=style.FAINT, lw=1)
            for at, group in enumerate(groups):
                mine = [i for i, row in enumerate(rows) if str(row.get("group", "")) == group]
                colour = style.CURVES[at % len(style.CURVES)]
                _whiskers(axes, [rows[i] for i in mine], m[mine] / divide, colour, divide)
                axes.scatter(m[mine] / divide, p[mine] / divide, s=42, color=colour, lw=0.8,
                             marker=style.MARKERS[at % len(style.MARKERS)], edgecolor=style.PAPER,
                             label=style.literal(group) or None, zorder=3)  # fmt: skip
            for i in _farthest(p, m, error, worst):
                if error[i] > BAND and rows[i].get("label"):
                    up = p[i] > m[i]
                    axes.annotate(style.paragraph(names[i], 0.45 * width, 8.5),
                                  (m[i] / divide, p[i] / divide), (-8 if up else 8, 0),
                                  textcoords="offset points", ha="right" if up else "left",
                                  va="center", fontsize=8.5, color=style.FAINT)  # fmt: skip
            axes.set_xlim(low, high)
            axes.set_ylim(low, high)
        axes.set_aspect("equal")
        axes.set_xlabel(f"measured, {unit}")
        axes.set_ylabel(f"predicted, {unit}")
        style.plain_log(axes.xaxis)
        style.plain_log(axes.yaxis)
        axes.set_title(style.paragraph(summary, width - 90), fontsize=9.5, weight="normal")
        handles, labels = axes.get_legend_handles_labels()
        style.above(figure, handles, labels, title)
    return figure


def _farthest(p: Any, m: Any, error: Any, most: int) -> list[int]:
    """Points that are farthest off, none so near another that their labels would meet."""
    span = np.log(max(p.max(), m.max()) / min(p.min(), m.min()) * 1.69)
    chosen: list[int] = []
    for at in np.argsort(-error):
        near = [abs(np.log(p[at] / p[i])) < 0.04 * span and abs(np.log(m[at] / m[i])) < 0.3 * span
                for i in chosen]  # fmt: skip
        if not any(near):
            chosen.append(int(at))
    return chosen[:most]


def _whiskers(axes: Any, rows: Sequence[Row], x: Any, colour: str, divide: float) -> None:
    for at, row in zip(x, rows, strict=True):
        if row.get("low") and row.get("high"):
            axes.vlines(at, row["low"] / divide, row["high"] / divide, color=colour, lw=1.2,
                        alpha=0.7)  # fmt: skip

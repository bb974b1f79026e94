"""What is worth choosing from: time, memory and device-hours, and the plans no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oracle.show.plot import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]


def unbeaten(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Rows of (plans, objectives) that no other row beats in one and equals in the rest.

    >>> unbeaten(np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0]])).tolist()
    [True, True, False, True]
    """
    found = np.ones(len(costs), bool)
    for at in range(len(costs)):
        others = costs[found]
        worse = (others <= costs[at]).all(axis=1) & (others < costs[at]).any(axis=1)
        found[at] = not worse.any()
    return found


def pareto(rows: Sequence[Row], title: str = "", names: int = 6) -> Figure:
    """Time of an iteration against memory; size and colour are device-hours, unbeaten ones ringed.

    Each row has `plan`, `devices`, `seconds`, `memory`, `capacity`, and `device_hours_per_epoch`
    where a data set says what an epoch is; device-seconds of an iteration are shown otherwise.
    """
    rows = [row for row in rows if row.get("status", "ok") == "ok"]
    seconds = np.array([row["seconds"] for row in rows], float)
    held = np.array([row["memory"] for row in rows], float)
    devices = np.array([row["devices"] for row in rows], float)
    hours = np.array([row.get("device_hours_per_epoch") or np.nan for row in rows], float)
    epochs = bool(len(rows)) and np.isfinite(hours).all()
    price = hours if epochs else devices * seconds
    label = "device-hours an epoch" if epochs else "device-seconds an iteration"
    # what lies within a thousandth is the same; a plan beaten by less is not called beaten
    costs = (
        np.round(np.log(np.stack([seconds, held, price], axis=1)), 3)
        if len(rows)
        else np.zeros((0, 3))
    )
    best = unbeaten(costs)
    divide, unit = style.scale(seconds if len(rows) else [0.0], "s")
    gigas, bytes_ = style.scale(held if len(rows) else [0.0], "B")
    alt = f"{len(rows)} plans by time, memory and {label}; {int(best.sum())} are unbeaten"
    with style.look():
        figure = style.canvas(10, 5.4, alt)
        axes = figure.subplots()
        axes.grid(visible=True, axis="both")
        axes.set_xscale("log")
        if len(rows):
            _points(figure, axes, seconds / divide, held / gigas, price, best, label)
            capacity = max(float(row["capacity"]) for row in rows) / gigas
            if capacity < 3 * held.max() / gigas:
                axes.axhline(capacity, color=style.INK, lw=1.4)
                axes.annotate("capacity of a device", (0.995, capacity), (0, 3), ha="right",
                              xycoords=("axes fraction", "data"), fontsize=9,
                              textcoords="offset points")  # fmt: skip
            front = sorted(np.flatnonzero(best), key=lambda i: seconds[i])
            called(axes, [rows[i] for i in front], seconds[front] / divide, held[front] / gigas,
                    names)  # fmt: skip
        axes.set_ylim(0, None)
        axes.set_xlabel(f"time of an iteration, {unit}")
        axes.set_ylabel(f"memory of a device, {bytes_}")
        style.plain_log(axes.xaxis)
        handles, labels = axes.get_legend_handles_labels()
        style.above(figure, handles, labels, title)
    return figure


def _points(figure: Any, axes: Any, x: Any, y: Any, price: Any, best: Any, label: str) -> None:
    from matplotlib.colors import LogNorm

    low, high = float(price.min()), float(price.max())
    norm = LogNorm(low, max(high, low * 1.01))
    size = 26 + 90 * (np.log(price / low) / max(np.log(max(high / low, 1.01)), 1e-9))
    order = np.argsort(-size)
    shown = axes.scatter(x[order], y[order], s=size[order], c=price[order], norm=norm,
                         cmap="cividis_r", alpha=0.85, lw=0)  # fmt: skip
    axes.scatter(x[best], y[best], s=size[best] + 46, facecolors="none", edgecolors=style.RED,
                 lw=1.6, label="unbeaten in all three")  # fmt: skip
    bar = figure.colorbar(shown, ax=axes, shrink=0.9, aspect=28, pad=0.02)
    bar.set_label(label)
    bar.outline.set_visible(False)
    style.plain_log(bar.ax.yaxis)


def called(axes: Any, rows: Sequence[Row], x: Any, y: Any, most: int) -> None:
    """Names of some unbeaten plans, spread over the front, in a list beside numbered points."""
    picked = sorted({round(i) for i in np.linspace(0, len(rows) - 1, min(most, len(rows)))})
    lines = []
    for number, at in enumerate(picked, 1):
        axes.annotate(str(number), (x[at], y[at]), (9, -3.5), textcoords="offset points",
                      fontsize=9.5, weight="bold", color=style.INK)  # fmt: skip
        plan = style.shorter(str(rows[at]["plan"]), 54)
        lines.append(f"{number}  {rows[at]['devices']:,}: {plan}")
    if lines:
        axes.annotate(
            "\n".join(lines),
            (0.0, -0.15),
            xycoords="axes fraction",
            va="top",
            fontsize=9,
            color=style.INK,
            linespacing=1.5,
            annotation_clip=False,
        )

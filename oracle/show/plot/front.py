"""What is worth choosing from: time, memory and device-hours, and the plans no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oracle.plan.names import short_names
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


def pareto(
    rows: Sequence[Row], title: str = "", names: int = 6, width: float = style.WIDE,
    key: bool = True,
) -> Figure:  # fmt: skip
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
        front = sorted(map(int, np.flatnonzero(best)), key=lambda i: seconds[i])
        chosen = chosen_of(rows, front, names)
        listed = listed_of(chosen) if key else []
        height = 500 + style.key_height(listed, width)
        figure = style.canvas(width, height, alt)
        axes = figure.subplots()
        axes.grid(visible=True, axis="both")
        axes.set_xscale("log")
        if len(rows):
            _points(figure, axes, seconds / divide, held / gigas, price, best, label,
                    width <= style.NARROW)  # fmt: skip
            capacity = max(float(row["capacity"]) for row in rows) / gigas
            if capacity < 3 * held.max() / gigas:
                axes.axhline(capacity, color=style.INK, lw=1.4)
                axes.annotate("capacity of a device", (0.995, capacity), (0, 3), ha="right",
                              xycoords=("axes fraction", "data"), fontsize=9,
                              textcoords="offset points")  # fmt: skip
        style.below(figure, [plan for _, plan in listed], [name for name, _ in listed])
        axes.set_ylim(0, None)
        numbers(axes, seconds / divide, held / gigas, [at for at, _, _ in chosen])
        axes.set_xlabel(f"time of an iteration, {unit}")
        axes.set_ylabel(f"memory of a device, {bytes_}")
        style.plain_log(axes.xaxis)
        handles, labels = axes.get_legend_handles_labels()
        style.above(figure, handles, labels, title)
    return figure


def _points(
    figure: Any, axes: Any, x: Any, y: Any, price: Any, best: Any, label: str, narrow: bool
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, LogNorm

    low, high = float(price.min()), float(price.max())
    norm = LogNorm(low, max(high, low * 1.01))
    size = 26 + 90 * (np.log(price / low) / max(np.log(max(high / low, 1.01)), 1e-9))
    order = np.argsort(-size)
    shades = style.STEPS[3:]  # the paler ones are lost on paper
    at = np.minimum((np.asarray(norm(price)) * len(shades)).astype(int), len(shades) - 1)
    axes.scatter(x[order], y[order], s=size[order], c=[shades[at[i]] for i in order],
                 edgecolors=style.GREY, lw=0.7)  # fmt: skip
    axes.scatter(x[best], y[best], s=size[best] + 46, facecolors="none", edgecolors=style.RED,
                 lw=1.6, label="unbeaten in all three")  # fmt: skip
    where = {"location": "bottom", "aspect": 34, "shrink": 1.0} if narrow else {
        "aspect": 28, "pad": 0.02, "shrink": 0.9}  # fmt: skip
    bar = figure.colorbar(ScalarMappable(norm, ListedColormap(shades)), ax=axes, **where)
    bar.set_label(label)
    bar.outline.set_visible(False)
    style.plain_log(bar.ax.xaxis if narrow else bar.ax.yaxis)


def chosen_of(rows: Sequence[Row], front: Sequence[int], most: int) -> list[tuple[int, str, str]]:
    """Some plans of the front, spread over it: the row, a short name, the full text."""
    spread = np.linspace(0, len(front) - 1, min(most, len(front)))
    picked = [front[at] for at in sorted({round(i) for i in spread})]
    plans = [str(rows[at]["plan"]) for at in picked]
    several = len({row["devices"] for row in rows}) > 1
    found = []
    for at, name, plan in zip(picked, short_names(plans), plans, strict=True):
        on = f" on {rows[at]['devices']:,}" if several else ""
        found.append((at, name + on, plan))
    return found


def listed_of(chosen: Sequence[tuple[int, str, str]]) -> list[tuple[str, str]]:
    """The same as a numbered key: the number and the name, the full text."""
    return [(f"{at}  {name}", plan if plan != name else "")
            for at, (_, name, plan) in enumerate(chosen, 1)]  # fmt: skip


def numbers(axes: Any, x: Any, y: Any, at: Sequence[int]) -> None:
    """Numbers at some points, from 1, each with its line in the key; those of near ones apart."""
    axes.get_xlim(), axes.get_ylim()  # which settle where points stand
    taken: list[Any] = []
    for called, index in enumerate(at, 1):
        here = axes.transData.transform((x[index], y[index]))
        spots = [(8.0, 4.0), (-18.0, 4.0), (8.0, -15.0), (-18.0, -15.0), (8.0, 18.0), (8.0, -29.0)]
        spot = next((one for one in spots if all(
            np.abs(here + one - other).max() > 13 for other in taken)), spots[0])  # fmt: skip
        taken.append(here + spot)
        axes.annotate(str(called), (x[index], y[index]), spot, textcoords="offset points",
                      fontsize=10, weight="bold", zorder=6,
                      bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.8,
                            "alpha": 0.8})  # fmt: skip

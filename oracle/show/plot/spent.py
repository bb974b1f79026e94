"""Time against money: plans on few and many devices, and those that no other beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.show.plot import style
from oracle.show.plot.front import chosen_of, listed_of, numbers, unbeaten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
FAR = 8.0  # times slower: nobody takes it, and the rest could not be told apart
STEPS = 1000  # iterations that are paid for, where nobody says what an epoch is


def within(rows: Sequence[Row]) -> list[Row]:
    """Plans that fit and are not `FAR` times slower than the fastest of as many devices."""
    rows = [row for row in rows if row["status"] == "ok"]
    least = {row["devices"]: row["seconds"] for row in
             sorted(rows, key=lambda row: row["seconds"], reverse=True)}  # fmt: skip
    return [row for row in rows if row["seconds"] <= FAR * least[row["devices"]]]


def spending(
    rows: Sequence[Row], title: str = "", names: int = 6, width: float = style.WIDE
) -> Figure:  # fmt: skip
    """Time of an epoch against what it costs, or of 1,000 iterations without a data set.

    Rows are those of `oracle.ask.spending.spent`. Without a price it costs device-hours.
    """
    rows = within(rows)
    epochs = bool(rows) and all(row.get("epoch_seconds") for row in rows)
    what = "an epoch" if epochs else f"{STEPS:,} iterations"
    time = np.array([row["epoch_seconds"] if epochs else STEPS * row["seconds"] for row in rows],
                    float)  # fmt: skip
    devices = np.array([row["devices"] for row in rows], int)
    priced = bool(rows) and all(row["usd_per_hour"] is not None for row in rows)
    price = np.array([row["usd_per_hour"] if priced else 1.0 for row in rows], float)
    paid, unit = devices * time * price / 3600, "USD" if priced else "device-hours"
    # what lies within a thousandth is the same; a plan beaten by less is not called beaten
    best = unbeaten(np.round(np.log(np.stack([time, paid], axis=1)), 3) if rows
                    else np.zeros((0, 2)))  # fmt: skip
    divide, scale = style.scale(time if rows else [0.0], "s")
    alt = (f"{len(rows)} plans by time and {unit} of {what}; {int(best.sum())} are beaten by no "
           "other in both")  # fmt: skip
    with style.look():
        front = sorted(map(int, np.flatnonzero(best)), key=lambda i: time[i])
        chosen = chosen_of(rows, front, names)
        listed = listed_of(chosen)
        figure = style.canvas(width, 500 + style.key_height(listed, width), alt)
        axes = figure.subplots()
        axes.grid(visible=True, axis="both")
        axes.set_xscale("log")
        axes.set_yscale("log")
        for at, count in enumerate(sorted(set(devices.tolist()))):
            mine = devices == count
            axes.scatter(time[mine] / divide, paid[mine], s=42, lw=0, alpha=0.8,
                         color=style.CURVES[at % len(style.CURVES)],
                         marker=style.MARKERS[at % len(style.MARKERS)],
                         label=f"{count:,} device{'s' * (count > 1)}")  # fmt: skip
        if rows:
            axes.scatter(time[best] / divide, paid[best], s=120, facecolors="none",
                         edgecolors=style.RED, lw=1.6, label="unbeaten in both")  # fmt: skip
            numbers(axes, time / divide, paid, [at for at, _, _ in chosen])
        style.below(figure, [plan for _, plan in listed], [name for name, _ in listed])
        axes.set_xlabel(f"time of {what}, {scale}")
        axes.set_ylabel(f"{unit} of {what}")
        for axis in (axes.xaxis, axes.yaxis):
            style.plain_log(axis)
        handles, labels = axes.get_legend_handles_labels()
        style.above(figure, handles, labels, title)
    return figure

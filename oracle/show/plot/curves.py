"""Scaling: time of an iteration and throughput from few devices to many, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.plan.names import short_names
from oracle.show.plot import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
TOLD = ("model", "system", "what_if", "way")
MOST = 9  # curves that can be told apart


def scaling(rows: Sequence[Row], title: str = "", width: float = style.WIDE) -> Figure:
    """Curves over the number of devices, one for each question that the rows differ in.

    Rows are those of a sweep. The band is the 90 % interval; a gap is a size that does not fit.
    """
    curves = curves_of(rows)
    good = [row for row in rows if row["status"] == "ok"]
    divide, unit = style.scale([row["seconds"] for row in good] or [0.0], "s")
    rate = (
        "tokens_per_second"
        if all(row.get("tokens_per_second") for row in good)
        else ("samples_per_second")
    )
    unit_of_rate = rate.replace("_", " ")
    alt = f"Time of an iteration and {unit_of_rate} against devices for {', '.join(curves)}"
    with style.look():
        narrow = width <= style.NARROW
        figure = style.canvas(width, 720 if narrow else 440, alt)
        left, right = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
        for at, (name, members) in enumerate(curves.items()):
            colour, marker = style.CURVES[at % MOST], style.MARKERS[at % MOST]
            x = np.array([row["devices"] for row in members], float)
            cells = {
                key: np.array([row[key] if row["status"] == "ok" else np.nan for row in members],
                              float)
                for key in ("seconds", "seconds_low", "seconds_high", rate)
            }  # fmt: skip
            mid, low, high = (cells[k] for k in ("seconds", "seconds_low", "seconds_high"))
            for panel, line, below, over in (
                (left, mid / divide, low / divide, high / divide),
                (right, cells[rate], cells[rate] * mid / high, cells[rate] * mid / low),
            ):
                panel.fill_between(
                    x, below, over, color=colour, alpha=0.16 if len(curves) < 4 else 0.09, lw=0
                )
                panel.plot(x, line, color=colour, marker=marker, mec=style.PAPER, mew=0.8,
                           label=name)  # fmt: skip
        for panel in (left, right):
            panel.set_yscale("log" if good else "linear")
            panel.grid(visible=True, which="major", axis="both")
            style.doubling(panel, [row["devices"] for row in rows])
        _ideal(right, good, rate)
        left.set_title(f"time of an iteration, {unit}")
        right.set_title(unit_of_rate)
        for panel in (left, right) if good else ():
            style.plain_log(panel.yaxis)
        _names(figure, left, right, title, narrow)
        style.below(figure, [plan for row in rows if (plan := _plan(row))])
    return figure


def _plan(row: Row) -> str:
    """The plan that a row asks for, where it is the same at every size."""
    plan = str(row["way"]).removeprefix("plan:")
    return plan if plan != row["way"] and "*" not in plan else ""


def curves_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by what tells them apart, each curve sorted by devices; batches only where they do."""
    from oracle.ask.sweep.row import label

    told = tuple(key for key in TOLD if len({row[key] for row in rows}) > 1)
    questions = [tuple(row[key] for key in (*TOLD, "devices")) for row in rows]
    batches = len(set(questions)) < len(questions)
    shares = {row["batch"] / row["devices"] for row in rows}
    totals = {row["batch"] for row in rows}
    found: dict[str, list[Row]] = {}
    plans = list(dict.fromkeys(filter(None, map(_plan, rows))))
    called = dict(zip(plans, short_names(plans), strict=True))
    for row in rows:
        name = label(row, told or ("way",))
        if plan := _plan(row):
            name = name.replace(plan, called[plan])
        if "what_if" in told and not row["what_if"]:
            name = f"{name} · as it is" if name else "as it is"
        if batches and len(shares) <= len(totals):
            name = f"{name} · {row['batch'] / row['devices']:g} a device"
        elif batches:
            name = f"{name} · batch {row['batch']:,}"
        found.setdefault(name.removeprefix(" · "), []).append(row)
    return {name: sorted(members, key=lambda row: row["devices"])
            for name, members in found.items()}  # fmt: skip


def _ideal(panel: Any, good: Sequence[Row], rate: str) -> None:
    """As many times the fastest start as there are devices."""
    if not good:
        return
    first = min(row["devices"] for row in good)
    best = max(r[rate] for r in good if r["devices"] == first)
    x = np.array([first, max(row["devices"] for row in good)], float)
    panel.plot(x, best * x / first, color=style.GREY, ls=(0, (4, 3)), lw=1.2, zorder=1)
    panel.annotate("linear", (x[-1], best * x[-1] / first), (-4, 5), textcoords="offset points",
                   ha="right", va="bottom", color=style.FAINT, fontsize=9)  # fmt: skip


def _names(figure: Any, left: Any, right: Any, title: str, narrow: bool) -> None:
    """Names at the ends of curves, or a legend where there is no room beside them."""
    handles, labels = right.get_legend_handles_labels()
    if len(labels) > 1 and narrow:
        style.above(figure, handles, labels, title)
        return
    style.above(figure, [], [], title)
    for panel in (left, right):
        ends = []
        for line in (line for line in panel.lines if line.get_label() in labels):
            x, y = (np.asarray(v, float) for v in line.get_data())
            last = np.flatnonzero(np.isfinite(y))[-1:]
            ends += [(float(x[i]), float(y[i]), line.get_label(), line.get_color()) for i in last]
        if narrow:
            panel.set_title(f"{panel.get_title(loc='left')} · {labels[0]}" if labels else "")
        else:
            style.at_ends(panel, ends, 340)

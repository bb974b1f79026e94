"""Where an iteration's time goes, strategy by strategy, predicted beside measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oracle.plan.names import short_names
from oracle.show.plot import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
STACK = ("computation", "waiting", "communication")


def bar(row: Row) -> dict[str, Any]:
    """A row of a sweep as a bar: what computes, what waits for a pipeline, what is exposed."""
    place = {
        "group": row["way"].removeprefix("each:").removeprefix("plan:"),
        "devices": row["devices"],
    }
    if row["status"] != "ok":
        return place
    return {
        **place,
        "computation": row["forward"] + row["backward"] + row["recompute"] + row["update"],
        "waiting": row["bubble"],
        "communication": row["exposed"],
        "low": row["seconds_low"],
        "high": row["seconds_high"],
    }


def breakdown(
    predicted: Sequence[Row], measured: Sequence[Row] = (), title: str = "", others: bool = False,
    width: float = style.WIDE,
) -> Figure:  # fmt: skip
    """Bars of computation and communication for each strategy and number of devices.

    Each row has `group`, `devices`, `computation`, `communication` in seconds, and may have
    `waiting`, `low` and `high`. Measured bars stand to the right of predicted ones, hatched.
    `others` gives strategies with bars of very different height an axis of their own.
    """
    groups = list(dict.fromkeys(str(row["group"]) for row in [*predicted, *measured]))
    counts = {g: sorted({int(r["devices"]) for r in [*predicted, *measured] if r["group"] == g})
              for g in groups}  # fmt: skip
    names = short_names(groups)
    tall = [sum(float(row.get(part) or 0) for part in STACK) for row in [*predicted, *measured]]
    divide, unit = style.scale(tall or [0.0], "s")
    with style.look():
        many = max(len(groups), 1)
        narrow = width <= style.NARROW
        figure = style.canvas(width, 100 + 190 * many if narrow else 440,
                              _words(predicted, measured, groups))  # fmt: skip
        spans = [max(len(counts[g]), 2) for g in groups] or [1]
        if narrow:
            axes = figure.subplots(many, 1, sharey=not others, squeeze=False)[:, 0]
        else:
            axes = figure.subplots(1, many, sharey=not others, width_ratios=spans,
                                   squeeze=False)[0]  # fmt: skip
        for at, (group, panel) in enumerate(zip(groups, axes, strict=False)):
            _panel(panel, group, counts[group], predicted, measured, divide)
            room = width - 60 if narrow else (width - 80) * spans[at] / sum(spans)
            panel.set_title(style.paragraph(names[at], room, 12), fontsize=11)
            if at and not others and not narrow:
                panel.spines["left"].set_visible(False)
        figure.supylabel(f"time of an iteration, {unit}", fontsize=10.5)
        for panel in axes[len(groups) :]:
            panel.set_visible(False)
        figure.supxlabel("devices", fontsize=10.5)
        _legend(figure, predicted, measured, title)
        style.below(figure, groups)
    return figure


def _panel(
    panel: Any, group: str, counts: list[int], predicted: Sequence[Row], measured: Sequence[Row],
    divide: float,
) -> None:  # fmt: skip
    width = 0.38 if measured else 0.62
    for rows, shift, plain in ((predicted, -0.5, True), (measured, 0.5, False)):
        for row in rows:
            if row["group"] != group:
                continue
            x = counts.index(int(row["devices"])) + (shift * (width + 0.04) if measured else 0)
            base = 0.0
            if "computation" not in row:
                panel.plot(x, 0.035, marker="x", color=style.FAINT, ms=6, mew=1.5,
                           transform=panel.get_xaxis_transform())  # fmt: skip
            for part in STACK:
                value = float(row.get(part) or 0.0) / divide
                if value <= 0:
                    continue
                colour, hatch = style.PARTS[part]
                look = style.filled(colour, hatch)
                if not plain:
                    look |= {"facecolor": style.paler(colour), "hatch": "//"}
                panel.bar(x, value, width, base, **look)
                base += value
            low, high = row.get("low"), row.get("high")
            if low and high and high > low * 1.001:
                panel.vlines(x, low / divide, high / divide, color=style.INK, lw=1.1)
    panel.set_xticks(range(len(counts)), [f"{c:,}" for c in counts],
                     rotation=0 if sum(len(f"{c:,}") for c in counts) < 34 else 45)  # fmt: skip
    panel.set_xlim(-0.6, max(len(counts), 2) - 0.4)


def _legend(figure: Any, predicted: Sequence[Row], measured: Sequence[Row], title: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[tuple[Any, str]] = []
    for part in STACK:
        if any(float(row.get(part) or 0) > 0 for row in [*predicted, *measured]):
            colour, hatch = style.PARTS[part]
            entries.append((Patch(**style.filled(colour, hatch)), part))
    if measured:
        entries.append((Patch(facecolor=style.FAINT), "predicted"))
        entries.append((Patch(facecolor=style.paler(style.FAINT), hatch="//",
                              edgecolor=style.PAPER), "measured"))  # fmt: skip
    if any(row.get("high") for row in predicted):
        entries.append((Line2D([], [], color=style.INK, lw=1.1, marker="|", ls="", ms=10),
                        "90 % interval"))  # fmt: skip
    if any("computation" not in row for row in predicted):
        entries.append((Line2D([], [], color=style.FAINT, marker="x", ls="", ms=7, mew=1.6),
                        "cannot run"))  # fmt: skip
    style.above(figure, [e[0] for e in entries], [e[1] for e in entries], title)


def _words(predicted: Sequence[Row], measured: Sequence[Row], groups: list[str]) -> str:
    counts = [int(row["devices"]) for row in [*predicted, *measured]] or [0]
    beside = ", predicted beside measured" if measured else ""
    return (f"Bars of computation and communication for {', '.join(groups)} on "
            f"{min(counts)} to {max(counts)} devices{beside}")  # fmt: skip

"""Memory over an iteration: what is allocated when, by kind, against what a device has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.predict.allocation import Timeline, timeline
from oracle.show.plot import style
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

COLUMNS = 1500  # of time that are drawn, each by its fullest moment
ORDER = ("reserve", "weights", "gradients", "optimizer", "buffers", "activations", "workspace")
NEAR = 0.55  # of a capacity, from where its line is in the picture


def alive(
    shown: Estimate, row: int = 0, title: str = "", width: float = style.WIDE,
    columns: int = COLUMNS,
) -> Figure:  # fmt: skip
    """Areas of bytes by kind over the seconds of an iteration, on the stage that needs most."""
    found, reserve = timeline(shown, row), float(shown.memory_kinds["reserve"][row])
    capacity = float(shown.capacity[row])
    seconds, levels = _columns(found, columns)
    levels = {"reserve": np.full(len(seconds), reserve), **levels}
    total = np.sum(list(levels.values()), axis=0)
    peak = float(found.total[found.peak]) + reserve
    at = float(found.seconds[found.peak])
    divide, unit = style.scale([max(peak, capacity if peak > NEAR * capacity else 0.0)], "B")
    wide, ticks = style.scale([found.end], "s")
    where = f"stage {found.stage} of {found.stages}" if found.stages > 1 else "a device"
    doing = found.during(found.peak)
    alt = (f"Memory of {where} over an iteration of {show(found.end, 's')}: at most "
           f"{show(peak, 'B')} of {show(capacity, 'B')}, during {doing}")  # fmt: skip
    with style.look():
        plans = shown.plans[row : row + 1] if title else ()
        figure = style.canvas(width, 500 + style.key_height(style.key_of(plans), width), alt)
        axes = figure.subplots()
        base, entries = np.zeros(len(seconds)), []
        for kind in ORDER:
            if kind not in levels or levels[kind].max() < 0.001 * peak:
                continue
            colour, hatch = style.KINDS[kind]
            top = base + levels[kind]
            turns = np.flatnonzero(
                (np.diff(base, prepend=-1) != 0) | (np.diff(top, prepend=-1) != 0)
            )
            turns = np.append(turns, len(top) - 1)
            entries.append((axes.fill_between(
                seconds[turns] / wide, base[turns] / divide, top[turns] / divide, step="post",
                facecolor=colour, hatch=hatch, edgecolor=style.PAPER, linewidth=0.0),
                kind))  # fmt: skip
            base = top
        axes.step(seconds / wide, total / divide, where="post", color=style.INK, lw=0.9)
        _limits(axes, peak, capacity, divide)
        axes.set_xlim(0, found.end / wide)
        late = at > 0.5 * found.end
        words = f"{show(peak, 'B')}, {doing}"
        below = NEAR * capacity < peak < capacity < 1.12 * peak  # its line would cross the words
        _mark(axes, (at / wide, peak / divide), style.paragraph(words, 0.55 * width), late, below)
        axes.set_xlabel(f"time in an iteration, {ticks}")
        axes.set_ylabel(f"bytes of {where}, {unit}")
        handles, labels = zip(*reversed(entries), strict=True)
        style.above(figure, list(handles), list(labels), title)
        style.below(figure, plans)
    return figure


def _columns(found: Timeline, many: int) -> tuple[Any, dict[str, Any]]:
    """Seconds of columns, and in each the kinds' bytes at its fullest moment.

    What comes and goes at once is never seen on an axis of time: the last of it counts, but for
    the most that there is in a column.
    """
    edges = np.linspace(0.0, max(found.end, 1e-30), many + 1)
    column = np.clip(np.searchsorted(edges, found.seconds, side="right") - 1, 0, many - 1)
    fullest = np.zeros(many, int)
    order = np.lexsort((found.total, column))
    last = np.flatnonzero(np.diff(column[order], append=many + 1))
    fullest[column[order[last]]] = order[last]
    seen = np.zeros(many, bool)
    seen[column] = True
    ends = np.zeros(many, int)  # the last event of each column, or of the one before
    ends[column] = np.arange(len(column))
    ends = np.maximum.accumulate(ends)
    pick = np.where(seen, fullest, ends)
    return edges[:-1], {kind: level[pick] for kind, level in found.levels.items()}


def _limits(axes: Any, peak: float, capacity: float, divide: float) -> None:
    """The line of what a device has, where it is near; else words that say how far it is."""
    axes.set_ylim(0, 1.16 * max(peak, capacity if peak > NEAR * capacity else 0.0) / divide)
    words = f"{show(capacity, 'B')} a device"
    if peak > NEAR * capacity:
        axes.axhline(capacity / divide, color=style.INK, lw=1.6)
        axes.annotate(words, (1.0, capacity / divide), (-4, 4), va="bottom", ha="right",
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      fontsize=9.5, weight="bold")  # fmt: skip
    else:
        axes.annotate(f"{words}: beyond the picture", (1.0, 1.0), (-4, -4), va="top", ha="right",
                      xycoords="axes fraction", textcoords="offset points", fontsize=9.5,
                      color=style.FAINT)  # fmt: skip


def _mark(axes: Any, at: tuple[float, float], words: str, late: bool, below: bool) -> None:
    axes.plot(*at, marker="o", ms=6, mfc=style.PAPER, mec=style.INK, mew=1.4, clip_on=False)
    axes.annotate(words, at, (-9 if late else 9, -9 if below else 7), textcoords="offset points",
                  ha="right" if late else "left", va="top" if below else "bottom", fontsize=9.5,
                  weight="bold",
                  bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 1.5,
                        "alpha": 0.85})  # fmt: skip

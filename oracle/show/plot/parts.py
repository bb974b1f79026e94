"""What an iteration of each plan is made of: passes, waiting, update, exposed exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oracle.show.plot import style
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

EXCHANGES = ((style.RED, ""), (style.ORANGE, ""), (style.PINK, ""), (style.YELLOW, ""),
             (style.GREEN, ""))  # fmt: skip


def parts(shown: Estimate, title: str = "") -> Figure:
    """Horizontal bars of seconds, one a plan, with the 90 % interval at their end."""
    stack = {name: (np.asarray(values, float), style.PARTS[name])
             for name, values in shown.compute.items()}  # fmt: skip
    names = dict.fromkeys(m["what"] for messages in shown.exchange for m in messages)
    exposed = {
        name: np.array([sum(m["exposed"] for m in messages if m["what"] == name)
                        for messages in shown.exchange], float)
        for name in names
    }  # fmt: skip
    ranked = sorted(exposed, key=lambda name: -float(exposed[name].sum()))
    for name, look in zip(ranked, EXCHANGES, strict=False):
        stack[name] = (exposed[name], look)
    rest = [exposed[name] for name in ranked[len(EXCHANGES) :]]
    if rest:
        stack["other exchanges"] = (np.sum(rest, axis=0), (style.GREEN, "////"))
    waits = [0.0 if one is None else one["exposed"] for one in shown.reading]
    stack["waiting for samples"] = (np.array(waits), style.PARTS["reading"])
    most = float(shown.seconds.max(initial=0.0))
    stack = {name: entry for name, entry in stack.items() if entry[0].max(initial=0) > 0.004 * most}
    divide, unit = style.scale([most], "s")
    alt = (f"Time of an iteration of {len(shown)} plans by part; the first takes "
           f"{show(float(shown.seconds[0]), 's')}" if len(shown) else "No plan")  # fmt: skip
    with style.look():
        figure = style.canvas(11, 1.7 + 0.42 * max(len(shown), 1), alt)
        axes = figure.subplots()
        y = np.arange(len(shown))[::-1]
        base, handles = np.zeros(len(shown)), []
        for values, (colour, hatch) in stack.values():
            handles.append(axes.barh(y, values / divide, 0.62, base, color=colour, hatch=hatch,
                                     edgecolor=style.PAPER, linewidth=0.8))  # fmt: skip
            base = base + values / divide
        high = shown.seconds_high / divide
        axes.hlines(y, shown.seconds_low / divide, high, color=style.INK, lw=1.1)
        for at, end, seconds in zip(y, np.maximum(high, base), shown.seconds, strict=True):
            axes.annotate(show(float(seconds), "s"), (end, at), (5, 0), fontsize=9,
                          textcoords="offset points", va="center")  # fmt: skip
        axes.set_yticks(y, [style.shorter(plan, 62) for plan in shown.plans])
        axes.set_ylim(-0.6, max(len(shown), 1) - 0.4)
        axes.set_xlim(0, float(np.max([*high, *base, 1e-9])) * 1.12)
        axes.set_xlabel(f"time of an iteration and its 90 % interval, {unit}")
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        style.above(figure, handles, list(stack), title)
    return figure

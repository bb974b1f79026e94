"""How long each partition of unlike devices is busy in an iteration, and how long it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oracle.show.plot import style
from oracle.spec.document import refusal
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate


def waits(shown: Estimate, row: int = 0, title: str = "") -> Figure:
    """Horizontal bars of seconds, one a partition: its busiest device at work, and waiting."""
    sides = shown.work[row].sides
    if len(sides) < 2:
        what = f"{shown.plans[row]} is not on several partitions"
        raise refusal("plot", what, "a system with `partitions:`, and a plan that spans them")
    slow = max(sides, key=lambda one: one.busy)
    parts = {"busy": ([one.busy for one in sides], style.PARTS["computation"]),
             "waits": ([one.waits for one in sides], style.PARTS["waiting"])}  # fmt: skip
    divide, unit = style.scale([float(shown.seconds[row])], "s")
    alt = (f"Of an iteration of {show(float(shown.seconds[row]), 's')}, {slow.name} is busy for "
           f"{show(slow.busy, 's')}, longest of {len(sides)} partitions")  # fmt: skip
    with style.look():
        figure = style.canvas(11, 1.7 + 0.5 * len(sides), alt)
        axes = figure.subplots()
        y, base, handles = np.arange(len(sides))[::-1], np.zeros(len(sides)), []
        for values, (colour, hatch) in parts.values():
            width = np.array(values) / divide
            handles.append(axes.barh(y, width, 0.62, base, color=colour, hatch=hatch,
                                     edgecolor=style.PAPER, linewidth=0.8))  # fmt: skip
            base = base + width
        for at, end, one in zip(y, base, sides, strict=True):
            axes.annotate(f"{show(one.busy, 's')} busy", (end, at), (5, 0), fontsize=9,
                          textcoords="offset points", va="center")  # fmt: skip
        axes.set_yticks(y, [f"{one.name}: {one.devices} × {one.samples:g}" for one in sides])
        axes.set_ylim(-0.6, len(sides) - 0.4)
        axes.set_xlim(0, float(base.max()) * 1.15)
        axes.set_xlabel(f"of an iteration, {unit}; devices × samples of a replica")
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        style.above(figure, handles, list(parts), title)
    return figure

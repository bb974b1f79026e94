"""Memory of plans, kind by kind, against what a device has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oracle.show.plot import style
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate


def memory(shown: Estimate, title: str = "") -> Figure:
    """Horizontal bars of bytes per device, one a plan, and the line of the device's capacity."""
    capacity = float(max(shown.capacity, default=0.0))
    divide, unit = style.scale([capacity], "B")
    kinds = {k: v for k, v in shown.memory_kinds.items() if np.any(v > 0.001 * capacity)}
    total = shown.memory
    alt = (
        f"Memory of {len(shown)} plans by kind against {show(capacity, 'B')} of a device; "
        f"the first needs {show(float(total[0]), 'B')}"
        if len(shown)
        else "No plan"
    )
    with style.look():
        figure = style.canvas(11, 1.7 + 0.42 * max(len(shown), 1), alt)
        axes = figure.subplots()
        y = np.arange(len(shown))[::-1]
        base = np.zeros(len(shown))
        handles = []
        for kind, values in kinds.items():
            colour, hatch = style.KINDS.get(kind, (style.PINK, "//"))
            handles.append(axes.barh(y, values / divide, 0.62, base, color=colour, hatch=hatch,
                                     edgecolor=style.PAPER, linewidth=0.8))  # fmt: skip
            base = base + values / divide
        right = max(capacity / divide, *base, 1e-9) if len(base) else capacity / divide
        axes.axvline(capacity / divide, color=style.INK, lw=1.6)
        axes.annotate(f"{show(capacity, 'B')} a device", (capacity / divide, 1.0), (0, 4),
                      xycoords=("data", "axes fraction"), textcoords="offset points", ha="center",
                      va="bottom", fontsize=9.5, weight="bold")  # fmt: skip
        for at, value in zip(y, total, strict=True):
            over = value > capacity
            words = show(value - capacity, "B") + " short" if over else show(value, "B")
            axes.annotate(
                words,
                (value / divide, at),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=style.RED if over else style.INK,
                bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 1.2},
            )
        axes.set_yticks(y, [style.shorter(plan, 62) for plan in shown.plans])
        axes.set_ylim(-0.6, max(len(shown), 1) - 0.4)
        axes.set_xlim(0, right * 1.16)
        axes.set_xlabel(f"bytes of a device at the worst moment, {unit}")
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        style.above(figure, handles, list(kinds), title)
    return figure

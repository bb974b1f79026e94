"""Memory of plans, kind by kind, against what a device has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oracle.plan.names import short_names
from oracle.show.plot import style
from oracle.show.rates import sure
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate


def memory(
    shown: Estimate, title: str = "", width: float = style.WIDE, key: bool = True
) -> Figure:  # fmt: skip
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
        plans = shown.plans if key else ()
        height = style.tall(len(shown), width, list(kinds), title, plans)
        figure = style.canvas(width, height, alt)
        axes = figure.subplots()
        y = np.arange(len(shown))[::-1]
        said = [_said(shown, row, float(shown.capacity[row])) for row in range(len(shown))]
        thick = style.bars(axes, y, short_names(shown.plans), said, width)
        base = np.zeros(len(shown))
        handles = []
        for kind, values in kinds.items():
            look = style.filled(*style.KINDS.get(kind, (style.PINK, "//")))
            handles.append(axes.barh(y, values / divide, thick, base, **look))
            base = base + values / divide
        right = max(capacity / divide, *base, 1e-9) if len(base) else capacity / divide
        axes.axvline(capacity / divide, color=style.INK, lw=1.6)
        axes.annotate(f"{show(capacity, 'B')} a device", (capacity / divide, 1.0), (2, 4),
                      xycoords=("data", "axes fraction"), textcoords="offset points", ha="right",
                      va="bottom", fontsize=9.5, weight="bold")  # fmt: skip
        axes.set_xlim(0, right * 1.01)
        axes.set_xlabel(f"bytes of a device at the worst moment, {unit}")
        style.above(figure, handles, list(kinds), title)
        style.below(figure, plans)
    return figure


def _said(shown: Estimate, row: int, capacity: float) -> str:
    """What is needed, and how surely it fits."""
    needed = float(shown.memory[row])
    words = show(needed, "B")
    if needed > capacity:
        return f"{words}, {show(needed - capacity, 'B')} short"
    return words if shown.options.ideal else f"{words}, fits with {sure(float(shown.fits[row]))}"

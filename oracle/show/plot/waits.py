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


def waits(
    shown: Estimate, row: int = 0, title: str = "", width: float = style.WIDE
) -> Figure:  # fmt: skip
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
        plans = shown.plans[row : row + 1] if title else ()
        height = style.tall(len(sides), width, list(parts), title, plans)
        figure = style.canvas(width, height, alt)
        axes = figure.subplots()
        y, base, handles = np.arange(len(sides))[::-1], np.zeros(len(sides)), []
        names = [f"{one.name}: {one.devices} × {one.samples:g}" for one in sides]
        said = [f"{show(one.busy, 's')} busy" for one in sides]
        thick = style.bars(axes, y, names, said, width)
        for values, look in parts.values():
            wide = np.array(values) / divide
            handles.append(axes.barh(y, wide, thick, base, **style.filled(*look)))
            base = base + wide
        axes.set_xlim(0, float(base.max()) * 1.01)
        axes.set_xlabel(
            style.paragraph(f"of an iteration, {unit}; devices × samples of a replica", width, 10.5)
        )
        style.above(figure, handles, list(parts), title)
        style.below(figure, plans)
    return figure

"""What an iteration of each plan is made of: passes, waiting, update, exposed exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oracle.models.shard import Array
from oracle.plan.names import short_names
from oracle.show.plot import style
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

EXCHANGES = ((style.RED, ""), (style.ORANGE, ""), (style.PINK, ""), (style.OLIVE, ""),
             (style.GREEN, ""))  # fmt: skip


def parts(
    shown: Estimate, title: str = "", width: float = style.WIDE, key: bool = True
) -> Figure:  # fmt: skip
    """Horizontal bars of seconds, one a plan, with the 90 % interval over their end."""
    stack = {name: (np.asarray(values, float), style.PARTS[name])
             for name, values in shown.compute.items()}  # fmt: skip
    exposed = _exposed(shown)
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
        plans = shown.plans if key else ()
        height = style.tall(len(shown), width, list(stack), title, plans)
        figure = style.canvas(width, height, alt)
        axes = figure.subplots()
        y = np.arange(len(shown))[::-1]
        said = [_said(shown, row) for row in range(len(shown))]
        thick = style.bars(axes, y, short_names(shown.plans), said, width)
        base, handles = np.zeros(len(shown)), []
        for values, look in stack.values():
            handles.append(axes.barh(y, values / divide, thick, base, **style.filled(*look)))
            base = base + values / divide
        high = shown.seconds_high / divide
        axes.hlines(y, shown.seconds_low / divide, high, color=style.PAPER, lw=3.2)
        axes.hlines(y, shown.seconds_low / divide, high, color=style.INK, lw=1.2)
        axes.set_xlim(0, float(np.max([*high, *base, 1e-9])) * 1.01)
        axes.set_xlabel(f"time of an iteration and its 90 % interval, {unit}")
        style.above(figure, handles, list(stack), title)
        style.below(figure, plans)
    return figure


def _exposed(shown: Estimate) -> dict[str, Array]:
    """Seconds that nothing hides: of each exchange, those of one strategy taken together."""
    names = dict.fromkeys(m["what"] for messages in shown.exchange for m in messages)
    axes = [name.partition(": ")[0] for name in names]
    found: dict[str, Array] = {}
    for name, axis in zip(names, axes, strict=True):
        called = name if axes.count(axis) == 1 else f"{axis}: {axes.count(axis)} exchanges"
        seconds = [sum(m["exposed"] for m in messages if m["what"] == name)
                   for messages in shown.exchange]  # fmt: skip
        found[called] = found.get(called, np.zeros(len(shown))) + np.array(seconds, float)
    return found


def _said(shown: Estimate, row: int) -> str:
    low, mid, high = (
        show(float(v[row]), "s") for v in (shown.seconds_low, shown.seconds, shown.seconds_high)
    )
    return mid if low == high else f"{mid} ({low} to {high})"

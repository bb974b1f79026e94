"""The extended roofline: layers and step under compute, memory, network and storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.ask.explain.roofline import Roofed
from oracle.ask.explain.roofline import roofline as worked_out
from oracle.show.plot import style
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

SHADES = {"compute": style.BLUE, "memory": style.GREEN, "network": style.RED,
          "storage": style.ORANGE}  # fmt: skip
FAR = 20  # times the peak: roofs above are not in the picture
BEYOND = ("network", "storage")


def roofline(
    shown: Estimate, row: int = 0, title: str = "", width: float = style.WIDE
) -> Figure:  # fmt: skip
    """FLOP a byte of memory to the right, FLOP a second upwards; layers as large as their time."""
    found = worked_out(shown, row)
    points = [one for one in found.each if one.amounts["compute"] and one.seconds]
    step = found.step
    alt = (f"{step.binds} binds the step: {step.share:.0%} of that roof, "
           f"{show(step.attained, 'FLOP/s')} a device")  # fmt: skip
    with style.look():
        figure = style.canvas(width, 560, alt)
        axes = figure.subplots()
        x = np.array([one.intensity("memory") or 1.0 for one in (step, *points)])
        span = np.array([min(x.min(), found.peak / found.bandwidth) / 3,
                         max(x.max(), found.peak / found.bandwidth) * 3])  # fmt: skip
        ridge = np.array([span[0], found.peak / found.bandwidth, span[1]])
        axes.plot(ridge, np.minimum(found.peak, ridge * found.bandwidth), color=style.INK)
        levels = {roof: step.amounts["compute"] / step.roofs[roof] for roof in BEYOND
                  if step.roofs[roof]}  # fmt: skip
        near = {roof: level for roof, level in levels.items() if level < FAR * found.peak}
        for roof, level in near.items():
            _ceiling(axes, roof, level, span)
        _points(axes, points)
        axes.plot([x[0]], [step.attained], marker="*", markersize=17, color=SHADES[step.binds],
                  mec=style.INK, mew=0.8, lw=0)  # fmt: skip
        axes.annotate("step", (x[0], step.attained), xytext=(9, -12), textcoords="offset points")
        axes.text(span[1], found.peak * 1.06, f"peak {show(found.peak, 'FLOP/s')}", ha="right")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(*span)
        heights = [found.peak, step.attained, *near.values(), *(one.attained for one in points)]
        axes.set_ylim(min(heights) / 2, max(heights) * 2)
        axes.grid(visible=True, which="major", axis="both")
        axes.set_xlabel(f"FLOP a byte of memory ({show(found.bandwidth, 'B/s')})")
        axes.set_ylabel("of one device")
        style.plain_log(axes.xaxis)
        style.plain_log(axes.yaxis)
        axes.yaxis.set_major_formatter(lambda value, _: show(value, "FLOP/s"))
        names, marks = _legend({one.binds for one in points} | {step.binds})
        style.above(figure, marks, names, title)
    return figure


def _points(axes: Any, points: list[Roofed]) -> None:
    longest = max((one.seconds for one in points), default=1.0)
    for one in points:
        axes.scatter(
            [one.intensity("memory")], [one.attained], s=12 + 260 * one.seconds / longest,
            color=SHADES[one.binds], alpha=0.55, edgecolors=style.PAPER, linewidths=0.6,
        )  # fmt: skip


def _ceiling(axes: Any, roof: str, level: float, span: Any) -> None:
    """Where the whole step would be if that roof alone were in its way."""
    axes.plot(span, [level, level], color=SHADES[roof], linestyle="--", linewidth=1.4)
    axes.text(span[0] * 1.05, level * 1.06, f"the step's {roof}", color=SHADES[roof])


def _legend(binding: set[str]) -> tuple[list[str], list[Any]]:
    from matplotlib.lines import Line2D

    names = [f"bound by {roof}" for roof in SHADES if roof in binding]
    marks = [Line2D([], [], marker="o", lw=0, color=SHADES[roof]) for roof in SHADES
             if roof in binding]  # fmt: skip
    return names, marks

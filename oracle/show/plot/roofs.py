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
NAMED = 6  # places of layers that have names


def roofline(
    shown: Estimate, row: int = 0, title: str = "", width: float = style.WIDE
) -> Figure:  # fmt: skip
    """FLOP a byte of memory to the right, FLOP a second upwards; layers as large as their time.

    The layers that take longest have their name beside them.
    """
    found = worked_out(shown, row)
    points = [one for one in found.each if one.amounts["compute"] and one.seconds]
    step = found.step
    alt = (f"{step.binds} binds the step: {step.share:.0%} of that roof, "
           f"{show(step.attained, 'FLOP/s')} a device")  # fmt: skip
    with style.look():
        plans = shown.plans[row : row + 1] if title else ()
        figure = style.canvas(width, 560 + style.key_height(style.key_of(plans), width), alt)
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
        axes.annotate(f"peak {show(found.peak, 'FLOP/s')}", (span[1], found.peak), (0, 4),
                      textcoords="offset points", ha="right")  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(*span)
        heights = [found.peak, step.attained, *near.values(), *(one.attained for one in points)]
        axes.set_ylim(min(heights) / 2, max(heights) * 2)
        _names(axes, points, width)
        axes.grid(visible=True, which="major", axis="both")
        axes.set_xlabel(f"FLOP a byte of memory ({show(found.bandwidth, 'B/s')})")
        axes.set_ylabel("FLOP a second of one device")
        style.plain_log(axes.xaxis)
        style.plain_log(axes.yaxis)
        axes.yaxis.set_major_formatter(lambda value, _: show(value, "FLOP/s"))
        names, marks = _legend({one.binds for one in points} | {step.binds})
        lines, roofs = axes.get_legend_handles_labels()
        style.above(figure, marks + lines, names + roofs, title)
        style.below(figure, plans)
    return figure


def _points(axes: Any, points: list[Roofed]) -> None:
    longest = max((one.seconds for one in points), default=1.0)
    for one in points:
        axes.scatter(
            [one.intensity("memory")], [one.attained], s=12 + 260 * one.seconds / longest,
            color=SHADES[one.binds], alpha=0.55, edgecolors=style.PAPER, linewidths=0.6,
        )  # fmt: skip


def _names(axes: Any, points: list[Roofed], width: float) -> None:
    """Names of the longest layers, those at one place together; none that several places share.

    A name stands above its point, or below it where it would meet another, or nowhere.
    """
    places: dict[tuple[float, float], list[Roofed]] = {}
    spots: dict[tuple[float, float], tuple[float, float]] = {}
    for one in points:
        if (flop_a_byte := one.intensity("memory")) is not None:
            x, y = np.round(np.log([flop_a_byte, one.attained]), 1).tolist()
            places.setdefault((x, y), []).append(one)
            spots.setdefault((x, y), (flop_a_byte, one.attained))
    every = [name for found in places.values() for name in {one.name for one in found}]
    ranked = sorted(places, key=lambda place: -sum(one.seconds for one in places[place]))
    low, high = np.log([axes.get_xlim(), axes.get_ylim()]).T
    size = np.array([0.85 * width, 440.0])  # pixels of the axes
    taken: list[tuple[float, float, float]] = []
    for place in ranked[:NAMED]:
        names = list(dict.fromkeys(one.name for one in places[place]))
        if any(every.count(name) > 1 for name in names):
            continue
        words, at = ", ".join(names), spots[place]
        x, y = (np.log(at) - low) / (high - low) * size
        half = 0.5 * 8.5 * style.LETTER / 0.75 * len(words) + 2
        for up in (11, -19):
            box = x, y + up, half
            if all(abs(x - u) > half + h or abs(box[1] - v) > 13 for u, v, h in taken):
                taken.append(box)
                axes.annotate(style.literal(words), at, (0, up), textcoords="offset points",
                              ha="center", fontsize=8.5, color=style.FAINT)  # fmt: skip
                break


def _ceiling(axes: Any, roof: str, level: float, span: Any) -> None:
    """Where the whole step would be if that roof alone were in its way."""
    axes.plot(span, [level, level], color=SHADES[roof], linestyle="--", linewidth=1.4,
              label=f"roof of the step's {roof}")  # fmt: skip


def _legend(binding: set[str]) -> tuple[list[str], list[Any]]:
    from matplotlib.lines import Line2D

    names = [f"bound by {roof}" for roof in SHADES if roof in binding]
    marks = [Line2D([], [], marker="o", lw=0, color=SHADES[roof]) for roof in SHADES
             if roof in binding]  # fmt: skip
    return names, marks

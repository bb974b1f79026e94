"""An iteration in time: two streams a stage, computation and exchanges, from the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oracle.plan.player import Span
from oracle.predict.trace import Trace, trace
from oracle.show.plot import style
from oracle.show.plot.paths import boxes as put
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

SHADES = {
    "forward": style.BLUE, "backward": style.SKY, "input": style.SKY, "weight": style.GREEN,
}  # fmt: skip
COMPUTES, SENDS = (-0.44, 0.54), (0.14, 0.24)  # of a stage's lane: where a stream is, how high
LEAST = 12  # pixels of a pass; where more of them are to be seen the middle is left out
NUMBER = 16  # pixels of a pass that can carry its number
Box = tuple[float, float, float, float]


def timeline(
    shown: Estimate, row: int = 0, title: str = "", width: float = style.WIDE
) -> Figure:  # fmt: skip
    """Stages downwards, time to the right; in each stage its passes, below them what it sends.

    Under a title stands the key too: the plan in full.
    """
    found = trace(shown.work[row])
    windows = _windows(found, width)
    divide, unit = style.scale([found.end], "s")
    alt = (f"{found.stages} stages, {found.micro_batches} micro-batches, "
           f"{show(float(shown.seconds[row]), 's')} an iteration; stages wait "
           f"{found.waiting:.0%} of the time of the passes")  # fmt: skip
    with style.look():
        lane = max(12.0, min(40.0, 640 / found.stages))
        plans = shown.plans[row : row + 1] if title else ()
        foot = style.key_height(style.key_of(plans), width)
        figure = style.canvas(width, 170 + foot + lane * (found.stages + (found.stages == 1)), alt)
        spans = [end - start for start, end in windows]
        panels = figure.subplots(1, len(windows), sharey=True, width_ratios=spans, squeeze=False)[0]
        numbered = False
        for axes, (start, end) in zip(panels, windows, strict=True):
            here = [span for span in found.spans if span.end > start and span.start < end]
            axes.set_xlim(start / divide, end / divide)
            scale = divide * width * 0.86 / sum(spans)  # pixels of a unit of the axis
            _draw(axes, found, here, divide, scale)
            _step(axes, found, divide)
            numbered |= _numbers(axes, found, here, divide, scale, lane)
            axes.grid(visible=False)
            axes.spines["left"].set_visible(False)
            axes.set_xlabel(f"time, {unit}")
        _stages(panels[0], found.stages)
        entries = _entries(found, bool(shown.compute["recompute"][row] > 0), numbered)
        if len(windows) > 1:
            entries.append(_left_out(windows[1][0] - windows[0][1]))
        style.above(figure, [e[0] for e in entries], [e[1] for e in entries], title)
        style.below(figure, plans)
    return figure


def _windows(found: Trace, width: float) -> list[tuple[float, float]]:
    """The whole iteration, or its begin and its end where there are too many passes to see."""
    each = len(found.spans) / found.stages
    room = width * 0.86 / LEAST
    if each <= room:
        return [(0.0, found.end * 1.002)]
    part = found.end * room / each / 2
    return [(0.0, part), (found.end - part, found.end * 1.0005)]


def _stages(axes: Any, stages: int) -> None:
    axes.set_ylim(stages - 0.45, -0.55)
    if stages == 1:
        axes.set_yticks([sum(COMPUTES) - 0.27, SENDS[0] + 0.12], ["computes", "sends"])
        return
    ticks = list(range(stages))[:: max(1, stages // 12) if stages > 24 else 1]
    axes.set_yticks(ticks, [f"stage {i}" for i in ticks])


def _entries(found: Trace, recomputes: bool, numbered: bool) -> list[tuple[Any, str]]:
    from matplotlib.patches import Patch

    again = ", with recomputation" if recomputes else ""
    kinds = {span.turn.kind for span in found.spans}
    sent = [one for stages in found.sent.values() for each in stages for one in each]
    entries: list[tuple[Any, str]] = [(Patch(facecolor=style.BLUE), "forward")]
    if "backward" in kinds or "input" in kinds:
        back = "backward" if "backward" in kinds else "gradient of the input"
        entries.append((Patch(facecolor=style.SKY), back + again))
    if "weight" in kinds:
        entries.append((Patch(facecolor=style.GREEN), "gradient of the weights"))
    entries.append((Patch(facecolor=style.GREY), "update"))
    if any(one.exposed > 1e-4 * one.seconds for one in sent):
        entries.append((Patch(facecolor=style.RED), "exchange that all wait for"))
    if any(one.seconds - one.exposed > 1e-4 * one.seconds for one in sent):
        entries.append((Patch(facecolor=style.ORANGE), "exchange beside computation"))
    if found.stages > 1:
        waits = f"bubble, {found.waiting:.0%} of the passes"
        entries.append((Patch(**style.filled(style.PALE)), waits))
    if numbered:
        from matplotlib.lines import Line2D

        entries.append((Line2D([], [], lw=0, marker="$1$", color=style.INK), "micro-batch"))
    return entries


def _left_out(gap: float) -> tuple[Any, str]:
    from matplotlib.lines import Line2D

    mark = Line2D([], [], lw=0, marker=r"$\cdots$", markersize=9, color=style.FAINT)
    return mark, f"{show(gap, 's')} of the same, left out"


def _draw(axes: Any, found: Trace, here: Sequence[Span], divide: float, scale: float) -> None:
    """Passes and what is sent in each: in time with them, or after them where all wait for it."""
    line = {"edgecolor": style.PAPER, "linewidth": 0.5}
    done = float(found.done.max())
    lanes = [(found.late / divide, stage + COMPUTES[0], (done - found.late) / divide, COMPUTES[1])
             for stage in range(found.stages)]  # fmt: skip
    put(axes, lanes, **style.filled(style.PALE) | {"linewidth": 0.4})
    passes: dict[tuple[str, int], list[Box]] = {}
    sent: dict[str, list[Box]] = {style.ORANGE: [], style.RED: []}
    for stage, turn, start, end in ((s.stage, s.turn, s.start, s.end) for s in here):
        busy = float(found.computed[turn.kind][stage]) / found.chunks
        box = start / divide, stage + COMPUTES[0], busy / divide, COMPUTES[1]
        passes.setdefault((turn.kind, turn.chunk), []).append(box)
        kept = sum(one.seconds - one.exposed for one in found.sent[turn.kind][stage])
        hidden = min(kept / found.chunks, busy)
        for colour, at, long in ((style.ORANGE, start + busy - hidden, hidden),
                                 (style.RED, start + busy, end - start - busy)):  # fmt: skip
            if long * scale / divide > 0.05:
                sent[colour].append((at / divide, stage + SENDS[0], long / divide, SENDS[1]))
    for (kind, chunk), boxes in passes.items():
        put(axes, boxes, facecolor=SHADES[kind], alpha=1.0 - 0.35 * chunk / found.chunks,
                    **line)  # fmt: skip
    for colour, boxes in sent.items():
        put(axes, boxes, facecolor=colour)


def _numbers(
    axes: Any, found: Trace, here: Sequence[Span], divide: float, scale: float, lane: float
) -> bool:
    """The micro-batch of each pass that is wide enough; whether there is any."""
    if lane * COMPUTES[1] < 10 or found.micro_batches < 2:
        return False
    low, high = axes.get_xlim()
    some = False
    for span in here:
        middle = (span.start + float(found.computed[span.turn.kind][span.stage])
                  / found.chunks / 2) / divide  # fmt: skip
        if (span.end - span.start) / divide * scale > NUMBER and low < middle < high:
            ink = style.PAPER if span.turn.kind != "backward" else style.INK
            height = span.stage + COMPUTES[0] + COMPUTES[1] / 2
            axes.text(middle, height, str(span.turn.micro + 1), ha="center", va="center",
                      fontsize=7.5, color=ink, clip_on=True)  # fmt: skip
            some = True
    return some


def _step(axes: Any, found: Trace, divide: float) -> None:
    """Exchanges of the whole iteration: beside the last passes, or after them; then the update."""
    for stage in range(found.stages):
        at = hidden_end = float(found.done[stage])
        for one in sorted(found.sent["step"][stage], key=lambda one: one.seconds - one.exposed,
                          reverse=True):  # fmt: skip
            hidden = max(one.seconds - one.exposed, 0.0)
            start = max(hidden_end - hidden, 0.0)
            for colour, begin, long in ((style.ORANGE, start, hidden_end - start),
                                        (style.RED, at, one.exposed)):  # fmt: skip
                if long > 0:
                    put(axes, [(begin / divide, stage + SENDS[0], long / divide, SENDS[1])],
                                facecolor=colour)  # fmt: skip
            hidden_end, at = start, at + one.exposed
        put(axes, [(at / divide, stage + COMPUTES[0],
                            float(found.update[stage]) / divide, COMPUTES[1])],
                    facecolor=style.GREY)  # fmt: skip

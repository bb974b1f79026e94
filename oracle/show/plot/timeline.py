"""An iteration in time: what each stage of a pipeline does when, played from the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oracle.predict.trace import Trace, trace
from oracle.show.plot import style
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

WAIT = "#ececee"
NUMBERED = 340  # boxes that can carry the number of their micro-batch
EDGED = 250  # boxes of a stage between which a line still leaves something to see
SHADES = {
    "forward": style.BLUE, "backward": style.SKY, "input": style.SKY, "weight": style.GREEN,
}  # fmt: skip


def timeline(shown: Estimate, row: int = 0, title: str = "") -> Figure:
    """Stages downwards, time to the right: passes, exposed exchanges, what waits, the update."""
    found = trace(shown.work[row])
    p, done = found.stages, float(found.done.max())
    after = max(sum(one.exposed for one in each) for each in found.sent["step"])
    end = max(found.end, done + after)
    divide, unit = style.scale([end], "s")
    alt = (f"{p} stages, {found.micro_batches} micro-batches, "
           f"{show(float(shown.seconds[row]), 's')} an iteration; stages wait "
           f"{found.waiting:.0%} of the time of the passes")  # fmt: skip
    with style.look():
        figure = style.canvas(12.5, min(2.0 + 0.42 * (p + 1), 9), alt)
        axes = figure.subplots()
        for stage in range(p):
            axes.broken_barh([(0, (done + after) / divide)], (stage - 0.4, 0.8), facecolor=WAIT)
        _draw(axes, found, divide)
        _tail(axes, found, done, divide)
        axes.set_xlim(0, end / divide * 1.002)
        _label(axes, found)
        axes.set_xlabel(f"time, {unit}")
        entries = _entries(found, bool(shown.compute["recompute"][row] > 0))
        style.above(figure, [e[0] for e in entries], [e[1] for e in entries], title)
    return figure


def _label(axes: Any, found: Trace) -> None:
    p, network = found.stages, any(found.sent["step"])
    axes.set_ylim(p + network - 0.45, -0.55)
    ticks = list(range(p))[:: max(1, p // 12) if p > 24 else 1]
    labels = [f"stage {i}" if p > 1 else "device" for i in ticks]
    if network:
        ticks, labels = [*ticks, p], [*labels, "network"]
    axes.set_yticks(ticks, labels)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)


def _entries(found: Trace, recomputes: bool) -> list[tuple[Any, str]]:
    from matplotlib.patches import Patch

    again = ", with recomputation" if recomputes else ""
    split = any(span.turn.kind == "weight" for span in found.spans)
    whole = any(span.turn.kind == "backward" for span in found.spans)
    back = "backward" if whole else "gradient of the input"
    entries = [
        (Patch(facecolor=style.BLUE), "forward"),
        (Patch(facecolor=style.SKY), back + again),
        *([(Patch(facecolor=style.GREEN), "gradient of the weights")] if split else []),
        (Patch(facecolor=style.RED), "exchange that nothing hides"),
        (Patch(facecolor=style.ORANGE), "hidden exchange"),
        (Patch(facecolor=style.GREY), "update"),
    ]  # fmt: skip
    if found.stages > 1:
        entries.append((Patch(facecolor=WAIT), f"waiting, {found.waiting:.0%} of the passes"))
    return entries


def _draw(axes: Any, found: Trace, divide: float) -> None:
    """Passes, with what of them is exchange that nothing hides."""
    chunks, edges = found.chunks, len(found.spans) <= EDGED * found.stages
    line = {"edgecolor": style.PAPER, "linewidth": 0.5 if edges else 0.0}
    for kind, shade in SHADES.items():
        for chunk in range(chunks):
            for stage in range(found.stages):
                box = stage, chunk, kind
                mine = [span for span in found.spans
                        if (span.stage, span.turn.chunk, span.turn.kind) == box]  # fmt: skip
                width = float(found.computed[kind][stage]) / chunks
                waits = float(found.passes[kind][stage]) / chunks - width
                at = [(span.start / divide, width / divide) for span in mine]
                axes.broken_barh(at, (stage - 0.4, 0.8), facecolor=shade,
                                 alpha=1.0 - 0.45 * chunk / chunks, **line)  # fmt: skip
                if waits > 0:
                    late = [(start + wide, waits / divide) for start, wide in at]
                    axes.broken_barh(late, (stage - 0.4, 0.8), facecolor=style.RED, **line)
    if 2 < len(found.spans) <= NUMBERED:
        least = float(found.done.max()) / 90
        for span in found.spans:
            if span.end - span.start > least:
                ink = style.PAPER if span.turn.kind == "forward" else style.INK
                axes.text((span.start + span.end) / 2 / divide, span.stage,
                          str(span.turn.micro + 1), ha="center", va="center", fontsize=7.5,
                          color=ink)  # fmt: skip


def _tail(axes: Any, found: Trace, done: float, divide: float) -> None:
    """Exchanges of the whole iteration on a lane of their own, then each stage's update."""
    p = found.stages
    slowest = max(found.sent["step"], key=lambda each: sum(one.exposed for one in each))
    at, hidden_end = done, done
    for one in sorted(slowest, key=lambda one: one.seconds - one.exposed, reverse=True):
        hidden = max(one.seconds - one.exposed, 0.0)
        start = max(hidden_end - hidden, 0.0)
        axes.broken_barh([(start / divide, hidden / divide)], (p - 0.4, 0.8),
                         facecolor=style.ORANGE)  # fmt: skip
        axes.broken_barh([(at / divide, one.exposed / divide)], (p - 0.4, 0.8),
                         facecolor=style.RED)  # fmt: skip
        hidden_end, at = start, at + one.exposed
    for stage in range(p):
        begin = float(found.done[stage]) + sum(one.exposed for one in found.sent["step"][stage])
        axes.broken_barh([(begin / divide, float(found.update[stage]) / divide)],
                         (stage - 0.4, 0.8), facecolor=style.GREY)  # fmt: skip

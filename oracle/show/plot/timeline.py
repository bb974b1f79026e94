"""An iteration in time: what each stage of a pipeline does when, replayed from the prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oracle.show.plot import style
from oracle.spec.units import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

WAIT = "#ececee"
NUMBERED = 340  # boxes that can carry the number of their micro-batch


@dataclass(frozen=True, slots=True)
class Box:
    """One pass of one micro-batch over one chunk of a stage."""

    stage: int
    chunk: int
    micro: int
    back: bool
    start: float
    end: float


def order(p: int, v: int, stage: int, pieces: int, gpipe: bool) -> Iterator[tuple[int, int, bool]]:
    """(chunk, micro-batch, whether backward) in the order one stage works them off.

    1F1B and its interleaved form as in [narayanan2021, §2.2]; gpipe runs all forward first.
    """
    total = pieces * v

    def at(k: int, back: bool) -> tuple[int, int, bool]:
        group, within = divmod(k, p * v) if v > 1 else (0, k)
        chunk, micro = divmod(within, p) if v > 1 else (0, within)
        return (v - 1 - chunk if back else chunk, group * p + micro, back)

    ahead = (
        total
        if gpipe
        else min(total, 2 * (p - stage - 1) + (v - 1) * p if v > 1 else p - stage - 1)
    )
    yield from (at(k, False) for k in range(ahead))
    for k in range(ahead, total):
        yield at(k, False)
        yield at(k - ahead, True)
    yield from (at(k, True) for k in range(total - ahead, total))


def replay(
    forward: NDArray[np.float64], backward: NDArray[np.float64], pieces: int, chunks: int = 1,
    gpipe: bool = False, crossing: float = 0.0,
) -> list[Box]:  # fmt: skip
    """Every pass with its start and end; seconds are of a stage and micro-batch, all chunks."""
    p, v = len(forward), chunks
    todo = [list(order(p, v, stage, pieces, gpipe)) for stage in range(p)]
    at, free = [0] * p, [0.0] * p
    done: dict[tuple[int, int, bool], float] = {}
    boxes: list[Box] = []
    last = p * v - 1
    moved = True
    while moved:
        moved = False
        for stage in range(p):
            while at[stage] < len(todo[stage]):
                chunk, micro, back = todo[stage][at[stage]]
                place = chunk * p + stage
                if back:
                    before = (place, micro, False) if place == last else (place + 1, micro, True)
                else:
                    before = (place - 1, micro, False)
                if (back or place > 0) and before not in done:
                    break
                ready = done.get(before, 0.0)
                ready += crossing if before[0] != place and place + back > 0 else 0.0
                start = max(free[stage], ready)
                end = start + float((backward if back else forward)[stage]) / v
                boxes.append(Box(stage, chunk, micro, back, start, end))
                done[(place, micro, back)] = free[stage] = end
                at[stage] += 1
                moved = True
    if any(at[stage] < len(todo[stage]) for stage in range(p)):
        raise ValueError(f"a pipeline of {p} stages cannot run {pieces} micro-batches so")
    return boxes


@dataclass(frozen=True)
class Passes:
    """Seconds of each stage and micro-batch; what is exposed of the exchanges in them."""

    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    talk_forward: NDArray[np.float64]
    talk_backward: NDArray[np.float64]
    pieces: int
    chunks: int
    gpipe: bool
    crossing: float
    update: float
    step: list[tuple[str, float, float]]  # (what, seconds, of that exposed) once an iteration


def passes_of(shown: Estimate, row: int = 0) -> Passes:
    """The passes of a prediction, stage by stage, in proportion to what each stage computes."""
    from oracle.kernels.rows import passes
    from oracle.plan.plan import parse
    from oracle.plan.stages import Stages
    from oracle.predict.evaluate import split

    plan = parse(shown.plans[row], float(shown.batch[row]))
    shard = split(shown.model, plan, shown.options)
    times = passes(shard, shown.system.device, shown.options.precision, shown.options.profile)
    pipeline = plan.axis("pipeline")
    p, v = int(pipeline.degree[0, 0]), int(pipeline.interleave[0, 0])
    stages = Stages(
        shown.model, p, v, not pipeline.cuts[0, 0], times.forward + times.data + times.weight
    )
    f, b = stages.total(times.forward)[0], stages.total(times.data + times.weight)[0]
    pieces = max(1, round(float(np.ravel(shard.segments)[0])))
    pace = min(int(shown.pace[row]), p - 1)
    part = {name: float(shown.compute[name][row]) for name in shown.compute}
    f = f * part["forward"] / pieces / f[pace]
    b = b * (part["backward"] + part["recompute"]) / pieces / b[pace]
    when = {f"{axis.name}: {message.what}": message.when
            for axis in plan.axes for message in axis.talk(shard)}  # fmt: skip
    talk = {"forward": 0.0, "backward": 0.0}
    step, crossing = [], 0.0
    for message in shown.exchange[row]:
        kind = when.get(message["what"], "step").removeprefix("unit ")
        if kind in talk:
            talk[kind] += message["exposed"] / pieces
        elif kind == "border":
            crossing = message["seconds"] / max(message["calls"], 1)
        else:
            step.append((message["what"], message["seconds"], message["exposed"]))
    return Passes(
        f, b, talk["forward"] * f / f[pace], talk["backward"] * b / b[pace], pieces, v,
        bool(pipeline.schedule[0, 0] == 0 and v == 1), crossing, part["update"], step,
    )  # fmt: skip


def timeline(shown: Estimate, row: int = 0, title: str = "") -> Figure:
    """Stages downwards, time to the right: passes, exposed exchanges, what waits, the update."""
    from matplotlib.patches import Patch

    what = passes_of(shown, row)
    f, b = what.forward + what.talk_forward, what.backward + what.talk_backward
    boxes = replay(f, b, what.pieces, what.chunks, what.gpipe, what.crossing)
    busy = max(box.end for box in boxes)
    after = sum(exposed for _, _, exposed in what.step)
    end = busy + after + what.update
    divide, unit = style.scale([end], "s")
    p = len(f)
    waits = 1 - float((f + b).sum()) * what.pieces / (p * busy)
    alt = (f"{p} stages, {what.pieces} micro-batches, {show(float(shown.seconds[row]), 's')} an "
           f"iteration; stages wait {waits:.0%} of the time of the passes")  # fmt: skip
    lane = not what.pieces * p > 4000
    with style.look():
        figure = style.canvas(12.5, min(2.0 + 0.42 * (p + 1), 9), alt)
        axes = figure.subplots()
        for stage in range(p):
            axes.broken_barh([(0, (busy + after) / divide)], (stage - 0.4, 0.8), facecolor=WAIT)
        _draw(axes, boxes, what, divide, lane)
        _tail(axes, what, busy, p, divide)
        axes.set_xlim(0, end / divide * 1.002)
        rows = p + bool(what.step)
        axes.set_ylim(rows - 0.45, -0.55)
        names = [f"stage {i}" if p > 1 else "device" for i in range(p)]
        ticks = list(range(p))
        if p > 24:
            ticks = ticks[:: p // 12]
        labels = [names[i] for i in ticks]
        if what.step:
            ticks, labels = [*ticks, p], [*labels, "network"]
        axes.set_yticks(ticks, labels)
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"time, {unit}")
        again = ", with recomputation" if shown.compute["recompute"][row] > 0 else ""
        entries = [
            (Patch(facecolor=style.BLUE), "forward"),
            (Patch(facecolor=style.SKY), "backward" + again),
            (Patch(facecolor=style.RED), "exchange that nothing hides"),
            (Patch(facecolor=style.ORANGE), "hidden exchange"),
            (Patch(facecolor=style.GREY), "update"),
        ]  # fmt: skip
        if p > 1:
            entries.append((Patch(facecolor=WAIT),
                            f"waiting, {waits:.0%} of the passes"))  # fmt: skip
        style.above(figure, [e[0] for e in entries], [e[1] for e in entries], title)
    return figure


def _draw(axes: Any, boxes: Sequence[Box], what: Passes, divide: float, edges: bool) -> None:
    chunks = what.chunks
    for back, shade in ((False, style.BLUE), (True, style.SKY)):
        own = what.backward if back else what.forward
        talk = what.talk_backward if back else what.talk_forward
        for chunk in range(chunks):
            alpha = 1.0 - 0.45 * chunk / max(chunks, 1)
            for stage in range(len(own)):
                mine = [
                    box for box in boxes if (box.stage, box.chunk, box.back) == (stage, chunk, back)
                ]
                spans = [(box.start / divide, own[stage] / chunks / divide) for box in mine]
                line = {"edgecolor": style.PAPER, "linewidth": 0.5 if edges else 0.0}
                axes.broken_barh(spans, (stage - 0.4, 0.8), facecolor=shade, alpha=alpha, **line)
                if talk[stage] > 0:
                    late = [(s + w, talk[stage] / chunks / divide) for s, w in spans]
                    axes.broken_barh(late, (stage - 0.4, 0.8), facecolor=style.RED, **line)
    if 2 < len(boxes) <= NUMBERED:
        least = max(box.end for box in boxes) / 90
        for box in boxes:
            if box.end - box.start > least:
                axes.text((box.start + box.end) / 2 / divide, box.stage, str(box.micro + 1),
                          ha="center", va="center", fontsize=7.5,
                          color=style.INK if box.back else style.PAPER)  # fmt: skip


def _tail(axes: Any, what: Passes, busy: float, p: int, divide: float) -> None:
    """Exchanges of the whole iteration on a lane of their own, then the update."""
    at, hidden_end = busy, busy
    for _, seconds, exposed in sorted(what.step, key=lambda one: one[1] - one[2], reverse=True):
        hidden = max(seconds - exposed, 0.0)
        start = max(hidden_end - hidden, 0.0)
        axes.broken_barh([(start / divide, hidden / divide)], (p - 0.4, 0.8),
                         facecolor=style.ORANGE)  # fmt: skip
        axes.broken_barh([(at / divide, exposed / divide)], (p - 0.4, 0.8), facecolor=style.RED)
        hidden_end, at = start, at + exposed
    for stage in range(p):
        axes.broken_barh([(at / divide, what.update / divide)], (stage - 0.4, 0.8),
                         facecolor=style.GREY)  # fmt: skip

"""The predicted step as a Chrome trace: one process a stage, compute and exchanges as tracks.

The schedule is played micro-batch by micro-batch with the seconds of the estimate. Uneven stages
wait for each other as they would, which the closed form of the estimate rounds to the slowest
stage; both totals are in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracle.kernels.rows import passes
from oracle.plan.stages import Stages
from oracle.predict import evaluate
from oracle.writers.job import Job

TITLE = "Chrome trace of the predicted step"
MOST = 200_000  # events; a viewer is lost in more
TRACKS = ("compute", "exchange")


def files(job: Job) -> dict[str, str]:
    return {"trace.json": json.dumps(trace(job), allow_nan=False) + "\n"}


def trace(job: Job) -> dict[str, Any]:
    """The trace as data: complete events in microseconds, and what it is of."""
    costs = Costs.of(job)
    if 4 * costs.stages * costs.segments * costs.chunks > MOST:
        raise job.refuse("a trace", f"of {costs.stages} stages × {costs.segments} micro-batches "
                         "is more than a viewer can show", "fewer segments")  # fmt: skip
    stages = Player(costs).play()
    events: list[dict[str, Any]] = []
    for number, stage in enumerate(stages):
        title = f"stage {number}" if costs.stages > 1 else "every device"
        events.append(_meta("process_name", number, 0, title))
        events += [_meta("thread_name", number, n, word) for n, word in enumerate(TRACKS)]
        events += [one.event(number) for one in stage.drawn]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "plan": job.text, "model": job.name, "system": job.system, "batch": job.batch,
            "predicted_seconds": job.seconds,
            "drawn_seconds": max(one.stop for stage in stages for one in stage.drawn),
        },
    }  # fmt: skip


def _meta(what: str, process: int, track: int, title: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": title}}


@dataclass(frozen=True, slots=True)
class Span:
    """One bar: what, on which track, from when to when, in seconds."""

    name: str
    track: int
    start: float
    stop: float
    says: dict[str, Any] = field(default_factory=dict)

    def event(self, process: int) -> dict[str, Any]:
        start, stop = round(self.start * 1e6, 3), round(self.stop * 1e6, 3)
        return {"ph": "X", "name": self.name, "cat": TRACKS[self.track], "pid": process,
                "tid": self.track, "ts": start, "dur": round(stop - start, 3),
                "args": self.says}  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """Seconds of a micro-batch on each stage, and what is exchanged when."""

    forward: np.ndarray  # (stages,) of one micro-batch, all chunks
    backward: np.ndarray
    update: float
    border: float  # of one crossing
    talk: dict[str, list[tuple[str, float, float]]]  # when -> (what, seconds, exposed) in a step
    segments: int
    chunks: int  # of each stage
    early: bool  # 1F1B

    @property
    def stages(self) -> int:
        return len(self.forward)

    @classmethod
    def of(cls, job: Job) -> Costs:
        """From the estimate's totals, dealt to stages as the estimate dealt their work."""
        found, plan = job.estimate, job.plan
        shard = evaluate.split(found.model, plan, found.options)
        times = passes(shard, found.system.device, found.options.precision, found.options.profile)
        p = job.degree("pipeline")
        v = job.knob("pipeline", "interleave") if p > 1 else 1
        even = job.knob("pipeline", "cuts") == 0
        stages = Stages(found.model, p, v, even, times.forward + times.data + times.weight)
        pace, segments = int(found.pace[0]), job.segments

        def dealt(part: str, work: Any) -> np.ndarray:
            share = np.atleast_2d(stages.total(work))[0]
            return np.asarray(
                float(found.compute[part][0]) / segments * share / max(share[pace], 1e-30)
            )

        back = times.data + times.weight
        again = dealt("recompute", times.forward)
        talk: dict[str, list[tuple[str, float, float]]] = {}
        border = 0.0
        words = {f"{axis.name}: {m.what}": m.when for axis in plan.axes for m in axis.talk(shard)}
        for one in found.exchange[0]:
            when = words.get(one["what"], "step")
            if when == "border":
                border = one["seconds"] / max(one["calls"], 1)
            else:
                kind = when.removeprefix("unit ")
                talk.setdefault(kind, []).append((one["what"], one["seconds"], one["exposed"]))
        return cls(
            dealt("forward", times.forward), dealt("backward", back) + again,
            float(found.compute["update"][0]), border, talk, segments, v,
            job.knob("pipeline", "schedule") == 1,
        )  # fmt: skip


@dataclass
class Stage:
    """One device of the pipeline while the schedule is played."""

    tasks: list[tuple[str, int, int]]  # (pass, micro-batch, chunk), in order
    next: int = 0
    free: float = 0.0
    quiet: float = 0.0  # when its exchange track falls silent
    drawn: list[Span] = field(default_factory=list)


class Player:
    """Plays the tasks of all stages, each as soon as it can."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.stages = [Stage(order(costs, s)) for s in range(costs.stages)]
        self.done: dict[tuple[str, int, int], float] = {}  # (pass, micro-batch, place) -> when

    def play(self) -> list[Stage]:
        moved = True
        while moved:
            moved = False
            for number, stage in enumerate(self.stages):
                while stage.next < len(stage.tasks) and self._step(number, stage):
                    moved = True
        assert all(stage.next == len(stage.tasks) for stage in self.stages)
        for stage in self.stages:
            self._end(stage)
        return self.stages

    def _step(self, number: int, stage: Stage) -> bool:
        """Run the next task of a stage if what it waits for is there."""
        word, micro, chunk = stage.tasks[stage.next]
        costs, last = self.costs, self.costs.stages * self.costs.chunks - 1
        place = chunk * costs.stages + number
        before = self.done.get(("forward", micro, place)) if word == "backward" else 0.0
        came = 0.0
        neighbour = place - 1 if word == "forward" else place + 1
        if 0 <= neighbour <= last:
            sent = self.done.get((word, micro, neighbour))
            if sent is None:
                return False
            came = sent + costs.border
        if before is None:
            return False
        start = max(stage.free, before, came)
        whole = costs.forward if word == "forward" else costs.backward
        compute = float(whole[number]) / costs.chunks
        pieces = costs.segments * costs.chunks
        talk = costs.talk.get(word, [])
        exposed = sum(one[2] for one in talk) / pieces
        stop = start + compute + exposed
        title = f"{word} {micro}" + (f".{chunk}" if costs.chunks > 1 else "")
        stage.drawn.append(Span(title, 0, start, start + compute, {"micro_batch": micro}))
        self._exchange(stage, [(w, s / pieces) for w, s, _ in talk], stop, start)
        self.done[(word, micro, place)] = stop
        stage.free, stage.next = stop, stage.next + 1
        return True

    def _exchange(
        self, stage: Stage, talk: list[tuple[str, float]], stop: float, earliest: float
    ) -> None:
        """Bars one after the other that end together with the task; too long ones are cut."""
        room = stop - max(stage.quiet, earliest)
        total = sum(seconds for _, seconds in talk)
        if total <= 0 or room <= 0:
            return
        scale = min(1.0, room / total)
        at = stop - total * scale
        for what, seconds in talk:
            says = {"seconds": seconds, "what": what}
            stage.drawn.append(Span(what, 1, at, at + seconds * scale, says))
            at += seconds * scale
        stage.quiet = stop

    def _end(self, stage: Stage) -> None:
        """What replicas say to each other once a step, and the optimizer."""
        talk = self.costs.talk.get("step", [])
        exposed = sum(one[2] for one in talk)
        last = [one.start for one in stage.drawn if one.track == 0][-1:]
        stop = stage.free + exposed
        self._exchange(stage, [(w, s) for w, s, _ in talk], stop, last[0] if last else 0.0)
        stage.drawn.append(Span("update", 0, stop, stop + self.costs.update))


def order(costs: Costs, stage: int) -> list[tuple[str, int, int]]:
    """The tasks of a stage: all forward first (GPipe), or one forward, one backward (1F1B)."""
    p, v, S = costs.stages, costs.chunks, costs.segments
    total = S * v
    forward = [("forward", *_virtual(k, p, v, S)) for k in range(total)]
    backward = [("backward", m, v - 1 - c) for m, c in (_virtual(k, p, v, S) for k in range(total))]
    if p == 1:
        return [task for pair in zip(forward, backward, strict=True) for task in pair]
    if not costs.early:
        return forward + backward
    ahead = min(total, (p - stage - 1) * (2 if v > 1 else 1) + (v - 1) * p)
    return list(_alternate(forward, backward, ahead))


def _alternate(
    forward: list[tuple[str, int, int]], backward: list[tuple[str, int, int]], ahead: int
) -> Iterator[tuple[str, int, int]]:
    yield from forward[:ahead]
    for one, other in zip(forward[ahead:], backward, strict=False):
        yield from (one, other)
    yield from backward[len(forward) - ahead :]


def _virtual(k: int, p: int, v: int, S: int) -> tuple[int, int]:
    """(micro-batch, chunk) of the k-th task: p micro-batches through a chunk, then the next."""
    if v == 1:
        return k, 0
    group, inside = divmod(k, p * v)
    return group * p + inside % p, inside // p

"""The predicted step as a Chrome trace: one process a stage, compute and exchanges as tracks.

The schedule is played micro-batch by micro-batch with the seconds of the estimate. Uneven stages
wait for each other as they would, which the closed form of the estimate rounds up; both totals
are in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.predict.trace import Trace
from oracle.predict.trace import trace as played
from oracle.writers.exported import Job

TITLE = "Chrome trace of the predicted step"
MOST = 200_000  # events; a viewer is lost in more
TRACKS = ("compute", "exchange")


def files(job: Job) -> dict[str, str]:
    job.read.add(("optimizer", job.estimate.options.optimizer))  # whatever it is, it is drawn
    return {"trace.json": json.dumps(trace(job), allow_nan=False) + "\n"}


def trace(job: Job) -> dict[str, Any]:
    """The trace as data: complete events in microseconds, and what it is of."""
    found = played(job.estimate.work[0])
    if 4 * found.stages * found.micro_batches * found.chunks > MOST:
        raise job.refuse("a trace", f"of {found.stages} stages × {found.micro_batches} "
                         "micro-batches is more than a viewer can show",
                         "fewer segments")  # fmt: skip
    events: list[dict[str, Any]] = []
    for stage in range(found.stages):
        title = f"stage {stage}" if found.stages > 1 else "every device"
        events.append(_meta("process_name", stage, 0, title))
        events += [_meta("thread_name", stage, n, word) for n, word in enumerate(TRACKS)]
        events += [bar.event(stage) for bar in _bars(found, stage)]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "plan": job.text, "model": job.name, "system": job.system, "batch": job.batch,
            "predicted_seconds": job.seconds, "drawn_seconds": found.end,
        },
    }  # fmt: skip


AFTER = 1000  # processes of ranks come after those of stages
OF_RANK = ("messages",)  # tracks of a rank that come before those of its threads and streams


def beside(ranks: Sequence[dict[str, Any]], predicted: dict[str, Any] | None) -> dict[str, Any]:
    """A step as its ranks ran it, and as it was predicted, if it was: both from its beginning."""
    said = predicted or {"traceEvents": [], "otherData": {}}
    events = [{**one, "args": {"name": f"predicted, {one['args']['name']}"}}
              if one["name"] == "process_name" else one for one in said["traceEvents"]]  # fmt: skip
    for number, rank in enumerate(ranks):
        process, threads = AFTER + number, dict.fromkeys(one["track"] for one in rank["events"])
        tracks = [*OF_RANK, *threads]
        events.append(_meta("process_name", process, 0, f"measured, rank {number} {rank['host']}"))
        events += [_meta("thread_name", process, n, track) for n, track in enumerate(tracks)]
        for one in rank["messages"]:
            there = one["began"] + one["waiting"]
            parts = (("waiting", one["began"], one["waiting"]),
                     ("transfer", there, one["seconds"] - one["waiting"]))  # fmt: skip
            events += [_bar(f"{one['what']}, {part}", part, process, 0, began, seconds)
                       for part, began, seconds in parts if seconds > 0]  # fmt: skip
        events += [_bar(one["name"], one["cat"], process, tracks.index(one["track"], 1),
                        one["began"], one["seconds"]) for one in rank["events"]]  # fmt: skip
    measured = {"measured_seconds": max(one["seconds"] for one in ranks)}
    return {"traceEvents": events, "displayTimeUnit": "ms",
            "otherData": {**said["otherData"], **measured}}  # fmt: skip


def _bar(
    name: str, kind: str, process: int, track: int, began: float, seconds: float
) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": kind, "pid": process, "tid": track,
            "ts": round(began * 1e6, 3), "dur": round(seconds * 1e6, 3)}  # fmt: skip


def _meta(what: str, process: int, track: int, title: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": title}}


@dataclass(frozen=True, slots=True)
class Bar:
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


def _bars(found: Trace, stage: int) -> Iterator[Bar]:
    """What one stage computes and sends, its update last."""
    if found.late:
        yield Bar("waiting for samples", 0, 0.0, found.late)
    silent, begun = 0.0, 0.0  # when its exchange track falls silent; when its last pass began
    for span in (span for span in found.spans if span.stage == stage):
        turn, computed = span.turn, float(found.computed[span.turn.kind][stage]) / found.chunks
        title = f"{turn.kind} {turn.micro}" + (f".{turn.chunk}" if found.chunks > 1 else "")
        # the pass begins with what it receives
        yield Bar(title, 0, span.end - computed, span.end, {"micro_batch": turn.micro})
        sent = [(one.what, one.seconds / found.chunks) for one in found.sent[turn.kind][stage]]
        begun = span.start
        for bar in _exchange(sent, max(silent, begun), span.end):
            yield bar
            silent = bar.stop
    once = found.sent["step"][stage]
    stop = float(found.done[stage]) + sum(one.exposed for one in once)
    yield from _exchange([(one.what, one.seconds) for one in once], max(silent, begun), stop)
    yield Bar("update", 0, stop, stop + float(found.update[stage]))


def _exchange(sent: Sequence[tuple[str, float]], earliest: float, stop: float) -> Iterator[Bar]:
    """Messages one after the other that end together with the pass; too long ones are cut."""
    total = sum(seconds for _, seconds in sent)
    room = min(total, stop - earliest)
    if total <= 0 or room <= 0:
        return
    at = stop - room
    for what, seconds in sent:
        end = at + seconds * room / total
        yield Bar(what, 1, at, end, {"seconds": seconds, "what": what})
        at = end

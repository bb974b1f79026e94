"""The predicted step as a Chrome trace: one process a stage, compute and exchanges as tracks.

The schedule is played micro-batch by micro-batch with the seconds of the estimate. Uneven stages
wait for each other, which the closed form of the estimate rounds up; both totals are in the file.
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
LARGEST = 200_000  # events; a viewer cannot show more
TRACKS = ("compute", "exchange")


def files(job: Job) -> dict[str, str]:
    job.read.add(("optimizer", job.estimate.options.optimizer))  # any optimizer can be drawn
    return {"trace.json": json.dumps(trace(job), allow_nan=False) + "\n"}


def trace(job: Job) -> dict[str, Any]:
    """Return the trace as data: complete events in microseconds, and a description."""
    timeline = played(job.estimate.work[0])
    if 4 * timeline.stages * timeline.micro_batches * timeline.chunks > LARGEST:
        raise job.refuse("a trace", f"of {timeline.stages} stages × {timeline.micro_batches} "
                         "micro-batches is more than a viewer can show",
                         "fewer segments")  # fmt: skip
    events: list[dict[str, Any]] = []
    for stage in range(timeline.stages):
        title = f"stage {stage}" if timeline.stages > 1 else "every device"
        events.append(_meta("process_name", stage, 0, title))
        events += [_meta("thread_name", stage, n, word) for n, word in enumerate(TRACKS)]
        events += [bar.event(stage) for bar in _bars(timeline, stage)]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "plan": job.text, "model": job.name, "system": job.system, "batch": job.batch,
            "predicted_seconds": job.seconds, "drawn_seconds": timeline.end,
        },
    }  # fmt: skip


AFTER = 1000  # processes of ranks come after those of stages
OF_RANK = ("messages",)  # tracks of a rank that come before those of its threads and streams


def with_measured(
    ranks: Sequence[dict[str, Any]], predicted: dict[str, Any] | None
) -> dict[str, Any]:
    """Return a trace of a measured step of all ranks, and of its prediction if there is one."""
    prediction = predicted or {"traceEvents": [], "otherData": {}}
    events = [
        {**event, "args": {"name": f"predicted, {event['args']['name']}"}}
        if event["name"] == "process_name"
        else event
        for event in prediction["traceEvents"]
    ]
    for number, rank in enumerate(ranks):
        process, threads = AFTER + number, dict.fromkeys(event["track"] for event in rank["events"])
        tracks = [*OF_RANK, *threads]
        events.append(_meta("process_name", process, 0, f"measured, rank {number} {rank['host']}"))
        events += [_meta("thread_name", process, n, track) for n, track in enumerate(tracks)]
        for event in rank["messages"]:
            transfer_began = event["began"] + event["waiting"]
            parts = (("waiting", event["began"], event["waiting"]),
                     ("transfer", transfer_began, event["seconds"] - event["waiting"]))  # fmt: skip
            events += [_bar(f"{event['what']}, {part}", part, process, 0, began, seconds)
                       for part, began, seconds in parts if seconds > 0]  # fmt: skip
        events += [_bar(event["name"], event["cat"], process, tracks.index(event["track"], 1),
                        event["began"], event["seconds"]) for event in rank["events"]]  # fmt: skip
    measured = {"measured_seconds": max(event["seconds"] for event in ranks)}
    return {"traceEvents": events, "displayTimeUnit": "ms",
            "otherData": {**prediction["otherData"], **measured}}  # fmt: skip


def _bar(
    name: str, kind: str, process: int, track: int, began: float, seconds: float
) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": kind, "pid": process, "tid": track,
            "ts": round(began * 1e6, 3), "dur": round(seconds * 1e6, 3)}  # fmt: skip


def _meta(name: str, process: int, track: int, title: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "tid": track, "args": {"name": title}}


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a track, from its start to its stop in seconds."""

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


def _bars(timeline: Trace, stage: int) -> Iterator[Bar]:
    """Yield the bars of one stage's passes and messages, its update last."""
    if timeline.late:
        yield Bar("waiting for samples", 0, 0.0, timeline.late)
    silent, begun = 0.0, 0.0  # when its exchange track falls silent; when its last pass began
    for span in (span for span in timeline.spans if span.stage == stage):
        turn, computed = (
            span.turn,
            float(timeline.computed[span.turn.kind][stage]) / timeline.chunks,
        )
        title = f"{turn.kind} {turn.micro}" + (f".{turn.chunk}" if timeline.chunks > 1 else "")
        # the pass begins with what it receives
        yield Bar(title, 0, span.end - computed, span.end, {"micro_batch": turn.micro})
        sent = [
            (message.what, message.seconds / timeline.chunks)
            for message in timeline.sent[turn.kind][stage]
        ]
        begun = span.start
        for bar in _exchange(sent, max(silent, begun), span.end):
            yield bar
            silent = bar.stop
    once = timeline.sent["step"][stage]
    stop = float(timeline.done[stage]) + sum(message.exposed for message in once)
    yield from _exchange(
        [(message.what, message.seconds) for message in once], max(silent, begun), stop
    )
    yield Bar("update", 0, stop, stop + float(timeline.update[stage]))


def _exchange(sent: Sequence[tuple[str, float]], earliest: float, stop: float) -> Iterator[Bar]:
    """Yield the bars of messages that end with the pass, shortened where they do not fit."""
    total = sum(seconds for _, seconds in sent)
    room = min(total, stop - earliest)
    if total <= 0 or room <= 0:
        return
    begin = stop - room
    for name, seconds in sent:
        end = begin + seconds * room / total
        yield Bar(name, 1, begin, end, {"seconds": seconds, "what": name})
        begin = end

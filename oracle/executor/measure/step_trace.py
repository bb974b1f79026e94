"""One step under PyTorch's profiler: what each rank ran, sent and waited for, on one clock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.measure.timed_steps import Steps, timed
from oracle.executor.measured import lateness
from oracle.executor.ranks.records import write_whole
from oracle.spec.files import LOG, read_json

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

STEP = "step"  # how the profiler is told of it


def file_of(parts: Path, rank: int) -> Path:
    return parts / f"trace-{rank:05d}.json"


def traced(rank: Rank, steps: Steps) -> None:
    """Run one more step and keep the profiler's events, in seconds of rank 0's clock."""
    from torch.profiler import ProfilerActivity, profile, record_function

    on_device = [ProfilerActivity.CUDA] if rank.device.type == "cuda" else []
    path = file_of(rank.attempt.parent, rank.rank)
    with profile(activities=[ProfilerActivity.CPU, *on_device]) as profiler:
        with record_function("first"):  # takes longer than any after it
            pass
        before = time.perf_counter()
        with record_function(STEP):
            sample, ended = timed(rank, steps, steps.job.steps + 1, before)
    profiler.export_chrome_trace(str(path))
    trace = read_json(path, "trace", LOG)["traceEvents"]
    complete = [event for event in trace if event.get("ph") == "X"]
    mark = next(event["ts"] for event in complete if event["name"] == STEP)
    events = [{"name": event["name"], "cat": event.get("cat", ""), "track": str(event["tid"]),
               "began": before - steps.ahead + (event["ts"] - mark) * 1e-6,
               "seconds": event["dur"] * 1e-6} for event in complete]  # fmt: skip
    began = ended - sample["seconds"] - steps.ahead
    document = {"host": rank.hosts[rank.rank], "began": began, "seconds": sample["seconds"],
                "calls": sample["calls"], "events": events}  # fmt: skip
    write_whole(path, json.dumps(document))


def seen_by(parts: Path, ranks: int) -> list[dict[str, Any]]:
    """The traces of all ranks, from when the first began, with their messages and waits."""
    traces = [read_json(file_of(parts, rank), "trace", LOG) for rank in range(ranks)]
    first = min(trace["began"] for trace in traces)
    late = lateness([trace["calls"] for trace in traces])
    for trace, waits in zip(traces, late, strict=True):
        for event in trace["events"]:
            event["began"] -= first
        trace["messages"] = [
            {"what": label, "began": began - first, "waiting": waiting, "seconds": ended - began}
            for (label, _, _, began, ended), waiting in zip(trace["calls"], waits, strict=True)
        ]
    return traces

"""One step under PyTorch's profiler: what each rank ran, sent and waited for, on one clock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.measured import lateness
from oracle.executor.records import write_whole
from oracle.executor.timed_steps import Steps, timed
from oracle.spec.files import LOG, read_json

if TYPE_CHECKING:
    from oracle.executor.rank import Rank

STEP = "step"  # how the profiler is told of it


def file_of(parts: Path, rank: int) -> Path:
    return parts / f"trace-{rank:05d}.json"


def traced(rank: Rank, steps: Steps) -> None:
    """Run one more step, and keep what the profiler saw of it; seconds are of rank 0's clock."""
    from torch.profiler import ProfilerActivity, profile, record_function

    on_device = [ProfilerActivity.CUDA] if rank.device.type == "cuda" else []
    path = file_of(rank.attempt.parent, rank.rank)
    with profile(activities=[ProfilerActivity.CPU, *on_device]) as seen:
        with record_function("first"):  # takes longer than any after it
            pass
        before = time.perf_counter()
        with record_function(STEP):
            said, ended = timed(rank, steps, steps.job.steps + 1, before)
    seen.export_chrome_trace(str(path))
    every = [one for one in read_json(path, "trace", LOG)["traceEvents"] if one.get("ph") == "X"]
    mark = next(one["ts"] for one in every if one["name"] == STEP)
    events = [{"name": one["name"], "cat": one.get("cat", ""), "track": str(one["tid"]),
               "began": before - steps.ahead + (one["ts"] - mark) * 1e-6,
               "seconds": one["dur"] * 1e-6} for one in every]  # fmt: skip
    kept = {"host": rank.hosts[rank.rank], "began": ended - said["seconds"] - steps.ahead,
            "seconds": said["seconds"], "calls": said["calls"], "events": events}  # fmt: skip
    write_whole(path, json.dumps(kept))


def seen_by(parts: Path, ranks: int) -> list[dict[str, Any]]:
    """What every rank saw: events from when the first began, and its messages with their waits."""
    found = [read_json(file_of(parts, rank), "trace", LOG) for rank in range(ranks)]
    first = min(one["began"] for one in found)
    late = lateness([one["calls"] for one in found])
    for one, waits in zip(found, late, strict=True):
        for event in one["events"]:
            event["began"] -= first
        one["messages"] = [
            {"what": what, "began": began - first, "waiting": waiting, "seconds": ended - began}
            for (what, _, _, began, ended), waiting in zip(one["calls"], waits, strict=True)
        ]
    return found

"""Checkpoints and failures of a real training beside what is predicted of them.

Bytes are those of the model's weights and optimizer state. The time of the whole training is walked
through with the seconds that a step, a checkpoint and a restart were measured to take, so that it
says whether they add up as `oracle.run` adds them.
"""

from __future__ import annotations

import statistics
from typing import Any

from oracle.executor.checkpointing.restart import state_bytes
from oracle.executor.measured import Measurement
from oracle.executor.plan_run import PlanRun
from oracle.run.interrupted import Failure, interrupted

BANDWIDTH = "a measured bandwidth of what the folder lies on: `--system`"


def recovered(one: Measurement, job: PlanRun) -> dict[str, Any]:
    """What is predicted of one training's checkpoints and failures; unknown where nobody says."""
    found = one.recovery
    if found is None or not found.checkpoints.get("seconds"):
        return {}
    kept, goodput = found.checkpoints, found.goodput
    said: dict[str, Any] = {"bytes": state_bytes(job), "seconds": None, "unknown": [BANDWIDTH]}
    if not goodput:
        return said
    took = kept["seconds"]
    stops = took["copy"] if kept["way"] == "async" else took["blocking"]
    each = [failure["detection"] + failure["restart"] for failure in found.failures
            if "restart" in failure]  # fmt: skip
    # a rank dies as its first backward pass begins
    into = min(one.compute["forward"] / one.seconds, 1.0)
    failures = [Failure(f["step"], 0.5, True) if f["at"] == "checkpoint" else
                Failure(f["step"], into) for f in found.failures]  # fmt: skip
    whole = interrupted(
        job.steps, one.seconds, kept["every"], stops, failures,
        statistics.mean(each) if each else 0.0,
        max(0.0, took["safe_after"] - took["copy"]) if kept["way"] == "async" else 0.0,
        job.steps - int(goodput["steps"]),
    )  # fmt: skip
    parts = {name: getattr(whole, name) for name in ("progress", "checkpoints", "lost", "restarts")}
    return said | {"whole": {"seconds": whole.seconds, **parts}}

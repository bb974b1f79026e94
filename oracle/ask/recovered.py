"""Checkpoints and failures of a real training beside what is predicted of them.

    bytes = parameters · width · (1 + slots of the optimizer)

Seconds are those of writing them to the system's shared files, or to a node's own disks where the
folder lay on such; unknown where no system is named. The time of the whole training is walked
through with the seconds that a step, a checkpoint and a restart were measured to take, so that it
says whether they add up as `oracle.run` adds them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from oracle.executor.checkpointing.restart import state_bytes
from oracle.executor.checkpointing.summary import Recovery
from oracle.executor.measure.disk import SHARED
from oracle.executor.measured import Measurement
from oracle.models.model import Model
from oracle.predict.reading import machine_of
from oracle.run.interrupted import Failure, Interrupted, interrupted
from oracle.spec.system import System
from oracle.storage import checkpoint


def recovered(one: Measurement, what: Model, where: System | None = None) -> dict[str, Any]:
    """What is predicted of one training's checkpoints and failures; unknown where nobody says."""
    found = one.recovery
    if found is None or not found.checkpoints.get("seconds"):
        return {}
    kept, ran = found.checkpoints, one.options
    nbytes = state_bytes(what.parameters, ran["precision"], ran["optimizer"])
    said: dict[str, Any] = {"bytes": nbytes, **_seconds(kept, nbytes, one.devices, where)}
    if found.goodput:
        whole = _whole(one, found, kept)
        parts = ("seconds", "progress", "checkpoints", "lost", "restarts")
        said |= {"goodput": {name: getattr(whole, name) for name in parts}}
    return said


def _seconds(
    kept: Mapping[str, Any], nbytes: float, devices: int, where: System | None
) -> dict[str, Any]:
    """Seconds that training stands still, and until the state is safe."""
    unknown: dict[str, Any] = {"seconds": None, "safe_after": None}
    if where is None:
        return unknown | {"unknown": ["the storage of a `--system`"]}
    machine, kind = machine_of(where), kept["file_system"]
    to = "shared" if machine.shared and kind in (*SHARED, "played") else "local"
    alone = kept["way"] == "rank0"
    nodes, files = (1, 1) if alone else (kept["nodes"], devices)
    written = checkpoint.seconds(machine, nbytes, nodes, files, to)
    if written is None:
        return unknown | {"unknown": [f"storage.{to} of {where.name}"]}
    used = f"storage.{to}."
    assumed = [each.key for each in machine.assumed if each.key.startswith(used)]
    took = float(written)
    if kept["way"] != "async":
        return {"seconds": took, "safe_after": took, "to": to, "assumed": assumed}
    bandwidth = machine.host.bandwidth or 0.0
    copied = nbytes / kept["nodes"] / bandwidth if bandwidth else 0.0
    assumed += [each.key for each in machine.assumed if each.key == "host.bandwidth"]
    return {"seconds": copied, "safe_after": copied + took, "to": to, "assumed": assumed}


def _whole(one: Measurement, found: Recovery, kept: Mapping[str, Any]) -> Interrupted:
    """The same training, walked through with what was measured of its parts."""
    took, beside = kept["seconds"], kept["way"] == "async"
    each = [failure["detection"] + failure["restart"] for failure in found.failures
            if "restart" in failure]  # fmt: skip
    # a rank dies as its first backward pass begins
    into = min(one.compute["forward"] / one.seconds, 1.0)
    failures = [Failure(f["step"], 0.5, True) if f["at"] == "checkpoint" else
                Failure(f["step"], into) for f in found.failures]  # fmt: skip
    step, last = one.seconds + found.goodput["between"], int(found.goodput["last"])
    return interrupted(
        last, step, kept["every"], took["copy" if beside else "blocking"], failures,
        statistics.mean(each) if each else 0.0,
        max(0.0, took["safe_after"] - took["copy"]) if beside else 0.0,
        last - int(found.goodput["steps"]),
    )  # fmt: skip

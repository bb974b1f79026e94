"""Closed loop of offload: a link to the host is played at several speeds, plans are run and priced.

What a step takes with a slow link, over what it takes with one of no end, within one run: the
machine's own speed drops out of it. The device that prices it is as fast as the passes were
measured to be beside an endless link; the link is as slow as it was played. Nothing is fitted.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import oracle
from benchmarks.table import Table, figure
from oracle.executor.measured import Measurement
from oracle.executor.plan_run import PlanRun
from oracle.executor.ranks.launch import DONE
from oracle.executor.run import run

SIDE, LAYERS, BATCH = 512, 8, 256
MODEL = {"name": "stack", "source": "made for this loop", "input": [SIDE], "layers": [
    *[{"dense": {"filters": SIDE, "bias": False}} for _ in range(LAYERS)], {"loss": "mse"},
]}  # fmt: skip
NBYTES = 4.0 * SIDE * SIDE * LAYERS  # of its weights
PLANS = ("offload:optimizer", "offload:weights+optimizer", "offload:optimizer,update=device")
TIMES = (0.25, 0.5, 1.0, 2.0)  # that the weights take over the link, of a step beside no link
ENDLESS = 1e15


def table(quick: bool = False) -> Table:
    """Steps with a played link over steps without, measured and predicted."""
    rows, off, spreads = [], [], []
    for plan in PLANS[: 1 if quick else None]:
        (base,) = _ran([PlanRun(MODEL, plan, BATCH, steps=9)])
        times = TIMES[1:3] if quick else TIMES
        speeds = [NBYTES / (each * base.seconds) for each in times]
        found = _ran([
            PlanRun(MODEL, plan, BATCH, steps=5, link={"out": speed, "in": speed})
            for speed in speeds
        ])  # fmt: skip
        spreads.append(base.spread)
        for speed, one in zip(speeds, found, strict=True):
            took = statistics.median(one.step_seconds) / statistics.median(base.step_seconds)
            fast, slow = (_priced(plan, base.seconds, each) for each in (ENDLESS, speed))
            off.append(slow / fast / took - 1)
            rows.append({
                "plan": plan, "link MB/s": f"{speed / 1e6:.0f}", "measured": f"{took:.2f}",
                "predicted": f"{slow / fast:.2f}", "off": f"{off[-1]:+.1%}",
                "spread of steps": f"{one.spread:.0%}",
            })  # fmt: skip
    apart = np.abs(off)
    return {
        "title": "throttled: a step with a slow link to the host, over one with an endless link",
        "rows": rows,
        "figures": {
            "mean": figure(apart.mean(), "", "≤ 0.1"), "largest": figure(apart.max(), "", ""),
            "spread": figure(np.mean(spreads), "of a step without a link", ""),
        },
        "notes": ["times are of a machine that others share: their spread is stated"],
    }  # fmt: skip


def _ran(jobs: list[PlanRun]) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        outcome, found = run(jobs, Path(folder) / "run.json", ranks=1)
    if outcome.code != DONE:
        raise RuntimeError(outcome.message)
    return found


def _priced(plan: str, seconds: float, link: float) -> float:
    """Seconds of a step on a device that takes so many beside an endless link."""
    one = _estimate(plan, ENDLESS, 1.0)
    return _estimate(plan, link, one / seconds)


def _estimate(plan: str, link: float, speed: float) -> float:
    said = {"source": "played"}
    device: dict[str, Any] = {
        "name": "host", "memory": "64 GiB", "memory_bandwidth": f"{speed * 1e10} B/s",
        "peak": {"fp32": f"{speed * 2e10} FLOP/s"}, "launch": "0 s", "reserve": "1 B",
        "host_link": f"{link} B/s", **said,
    }  # fmt: skip
    level = {"name": "node", "devices": 1, "bandwidth": "1 GB/s", "latency": "1 us", **said}
    host = {"bandwidth": f"{ENDLESS} B/s", "memory": "64 GiB", "cores": 2, **said}
    system = {"name": "played", "device": device, "levels": [level], "dispatch": "0 s",
              "host": host, **said}  # fmt: skip
    found = oracle.estimate(MODEL, oracle.system(system), plan, BATCH, precision="fp32",
                            optimizer="momentum", software="executor", any_plan=True)  # fmt: skip
    return float(found.seconds[0])

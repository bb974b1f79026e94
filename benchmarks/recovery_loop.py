"""Closed loop of recovery: play a storage, keep checkpoints on it, kill ranks, predict, compare.

    python -m benchmarks.recovery_loop [--quick] [--json] [--out DIR]

Ranks of this machine train for real, write checkpoints through limits that are played
(`oracle.executor.loading.throttle`), die where they are told to, and start again. A checkpoint's
bytes and seconds are predicted from the model and from what is played alone, which is slower than
the machine's own disk. The time of the whole training is predicted with the seconds that a step, a
checkpoint and a restart were measured to take: it says whether failures and checkpoints add up as
they are said to. It needs torch, and about two minutes; --quick takes one configuration, and a
quarter of that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.reading_loop import say
from oracle.ask.recovered import recovered
from oracle.commands.reading import played
from oracle.executor.checkpointing.keeping import Keeping, Planted
from oracle.executor.plan_run import PlanRun
from oracle.executor.run import run
from oracle.models.model import model
from oracle.spec import catalogue
from oracle.spec.system import System

GOALS = {"bytes": 0.0, "seconds": 0.1, "whole": 0.1}  # relative error, the worst
MODEL = {
    "name": "wide", "source": "made for this benchmark", "input": [3, 24, 24],
    "layers": [{"conv": {"filters": 32, "kernel": 3, "padding": 1}}, "relu",
               {"conv": {"filters": 32, "kernel": 3, "padding": 1}}, "relu",
               {"pool": {"kernel": 2}}, "flatten", {"dense": 64}, "relu", {"dense": 10}, "loss"],
}  # fmt: skip


def system() -> System:
    """The machine that is played: nodes of one rank each that share files."""
    said = {"source": "played"}
    device = {"name": "host", "memory": "16 GiB", "memory_bandwidth": "10 GB/s", "launch": "0 s",
              "peak": {"fp32": "20 GFLOP/s"}, "reserve": "200 MB", **said}  # fmt: skip
    shared = {"bandwidth": "40 MB/s", "write": "3 MB/s", "per_node": "2 MB/s", "streams": 1,
              "open": "1 ms", "metadata": "2000 /s"}  # fmt: skip
    host = {"memory": "8 GB", "cores": 4, "bandwidth": "5 GB/s", **said}
    levels = [
        {"name": "host", "devices": 1, "bandwidth": "10 GB/s", "latency": "1 us", **said},
        {"name": "switch", "devices": 8, "bandwidth": "1 GB/s", "latency": "100 us",
         "link": "network", **said},
    ]  # fmt: skip
    return catalogue.system({"name": "played", "device": device, "levels": levels, "host": host,
                             "storage": {"shared": shared, **said}, **said})  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One configuration: who writes, under which plan, and which failures come."""

    way: str
    plan: str = "data:2"
    optimizer: str = "adam"
    every: int = 5
    failures: tuple[Planted, ...] = (Planted(8, 1),)

    @property
    def title(self) -> str:
        died = ", ".join(f"{each.at} {each.step}" for each in self.failures)
        return f"{self.way}, {self.plan}, {self.optimizer}: {died}"

    def job(self, folder: Path, steps: int) -> PlanRun:
        kept = Keeping(self.way, str(folder), self.every, played=played(system()))
        return PlanRun(MODEL, self.plan, 64, steps, 2, self.optimizer, checkpoint=asdict(kept),
                       fail=tuple(asdict(each) for each in self.failures))  # fmt: skip


SETTINGS = [
    Setting("sharded", failures=(Planted(8, 1), Planted(10, 0, "checkpoint"))),
    Setting("rank0", "data:2,zero=1", failures=(Planted(13, 0),)),
    Setting("async", "data:2,zero=3"),
    Setting("sharded", "filter:2", "momentum"),
]


@dataclass(frozen=True)
class Row:
    """What a configuration's checkpoints and its whole training took, predicted and measured."""

    setting: str
    bytes: tuple[float, float]  # predicted, measured: so the next
    seconds: tuple[float, float]  # until a checkpoint is safe
    whole: tuple[float, float]
    share: float  # of the whole, that was progress

    def error(self, name: str) -> float:
        predicted, found = getattr(self, name)
        return float(abs(predicted / found - 1))


def loop(settings: Sequence[Setting], folder: Path, steps: int) -> Iterator[Row]:
    """Run each configuration, and compare."""
    for number, one in enumerate(settings):
        job = one.job(folder / f"checkpoints-{number}", steps)
        out = folder / f"recovery-{number}.json"
        outcome, (found,) = run(job, out, ranks=2, say=say, timeout=120)
        assert outcome.complete, outcome.message
        assert found.recovery
        kept, said = found.recovery.checkpoints, recovered(found, model(MODEL), system())
        goodput = found.recovery.goodput
        yield Row(one.title, (said["bytes"], kept["bytes"]),
                  (said["safe_after"], kept["seconds"]["safe_after"]),
                  (said["goodput"]["seconds"], goodput["seconds"]), goodput["share"])  # fmt: skip


def figures(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The worst error of each, and the mean."""
    found: dict[str, dict[str, Any]] = {}
    for name, goal in GOALS.items():
        errors = [row.error(name) for row in rows]
        found[f"recovery_loop.{name}.worst"] = {
            "value": round(max(errors), 4),
            "goal": f"<= {goal}",
        }
        found[f"recovery_loop.{name}.mean"] = {"value": round(statistics.mean(errors), 4),
                                               "goal": ""}  # fmt: skip
    return found


def table(rows: Sequence[Row], found: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'configuration: failures':56} {'bytes':>17} {'safe, ms':>13} {'whole, s':>13}"
             f" {'progress':>8}"]  # fmt: skip
    lines += [
        f"{row.setting:56} {row.bytes[0]:8.0f} {row.bytes[1]:8.0f} {row.seconds[0] * 1e3:6.0f} "
        f"{row.seconds[1] * 1e3:6.0f} {row.whole[0]:6.2f} {row.whole[1]:6.2f} {row.share:8.1%}"
        for row in rows
    ]  # fmt: skip
    lines += ["", *(f"{name:44} {one['value']:>9} {one['goal']}" for name, one in found.items())]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.recovery_loop", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one configuration")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="keep all files here")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        out = given.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        rows = list(loop(SETTINGS[:1] if given.quick else SETTINGS, out, 20))
    found = figures(rows)
    if given.json:
        sys.stdout.write(
            json.dumps({"figures": found, "rows": [asdict(r) for r in rows]}, indent=1)
        )
    else:
        sys.stdout.write(table(rows, found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

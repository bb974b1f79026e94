"""Closed loop of reading: play a storage, calibrate it, predict what steps wait for, run, compare.

    python -m benchmarks.reading_loop [--quick] [--json] [--out DIR]

Ranks of this machine read real files through limits that are played (`oracle.executor.loading`):
bytes a second of all, of a node, of a disk, of its ports; operations on names; seconds until a
first byte. So the machine's own disk does not matter, and every mode of reading can be run on one
machine. What all nodes share is not told to the prediction: `oracle measure storage` measures it
through the same limits, and `oracle calibrate` makes a spec of it. The work of a step is what it
took but for its waiting, on a machine that others share; what it waits beside so much work is
predicted by `oracle.storage` alone. It needs torch, and about three minutes; --quick takes two
configurations, and a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from oracle.calibration import storage as calibration
from oracle.commands.reading import played
from oracle.executor.loading.measure import measure_storage
from oracle.executor.measured import Measurement
from oracle.executor.plan_run import PlanRun
from oracle.executor.run import run
from oracle.readers.logs import read
from oracle.spec import catalogue
from oracle.spec.system import System
from oracle.storage import MODES, Machine, Question, Samples, loader, shuffle
from oracle.storage.unknown import CACHED

BATCH, THREADS = 16, 4
GOALS = {"accuracy": 0.90, "configurations": 12}
SHOWN = 0.1  # of a step: less waiting is as good as none

MODEL = {
    "name": "planes", "source": "made for this benchmark", "input": [4, 112, 112],
    "layers": [{"pool": {"kernel": 4}}, {"conv": {"filters": 4, "kernel": 3, "padding": 1}},
               "relu", "flatten", {"dense": 8}, "loss"],
}  # fmt: skip
SHAPE = 4 * 112 * 112 * 4  # bytes of an array of its input


def system(ports: str = "60 MB/s") -> System:
    """The machine that is played: eight nodes of one rank each."""
    said = {"source": "played"}
    device = {"name": "host", "memory": "16 GiB", "memory_bandwidth": "10 GB/s", "launch": "0 s",
              "peak": {"fp32": "20 GFLOP/s"}, "reserve": "200 MB", **said}  # fmt: skip
    shared = {"bandwidth": "24 MB/s", "per_node": "14 MB/s", "streams": 2, "open": "6 ms",
              "metadata": "600 /s"}  # fmt: skip
    local = {"read": "20 MB/s", "write": "80 MB/s", "open": "2 ms", "capacity": "1 GB"}
    host = {"memory": "8 GB", "cores": THREADS, "share_for_loading": 1.0, "bandwidth": "5 GB/s",
            **said}  # fmt: skip
    levels = [
        {"name": "host", "devices": 1, "bandwidth": "10 GB/s", "latency": "1 us", **said},
        {"name": "switch", "devices": 8, "bandwidth": ports, "latency": "200 us",
         "link": "network", **said},
    ]  # fmt: skip
    return catalogue.system({
        "name": "played", "device": device, "levels": levels, "host": host, **said,
        "storage": {"shared": shared, "local": local, **said},
    })  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One configuration: how samples are read, by whom, and how large they are."""

    mode: str
    plan: str
    size: float  # bytes of a sample; 0: arrays of the model's input
    samples: int = 64
    spread: float = 0.0
    shuffle: str = "global"
    kept: float = 0.0  # of a rank's part of the samples, what its memory has room for
    ports: str = "60 MB/s"

    @property
    def ranks(self) -> int:
        return int(np.prod([int(word.partition(":")[2] or 1) for word in self.plan.split()]))

    @property
    def parts(self) -> int:
        return 2 if "spatial" in self.plan else 1

    @property
    def each(self) -> float:
        return self.size or float(SHAPE)

    @property
    def title(self) -> str:
        more = f", sizes ± {self.spread:.0%}" if self.spread else ""
        room = f", {self.kept:.0%} in memory" if self.kept else ""
        return f"{self.mode}, {self.plan}, {self.each / 1e3:.0f} kB{more}{room}, {self.ports}"

    @property
    def room(self) -> float:
        """Bytes of a rank's memory."""
        return self.kept * self.samples * self.each / self.ranks

    def job(self, folder: Path, steps: int) -> PlanRun:
        """The run that reads."""
        from oracle.executor.loading.reader import Data  # which loads torch

        made = {"samples": self.samples, "size": self.size, "spread": self.spread}
        # a rank that deals parts out reads one sample after the other
        threads = 1 if self.parts > 1 and self.mode != "spatial" else THREADS
        data = Data(str(folder), self.mode, threads, shuffle=self.shuffle, cache=self.room,
                    made=made, played=played(system(self.ports)))  # fmt: skip
        return PlanRun(MODEL, self.plan, BATCH, steps, 6, data=asdict(data))

    def predicted(self, known: System, work: float) -> float:
        """Seconds that a step of so much work waits."""
        level = next(each for each in known.levels if each.link == "network")
        if self.kept and known.host:
            known = replace(known, host=replace(known.host, memory=self.room / CACHED))
        elif self.mode == "spatial" and known.host:  # which would keep what it has read
            known = replace(known, host=replace(known.host, memory=1.0))
        machine = Machine.of(known, level.bandwidth, level.latency)
        size = self.samples * self.each
        found = Samples(self.samples, size, self.samples, spread=self.spread)
        groups = self.ranks // self.parts
        asked = Question(machine, found, BATCH, self.ranks, groups, float(self.parts),
                         shuffle(self.shuffle))  # fmt: skip
        answer = MODES[self.mode](asked)
        step = loader.step(work, answer.load, answer.alone)
        return float(np.ravel(step)[0]) - work


SETTINGS = [
    Setting("shared", "data:1", 200e3),
    Setting("shared", "data:2", 20e3),
    Setting("shared", "data:4", 200e3),
    Setting("shared", "data:4", 200e3, 256, spread=0.6),
    Setting("cached", "data:2", 200e3, shuffle="local", kept=0.5),
    Setting("cached", "data:4", 200e3, shuffle="local", kept=1.05),
    Setting("staged", "data:2", 400e3),
    Setting("staged", "data:4", 20e3, 128, shuffle="local"),
    Setting("striped", "data:2", 200e3),
    Setting("striped", "data:4", 400e3, ports="14 MB/s"),
    Setting("shared", "data:2 spatial:2", 0.0),
    Setting("spatial", "data:2 spatial:2", 0.0),
]
QUICK = [SETTINGS[1], SETTINGS[8]]


@dataclass(frozen=True)
class Row:
    """What a step of a configuration waits for its samples, predicted and measured."""

    setting: str
    work: float
    predicted: float
    measured: float

    @property
    def shows(self) -> bool:
        return max(self.predicted, self.measured) > SHOWN * (self.work + self.measured)

    @property
    def accuracy(self) -> float:
        """Of the waiting; of the step, where less than a tenth of it is waiting."""
        of = self.measured if self.shows else self.work + self.measured
        return max(0.0, 1 - abs(self.predicted - self.measured) / max(of, 1e-9))


def calibrated(folder: Path, ranks: Sequence[int], seconds: float) -> System:
    """What is played, with its shared files as they were measured."""
    truth, readings = system(), []
    for count in ranks:
        out = folder / f"storage-{count}.jsonl"
        outcome, _ = measure_storage(
            out, str(folder / "measured"), seconds=seconds, threads=[1, 2, THREADS], ranks=count,
            made={"samples": 120, "size": 4e5}, played=played(truth), say=say,
        )  # fmt: skip
        assert outcome.complete, outcome.message
        readings.append(read(out))
    unknown = replace(truth, storage=replace(truth.storage, shared=None))  # type: ignore[type-var]
    fits = calibration.fits(readings)
    say("\n".join(line for fit in fits for line in fit.text()))
    return replace(truth, storage=calibration.with_fits(unknown.storage, fits))


def loop(settings: Sequence[Setting], folder: Path, steps: int, known: System) -> Iterator[Row]:
    """Run each configuration, and compare."""
    for ranks in sorted({one.ranks for one in settings}):
        mine = [one for one in settings if one.ranks == ranks]
        jobs = [one.job(folder / f"samples-{ranks}-{k}", steps) for k, one in enumerate(mine)]
        for one, found in zip(mine, _ran(jobs, folder, f"ranks-{ranks}"), strict=True):
            waited, waits = found.reading["seconds"], found.reading["each"]
            work = statistics.median(np.subtract(found.step_seconds, waits).tolist())
            here = replace(known, levels=system(one.ports).levels)
            # reading goes on while the executor writes down what a step took
            beside = work + found.reading["between"]
            yield Row(one.title, work, one.predicted(here, beside), waited)


def _ran(jobs: Sequence[PlanRun], folder: Path, name: str) -> list[Measurement]:
    ranks = int(np.prod([int(w.partition(":")[2] or 1) for w in jobs[0].plan.split()]))
    outcome, found = run(jobs, folder / f"{name}.json", ranks=ranks, say=say, timeout=120)
    assert outcome.complete, outcome.message
    return found


def figures(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Accuracy over all and by mode, and its worst."""
    modes = sorted({row.setting.partition(",")[0] for row in rows})
    by = {f"reading_loop.{mode}.accuracy": [r.accuracy for r in rows if r.setting.startswith(mode)]
          for mode in modes}  # fmt: skip
    found: dict[str, dict[str, Any]] = {
        "reading_loop.configurations": {"value": len(rows), "goal": ">= 12"},
        "reading_loop.accuracy": {
            "value": round(statistics.mean(row.accuracy for row in rows), 4), "goal": ">= 0.90"},
        "reading_loop.worst": {"value": round(min(row.accuracy for row in rows), 4), "goal": ""},
    }  # fmt: skip
    return found | {name: {"value": round(statistics.mean(each), 4), "goal": ""}
                    for name, each in by.items()}  # fmt: skip


def table(rows: Sequence[Row], found: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'configuration':64} {'work':>7} {'predicted':>9} {'measured':>9} {'accuracy':>8}"]
    lines += [
        f"{row.setting:64} {row.work * 1e3:5.1f}ms {row.predicted * 1e3:7.1f}ms "
        f"{row.measured * 1e3:7.1f}ms {row.accuracy:8.1%}" for row in rows
    ]  # fmt: skip
    lines += ["", *(f"{name:44} {one['value']:>9} {one['goal']}" for name, one in found.items())]
    return "\n".join(lines)


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.reading_loop", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two configurations, uncalibrated")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="keep all files here")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        out = given.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        known = system() if given.quick else calibrated(out, (1, 2, 4), 20.0)
        rows = list(loop(QUICK if given.quick else SETTINGS, out, 6 if given.quick else 14, known))
    found = figures(rows)
    if given.json:
        document = {"figures": found, "rows": [asdict(row) for row in rows]}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        sys.stdout.write(table(rows, found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

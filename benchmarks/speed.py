"""How fast the oracle answers: cold commands, plans per CPU second, memory of a million plans.

    python -m benchmarks.speed [--quick] [--counts] [--json | --record]

CPU seconds, medians of several runs, of questions of 16,384 devices and more of one; 2^20 devices
are left out by `--quick`. The peer's figure stands beside ours for scale. Then the work of each
question, counted (`benchmarks.work`); `--counts` prints the counts alone, `--record` keeps them
for the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core, as the command line

import numpy as np

import oracle
from benchmarks import work
from benchmarks.questions import TABLES, TIMED
from oracle.plan.plan import Plan
from oracle.plan.strategies import strategies
from oracle.predict import evaluate
from oracle.predict.evaluate import Options

LARGE = 2**14  # devices from where a command is asked once, with `--quick` not above it
MILLION = 3.0  # CPU seconds that a million plans of either model shall take at most
CALCULON = 142.0  # evaluations per second on one quiet core, measured by us


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--counts", action="store_true", help="count work, time nothing")
    parser.add_argument("--record", action="store_true", help="keep the counts for the tests")
    arguments = parser.parse_args()
    counts = {
        name: work.counted(name)
        for name in work.QUESTIONS
        if not arguments.quick or devices_of(name) <= LARGE
    }
    if arguments.record:
        kept = json.loads(work.RECORD.read_text(encoding="utf-8")) if work.RECORD.exists() else {}
        work.RECORD.write_text(json.dumps(kept | counts, indent=1) + "\n", encoding="utf-8")
        return 0
    figures = {} if arguments.counts else timed(arguments.quick)
    for name, count in counts.items():
        for key, value in count.items():
            figures[f"{name}.{key}"] = {"value": value, "unit": "", "goal": ""}
    if arguments.as_json:
        print(json.dumps({"figures": figures, "rows": []}, indent=1))
    else:
        for name, figure in figures.items():
            value = (
                f"{figure['value']:,.3g}" if figure["value"] < 1e4 else f"{figure['value']:,.0f}"
            )
            print(f"{name:<42} {value:>12} {figure['unit']:<6} {figure['goal']}")
    return 0


def devices_of(question: str) -> int:
    """Return the devices that end the name of a question, 1 where none do."""
    number = question.rpartition("_")[2]
    return int(number) if number.isdigit() else 1


def timed(quick: bool) -> dict[str, dict[str, Any]]:
    """Return the CPU seconds of each command, and those and the memory of tables of plans."""
    figures: dict[str, dict[str, Any]] = {}
    cold(["--help"])  # bytecode is compiled once, as an installation does
    for name, (words, goal) in TIMED.items():
        devices = devices_of(name)
        if quick and devices > LARGE:
            continue
        times = 1 if devices >= LARGE else 3 if quick else 7
        seconds = statistics.median(cold(words.split()) for _ in range(times))
        figures[f"{name}.cpu_seconds"] = {"value": seconds, "unit": "s", "goal": f"≤ {goal} s"}
        if devices >= LARGE:  # with what the process before has counted
            with tempfile.TemporaryDirectory() as folder:
                _, again = (cold(words.split(), folder) for _ in range(2))
            figures[f"{name}.again.cpu_seconds"] = {"value": again, "unit": "s", "goal": ""}
    count = 50_000 if quick else 1_000_000
    for name, system in TABLES.values():
        seconds, plans, growth = many(name, system, count)
        figures[f"{name}.plans"] = {"value": plans, "unit": "plans", "goal": ""}
        figures[f"{name}.cpu_seconds_per_million"] = {
            "value": seconds * 1e6 / plans, "unit": "s", "goal": f"≤ {MILLION} s"}  # fmt: skip
        figures[f"{name}.plans_per_cpu_second"] = {
            "value": plans / seconds, "unit": "1/s",
            "goal": f"Calculon: {CALCULON:.0f}"}  # fmt: skip
        figures[f"{name}.memory_growth"] = {"value": growth, "unit": "MiB", "goal": "flat"}
    return figures


def cold(words: list[str], cache: str = "off") -> float:
    """CPU seconds of a fresh process, those of its children included."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    kept["ORACLE_COUNTS"] = cache
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "oracle", *words], check=True, capture_output=True, env=kept
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def many(name: str, system_name: str, count: int) -> tuple[float, int, float]:
    """(CPU seconds, plans, growth of memory in MiB) of a table of distinct plans."""
    model, system = oracle.model(name), oracle.system(system_name)
    tokens = bool(model.tokens.any())
    options = Options("bf16" if tokens else "fp32", "adam" if tokens else "momentum")
    plan = table(count, tokens)
    for _ in evaluate.blocks(model, system, plan[np.arange(min(64, len(plan)))], options):
        pass  # patterns are priced once
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, best = time.process_time(), np.inf
    for _, part in evaluate.blocks(model, system, plan, options):
        best = min(best, float(part.seconds.min()))
    spent = time.process_time() - start
    return spent, len(plan), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024


def table(count: int, tokens: bool) -> Plan:
    """Distinct plans: every product of powers of two, batches and knobs, the first `count`."""
    twos = [1, 2, 4, 8, 16, 32, 64]
    inner = {"tensor": twos[:4], "context": twos[:3]} if tokens else {
        "filter": twos[:4], "spatial": twos[:4]}  # fmt: skip
    columns = {
        "batch": [256, 512, 768, 1024, 1536, 2048, 3072, 4096],
        "pipeline": twos[:5], "segments": twos[1:], "data": [2, 4, 8, 16, 32, 64, 128],
        "zero": [0, 1, 2, 3], "mode": [0, 1, 2], "schedule": [0, 1], "accumulate": [1, 2], **inner,
    }  # fmt: skip
    rows = np.fromiter(
        (value for row, _ in zip(product(*columns.values()), range(count), strict=False)
         for value in row), float,
    ).reshape(-1, len(columns))  # fmt: skip
    at = dict(zip(columns, rows.T, strict=True))
    known = strategies()
    given = {
        "pipeline": {"degree": at["pipeline"], "segments": at["segments"],
                     "schedule": at["schedule"]},
        "data": {"degree": at["data"], "zero": at["zero"], "accumulate": at["accumulate"]},
        "recompute": {"mode": at["mode"]},
        **{name: {"degree": at[name]} for name in inner},
    }  # fmt: skip
    return Plan.of(at["batch"], *(new(**given.get(name, {})) for name, new in known.items()))


if __name__ == "__main__":
    sys.exit(main())

"""Runs on few devices predict runs on many: ParaDL's logs of ResNet-50, by `oracle calibrate run`.

    python -m benchmarks.run_calibration [--json]

Logs of data parallelism on 1, 2, 4 and 8 V100 of ABCI, epochs' medians with what differs between
epochs, are given to `calibrate run`; what comes of it predicts the runs on 16 to 128. No run on
more than 8 is seen. Accuracy is 1 − |predicted − measured| / measured. Of several runs on as many,
`measured` is their median and `fastest` the least epoch of any: logs hold the time that devices
wait for samples, and other jobs' traffic (ParaDL calls 128 and beyond congested).
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import oracle
from oracle.calibration.run_parts import Run
from oracle.calibration.runs import RunFit, fit
from oracle.predict.defaults import options_for
from oracle.readers.runs import RunLog, Timing

RUNS = Path(__file__).parent / "data" / "paradl_runs_resnet.csv"
MODEL, SYSTEM, SOFTWARE = "resnet50-226", "abci", "chainermn"
SEEN, MOST = 8, 128  # devices, of logs that are given, and of those that are predicted


def logs() -> dict[int, list[dict[str, float]]]:
    """Median, least and most seconds of an iteration over epochs, by devices, run by run."""
    found: dict[int, list[dict[str, float]]] = {}
    with RUNS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            numbers = {name: float(row[name]) for name in ("batch", "median", "least", "most")}
            found.setdefault(int(row["devices"]), []).append(numbers)
    return found


def run_of(devices: int, row: dict[str, float]) -> Run:
    """A log as `calibrate run` takes it; between its epochs lie four standard deviations at most.

    The least stands for both sides: the longest of ten epochs is another job's work.
    """
    spread = (row["median"] - row["least"]) / 2 / row["median"]
    log = RunLog(f"{devices} devices", "epochs", step=Timing(row["median"], spread, 10))
    return Run(log, f"data:{devices}", int(row["batch"]))


def fitted() -> RunFit:
    """What the logs on few devices tell."""
    model, system = oracle.model(MODEL), oracle.system(SYSTEM)
    options = options_for(model, system, "fp32", "adam", software=SOFTWARE, any_plan=True)
    few = [run_of(p, row) for p, rows in logs().items() if p <= SEEN for row in rows]
    return fit(few, model, system, options)


def table() -> list[dict[str, Any]]:
    """The runs on many devices: measured, predicted without logs and with them."""
    told = fitted().profile
    rows = []
    for devices, found in sorted(logs().items()):
        if not SEEN < devices <= MOST:
            continue
        measured = statistics.median(row["median"] for row in found)
        batch = int(found[0]["batch"])
        plain, with_logs = (
            oracle.estimate(MODEL, SYSTEM, f"data:{devices}", batch, precision="fp32",
                            optimizer="adam", software=SOFTWARE, any_plan=True, profile=profile,
                            reading="none")
            for profile in (None, told)
        )  # fmt: skip
        now = float(with_logs.seconds[0])
        low, high = float(with_logs.seconds_low[0]), float(with_logs.seconds_high[0])
        fastest = min(row["least"] for row in found)
        rows.append({
            "devices": devices, "measured": measured, "fastest": fastest, "predicted": now,
            "without logs": float(plain.seconds[0]),
            "accuracy": 1 - abs(now / measured - 1), "of the fastest": 1 - abs(now / fastest - 1),
            "accuracy without logs": 1 - abs(float(plain.seconds[0]) / measured - 1),
            "low": low, "high": high, "covered": low <= measured <= high,
        })  # fmt: skip
    return rows


def figures(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Mean accuracy, with 128 and without, and how often the interval held."""
    found = {}
    for name, some in (("16-128", rows), ("16-64", [r for r in rows if r["devices"] <= 64])):
        for kind in ("accuracy", "of the fastest", "accuracy without logs"):
            value = statistics.mean(row[kind] for row in some)
            goal = ">= 0.92" if (name, kind) == ("16-128", "accuracy") else ""
            found[f"paradl_runs.{name}.{kind.replace(' ', '_')}"] = {
                "value": round(value, 4), "unit": "", "goal": goal}  # fmt: skip
    held = sum(row["covered"] for row in rows)
    found["paradl_runs.covered"] = {"value": held, "unit": f"of {len(rows)}", "goal": ""}
    return found


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    rows = table()
    result = {"figures": figures(rows), "rows": rows}
    if asked.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return 0
    for row in rows:
        sys.stdout.write("  ".join(
            f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in row.items()) + "\n")  # fmt: skip
    for name, figure in result["figures"].items():
        sys.stdout.write(f"{name}: {figure['value']} {figure['unit']} {figure['goal']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Trainings on one GPU: what the oracle says before, and what they took.

    python -m benchmarks.gpu                       predictions, and results where there are any
    python -m benchmarks.gpu --predict             write predictions, before anything is measured
    python -m benchmarks.gpu --measure --out DIR   run the trainings on the GPU that is here
    python -m benchmarks.gpu --measure --out DIR --dry   … of tiny networks, on any machine

`benchmarks/gpu.sh` does all that a GPU is wanted for, in order of worth. Predictions and results
lie in `benchmarks/data/gpu`. `--system` names another machine, or the folder that
`oracle measure machine` wrote.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu.trainings import TRAININGS
from benchmarks.table import Table, figure, text

HERE = Path(__file__).parents[1] / "data" / "gpu"
SYSTEM = "dgx-h100"
SECONDS = 240.0  # that all trainings together may take
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--dry", action="store_true", help="tiny networks, on any machine")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR")
    parser.add_argument("--system", default=SYSTEM)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all trainings")
    parser.add_argument("--json", action="store_true", dest="as_json")
    arguments = parser.parse_args()
    if arguments.predict:
        from benchmarks.gpu.predict import predicted

        rows = [predicted(training, arguments.system) for training in TRAININGS]
        write(arguments.out / "predicted.jsonl", rows)
        return 0
    if arguments.measure:
        from benchmarks.gpu.measure import run

        arguments.out.mkdir(parents=True, exist_ok=True)
        path = arguments.out / "measured.jsonl"
        return 0 if run(TRAININGS, path, arguments.seconds, tiny=arguments.dry) else 1
    table = compared(rows_of(HERE / "predicted.jsonl"), rows_of(arguments.out / "measured.jsonl"))
    print(json.dumps(table, indent=1) if arguments.as_json else text(table))
    return 0


def write(path: Path, rows: list[Row]) -> None:
    """Write rows, one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rows_of(path: Path) -> dict[str, Row]:
    """Return the rows of a file by name, none where there is no file."""
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["name"]: row for row in rows}


def compared(predictions: dict[str, Row], results: dict[str, Row]) -> Table:
    """Return predictions beside results, with errors of seconds and bytes."""
    rows, time_errors, memory_errors, inside = [], [], [], 0
    for name, prediction in predictions.items():
        result = results.get(name, {})
        row = {
            "training": name,
            "predicted ms": f"{1e3 * prediction['seconds']:.1f}",
            "90 %": f"{1e3 * prediction['low']:.1f} to {1e3 * prediction['high']:.1f}",
            "GiB": f"{prediction['allocated'] / 2**30:.1f}",
            "P(fits)": f"{prediction['fits']:.2f}",
        }
        if "seconds" in result:
            error = prediction["seconds"] / result["seconds"] - 1
            time_errors.append(abs(error))
            inside += prediction["low"] <= result["seconds"] <= prediction["high"]
            row |= {"took ms": f"{1e3 * result['seconds']:.1f}", "error": f"{error:+.0%}"}
        else:
            row["took ms"] = result.get("left") or str(result.get("failed", ""))[-60:]
        if "allocated" in result:
            error = prediction["allocated"] / result["allocated"] - 1
            memory_errors.append(abs(error))
            row |= {"held GiB": f"{result['allocated'] / 2**30:.1f}", "of memory": f"{error:+.0%}"}
        rows.append(row)
    figures = {}
    if time_errors:
        figures["gpu.seconds"] = figure(100 * statistics.median(time_errors), "%", "<= 15")
        figures["gpu.inside"] = figure(100 * inside / len(time_errors), "%", ">= 90")
    if memory_errors:
        figures["gpu.memory"] = figure(100 * statistics.median(memory_errors), "%", "<= 5")
    notes = [] if results else ["nothing was measured yet: bash benchmarks/gpu.sh on a GPU"]
    title = "Trainings by plain PyTorch on one GPU, predicted and measured"
    return {"title": title, "rows": rows, "figures": figures, "notes": notes}


if __name__ == "__main__":
    sys.exit(main())

"""From a step to a training, held against what runs took: epochs, failures, device-hours.

    python -m benchmarks.run [--quick] [--json]

Epochs by batch are MLPerf's reference points; a run's hours are predicted seconds a step, times
its steps, over the share of progress that its authors state. Nothing is fitted to hours.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from statistics import mean, median
from typing import Any

import numpy as np

import oracle
from benchmarks.published import CARRIED, rows
from benchmarks.table import Table, figure, text
from oracle.run.convergence import fit, left_out
from oracle.run.goodput import between_failures, goodput

HOUR, DAY = 3600.0, 86400.0
PASS = {"unet3d": 168.0}  # samples of an epoch; later rounds count in samples what others in epochs
CHANGED = {"ssd": "training_2.0.0"}  # the round from which on it is another network and data set
GOALS = {"resnet": (0.05, 0.10), "bert": (0.05, 0.10), "ssd": (0.05, None)}
RUNS, TURNS = 10_000, 100
MACHINES = [  # between failures, checkpoint, restart, safe only after
    (3.09 * HOUR, 60.0, 600.0, 0.0), (3.09 * HOUR, 5.0, 600.0, 300.0), (24 * HOUR, 300.0, 1200.0,
     0.0), (1800.0, 60.0, 300.0, 0.0), (7.9 * HOUR, 300.0, 750.0, 0.0),
]  # fmt: skip


def points() -> dict[str, tuple[list[float], list[float]]]:
    """task -> batches and epochs (samples of text), the mean of each setting's runs."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows(CARRIED / "epochs_vs_batch.csv"):
        name, took = row["benchmark"], float(row["epochs_mean"])
        if name in PASS and took > 1e4:
            took /= PASS[name]
        if name in CHANGED and row["round"] >= CHANGED[name]:
            name = "retinanet"
        batches, epochs = found.setdefault(name, ([], []))
        batches.append(float(row["global_batch"]))
        epochs.append(took)
    return found


def convergence() -> Table:
    """Each batch of each task as the others predict it."""
    found, figures, every = [], {}, []
    for name, (batches, epochs) in points().items():
        law, errors = fit(batches, epochs), left_out(batches, epochs)
        off = [abs(error) for _, error in errors]
        every += off
        largest = next(error for batch, error in errors if batch == max(batches))
        found.append({
            "task": name, "points": len(batches), "e₀": f"{law.epochs:.4g}",
            "B_c": f"{law.critical:.4g}", "scatter": f"{law.scatter:.1%}",
            "left out, mean": f"{mean(off):.1%}", "median": f"{median(off):.1%}",
            "largest": f"{largest:+.1%}",
        })  # fmt: skip
        goal = GOALS.get(name)
        figures[f"{name}.left_out"] = figure(mean(off), "", f"≤ {goal[0]}" if goal else "")
        if goal and goal[1]:
            figures[f"{name}.largest"] = figure(abs(largest), "", f"≤ {goal[1]}")
    figures["all.left_out"] = figure(mean(every), "", "≤ 0.08")
    return {"title": "epochs by batch, every batch left out in turn", "rows": found,
            "figures": figures}  # fmt: skip


def played(
    between: float, checkpoint: float, restart: float, interval: float, safe_after: float,
    runs: int, turns: int = TURNS,
) -> float:  # fmt: skip
    """The share of progress of so many jobs, played failure by failure."""
    draw = np.random.default_rng(0)
    turn = interval + checkpoint
    now, kept, safe = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    failure = draw.exponential(between, runs)
    at = np.arange(runs)  # jobs under way
    while len(at):
        through = failure[at] > now[at] + turn
        good, bad = at[through], at[~through]
        now[good] += turn
        kept[good] += 1
        safe[good] = now[good] + safe_after
        now[bad] = failure[bad]
        unsafe = bad[now[bad] < safe[bad]]  # the last checkpoint was still on its way
        kept[unsafe] -= 1
        safe[bad] = 0.0
        left = bad
        while len(left):  # a restart may fail too
            next_ = draw.exponential(between, len(left))
            done = next_ > restart
            failure[left] = now[left] + next_
            now[left] += np.where(done, restart, next_)
            left = left[~done]
        at = at[kept[at] < turns]
    return float(np.mean(kept * interval / now))


def failures(quick: bool) -> Table:
    """Closed forms against jobs that are played, and interruptions that were published."""
    lines, off = [], []
    for between, checkpoint, restart, safe_after in MACHINES:
        found = goodput(between, checkpoint, restart, safe_after=safe_after)
        share = played(between, checkpoint, restart, float(found.interval), safe_after,
                       RUNS // 10 if quick else RUNS)  # fmt: skip
        off.append(abs(float(found.progress) / share - 1))
        lines.append({
            "a failure each": f"{between / HOUR:.3g} h", "checkpoint": f"{checkpoint:g} s",
            "safe after": f"{safe_after:g} s", "restart": f"{restart:g} s",
            "interval": f"{float(found.interval):.0f} s", "closed": f"{float(found.progress):.2%}",
            "played": f"{share:.2%}",
        })  # fmt: skip
    # 419 unexpected interruptions of 16,384 H100 in 54 days [grattafiori2024, Table 5]
    each = between_failures(16384, 54 * DAY * 16384 / 419) / HOUR
    return {
        "title": "goodput: closed form against a simulation of failures", "rows": lines,
        "figures": {"closed_form.worst": figure(max(off), "", "≤ 0.01"),
                    "llama3_405b.hours_between": figure(each, "h", "3.1 published")},
    }  # fmt: skip


def hours() -> Table:
    """Device-hours of published trainings, whose plan and goodput their authors state."""
    lines, figures = [], {}
    for case in published():
        name, share, reported = case["model"], case["goodput"], case["hours"]
        shown = oracle.estimate(name, case["system"], case["plan"], batch=case["batch"],
                                software=case["software"], precision="bf16",
                                optimizer="adam")  # fmt: skip
        steps = math.ceil(case["tokens"] / (case["batch"] * case["sequence"]))
        seconds = float(shown.seconds[0])
        taken = seconds * steps / share * float(shown.devices[0]) / HOUR
        lines.append({
            "training": name, "steps": steps, "step": f"{seconds:.4g} s", "goodput": f"{share:.0%}",
            "device-hours": f"{taken:,.0f}", "reported": f"{reported:,.0f}",
            "off": f"{taken / reported - 1:+.1%}",
        })  # fmt: skip
        figures[f"{name}.hours"] = figure(abs(taken / reported - 1), "", "≤ 0.1")
    return {"title": "device-hours of published trainings", "rows": lines, "figures": figures}


def published() -> Iterator[dict[str, Any]]:
    """BLOOM: 366 G tokens on 384 A100; 106.3 of 118.2 days were progress.

    bigscience-workshop/bigscience@9e64edec2a, train/tr11-176B-ml/README.md (plan) and chronicles.md
    (days); hours: arXiv 2211.02001, Table 1.
    """
    yield {"model": "bloom-176b", "system": "jean-zay", "software": "megatron-deepspeed",
           "plan": "pipeline:12,segments=128 data:8,zero=1 tensor:4 recompute:full",
           "batch": 2048, "sequence": 2048, "tokens": 366e9, "goodput": 0.90,
           "hours": 1_082_990}  # fmt: skip


def main() -> int:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--quick", action="store_true", help="fewer simulated jobs")
    parser.add_argument("--json", action="store_true", help="figures for a program")
    asked = parser.parse_args()
    tables = {"convergence": convergence(), "failures": failures(asked.quick), "hours": hours()}
    if asked.json:
        print(json.dumps({"figures": {f"{name}.{key}": value for name, table in tables.items()
                                      for key, value in table["figures"].items()},
                          "tables": tables}, indent=2))  # fmt: skip
    else:
        print("\n".join(text(table) for table in tables.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

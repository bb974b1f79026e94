"""MLPerf's ResNet-50 on up to 64 GPUs: minutes until 75.9 %, by steps, epochs and evaluations.

The batch is what was run; epochs are the law's, not the entry's. Entries of SGD, of rounds with
another target (0.5: 74.9 %), of another rule, and of GPUs that no shipped system has are left out.
"""

from __future__ import annotations

from statistics import median

import oracle
from benchmarks.published import CARRIED, Row, number, rows
from benchmarks.published.pictures import CARDS, software
from benchmarks.table import Table, figure
from oracle.run.target import to_target, training

MOST = 64  # GPUs
LARS = ("lars",)
MODEL = "ResNet-50 v1.5 (MLPerf)"


def card(row: Row) -> str | None:
    """The shipped system of an entry's GPUs."""
    name = row["gpu"].removeprefix("NVIDIA ")
    return next((system for gpu, system in CARDS.items() if name.startswith(gpu)), None)


def entry(row: Row) -> bool:
    """Whether it is an entry that is looked at."""
    listed = row["optimizer"] in LARS and card(row) is not None
    return listed and bool(row["ttt_min"]) and 0 < number(row, "gpus") <= MOST


def table(quick: bool = False) -> Table:
    """Predicted and reported minutes, entry by entry, and by the kind of GPU."""
    lines, off, steps = [], [], []
    for row in rows(CARRIED / "time_to_train.csv"):
        system, gpus = card(row), number(row, "gpus")
        if system is None:
            continue
        shown = oracle.estimate(
            "resnet50", system, f"data:{gpus}", batch=number(row, "global_batch"),
            precision="fp16", optimizer="lars", software=software({**row, "model": MODEL}),
            reading="none", grow=True,
        )  # fmt: skip
        length = to_target(shown)
        one = training(shown, 0, length)
        took, needed = float(row["ttt_min"]), float(row["epochs_to_target"])
        off.append(one.seconds / 60 / took - 1)
        # with the epochs that the entry needed: what is left is the step's error
        steps.append(one.seconds / 60 * needed / (length.epochs or needed) / took - 1)
        lines.append({
            "entry": row["system"], "GPUs": gpus, "batch": number(row, "global_batch"),
            "epochs": f"{length.epochs:.1f}", "it needed": f"{needed:g}",
            "minutes": f"{one.seconds / 60:.4g}", "reported": f"{took:.4g}",
            "off": f"{off[-1]:+.1%}",
        })  # fmt: skip
    return {
        "title": f"MLPerf ResNet-50 to its target, {len(lines)} entries of up to {MOST} GPUs",
        "rows": lines[:: 10 if quick else 1],
        "figures": {
            "time_to_train.median": figure(median(map(abs, off)), "", "≤ 0.2"),
            "time_to_train.of_known_epochs": figure(median(map(abs, steps)), "", ""),
            "time_to_train.entries": figure(len(lines), "", ""),
        },
    }  # fmt: skip

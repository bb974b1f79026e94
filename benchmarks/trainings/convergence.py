"""Epochs by batch: laws held against MLPerf's reference points, each left out in turn."""

from __future__ import annotations

from statistics import mean, median

from benchmarks.published import CARRIED, rows
from benchmarks.table import Table, figure
from oracle.run.convergence import fit, left_out

PASS = {"unet3d": 168.0}  # samples of an epoch; later rounds count in samples what others in epochs
CHANGED = {"ssd": "training_2.0.0"}  # the round from which on it is another network and data set
GOALS = {"resnet": (0.05, 0.10), "bert": (0.05, 0.10), "ssd": (0.05, None)}


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


def table(quick: bool = False) -> Table:
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

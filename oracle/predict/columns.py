"""Plans of an estimate as columns of a data frame."""

from __future__ import annotations

from typing import Any

from oracle.predict.memory import KINDS

PARTS = ("forward", "backward", "update", "bubble", "recompute")


def columns_of(estimate: Any) -> dict[str, Any]:
    """Every part of every plan, by name."""
    columns: dict[str, Any] = {
        "plan": estimate.plans, "batch": estimate.batch, "devices": estimate.devices,
        "seconds": estimate.seconds, "seconds_low": estimate.seconds_low,
        "seconds_high": estimate.seconds_high, "feasible": estimate.feasible,
        "broken": ["; ".join(words) for words in estimate.broken],
    }  # fmt: skip
    if estimate.epoch is not None:
        columns["epoch_seconds"] = estimate.epoch
    columns |= {f"compute.{part}": estimate.compute[part] for part in PARTS}
    names = dict.fromkeys(m["what"] for messages in estimate.exchange for m in messages)
    for name in names:
        for figure in ("seconds", "exposed"):
            columns[f"exchange.{name}.{figure}"] = [
                sum(m[figure] for m in messages if m["what"] == name)
                for messages in estimate.exchange
            ]
    waits = [0.0 if reading is None else reading["exposed"] for reading in estimate.reading]
    columns |= {"reading": [reading and reading["mode"] for reading in estimate.reading],
                "reading.exposed": waits}  # fmt: skip
    columns["memory"] = estimate.memory
    columns |= {f"memory.{kind}": estimate.memory_kinds[kind] for kind in KINDS}
    return columns

"""Plans of an estimate as columns of a data frame."""

from __future__ import annotations

from typing import Any

from oracle.predict.memory import KINDS

PARTS = ("forward", "backward", "update", "bubble", "recompute")


def columns_of(shown: Any) -> dict[str, Any]:
    """Every part of every plan, by name."""
    columns: dict[str, Any] = {
        "plan": shown.plans, "batch": shown.batch, "devices": shown.devices,
        "seconds": shown.seconds, "seconds_low": shown.seconds_low,
        "seconds_high": shown.seconds_high, "feasible": shown.feasible,
        "broken": ["; ".join(words) for words in shown.broken],
    }  # fmt: skip
    if shown.epoch is not None:
        columns["epoch_seconds"] = shown.epoch
    columns |= {f"compute.{part}": shown.compute[part] for part in PARTS}
    names = dict.fromkeys(m["what"] for messages in shown.exchange for m in messages)
    for name in names:
        for figure in ("seconds", "exposed"):
            columns[f"exchange.{name}.{figure}"] = [
                sum(m[figure] for m in messages if m["what"] == name) for messages in shown.exchange
            ]
    waits = [0.0 if reading is None else reading["exposed"] for reading in shown.reading]
    columns |= {"reading": [reading and reading["mode"] for reading in shown.reading],
                "reading.exposed": waits}  # fmt: skip
    columns["memory"] = shown.memory
    columns |= {f"memory.{kind}": shown.memory_kinds[kind] for kind in KINDS}
    return columns

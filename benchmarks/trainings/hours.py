"""Device-hours of published trainings whose plan and goodput their authors state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import oracle
from benchmarks.table import Table, figure

HOUR = 3600.0


def table(quick: bool = False) -> Table:
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

"""Checkpoints: bytes of published ones from the models' weights, seconds where storage is stated.

Software and plan are the published ones. Nothing is fitted. Where nobody says how fast the storage
writes, what was written by the seconds it took is printed.
"""

from __future__ import annotations

import math

import oracle
from benchmarks.published import RUNS, rows
from benchmarks.table import Table, figure
from oracle.run.checkpoints import saving
from oracle.spec.running import Checkpoint

# row of checkpoints.csv -> model, system, plan, batch, software
CASES = {
    # DeepSpeed shards the optimizer's state over eight replicas
    "chec000": ("bloom-176b", "jean-zay",
                "pipeline:12,segments=128 data:8,zero=1 tensor:4 recompute:full", 2048,
                "megatron-deepspeed"),
    # moments in fp32, weights in fp16 without masters: arXiv 2205.01068, section 2.2
    "chec002": ("opt-175b", "dgx-a100", "data:124,zero=3 tensor:8", 992,
                "megatron-core,state.masters=none"),
    "chec030": ("llama3-8b", "dgx-h100", "data:8,zero=1", 8, "megatron-core"),
    "chec031": ("llama3-70b", "dgx-h100", "data:8,zero=1 tensor:8", 64, "megatron-core"),
    "chec032": ("llama3-405b", "dgx-h100", "pipeline:32,segments=32 data:2,zero=1 tensor:8", 64,
                "megatron-core"),
    "chec023": ("mt-nlg-530b", "dgx-a100", "pipeline:35,segments=8 data:8 tensor:8", 1920,
                "megatron-lm-2021"),
}  # fmt: skip
GIB = 2.0**30 / 1e9


def table(quick: bool = False) -> Table:
    """Bytes and seconds beside those that were published."""
    known = {row["id"]: row for row in rows(RUNS / "checkpoints.csv")}
    lines, figures = [], {}
    for name, (model, system, plan, batch, software) in CASES.items():
        one = known[name]
        shown = oracle.estimate(model, system, plan, batch, software=software, precision="bf16",
                                optimizer="adam", grow=True, any_plan=True)  # fmt: skip
        found = saving(shown, 0, Checkpoint("sharded"))
        size, stated = found.state.whole / 1e9, float(one["size_GB"] or "nan")
        seconds = took = None
        if name == "chec000":  # bytes a second are those of its file system
            seconds, took = found.seconds, float(one["seconds"])
        elif one["GB_per_s"]:
            seconds, took = size / float(one["GB_per_s"]), float(one["seconds"])
        lines.append({
            "checkpoint": one["model"], "B a parameter": f"{found.state.each:.4g}",
            "GB": f"{size:,.0f}", "GiB": f"{size / GIB:,.0f}",
            "stated": one["size_GB"], "off in GB": _off(size, stated),
            "in GiB": _off(size / GIB, stated),
            "s": f"{seconds:,.3g}" if seconds else "", "stated s": took or "",
            "off in s": _off(seconds or 0.0, took or math.nan),
        })  # fmt: skip
        if stated > 0:
            figures[f"{model}.bytes"] = figure(abs(size / stated - 1), "", "≤ 0.1")
        if seconds and took:
            figures[f"{model}.seconds"] = figure(abs(seconds / took - 1), "", "")
    notes = [f"{one['model']}, {one['operation']} in {one['seconds']} s: storage not stated, "
             f"{14 * float(one['params_B']) / float(one['seconds']):,.3g} GB/s implied"
             for name in ("chec017", "chec018", "chec022", "chec024")
             if (one := known[name])["seconds"]]  # fmt: skip
    return {
        "title": "checkpoints: bytes and seconds beside published ones", "rows": lines,
        "figures": figures,
        "notes": ["published in GB or TB; read as GiB, all sizes are met within 2 %", *notes],
    }  # fmt: skip


def _off(ours: float, stated: float) -> str:
    return "" if math.isnan(stated) else f"{ours / stated - 1:+.1%}"

"""Energy and carbon: of hours that were reported, and power of nodes that were measured.

Nodes of eight H100 in MLPerf Training 4.0, immersion-cooled, at the wall (computed from their power
logs, `runs/power.csv`). What is taken from them: idle, 2,075 W (powe024), and the most at work,
7,378 W (the peak of powe006), which leave 1,778 W beside eight devices of 700 W. Means of runs are
predicted, which hold evaluations and, of the short ones of many nodes, the start.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import oracle
from benchmarks.table import Table, figure
from oracle.run.costs import costs
from oracle.run.power import load_of
from oracle.spec.system import System

RUNS = Path(__file__).parents[1] / "data" / "runs"
NODES = "dgx-h100,node_power=1778 W"
COOLED_BY_AIR = ("powe018",)  # as `dgx-h100` says, from another node's most (powe031)
LORA = "llama2-70b,train=lora:16,sequence=8192"
# row of power.csv: model, software, precision, plan, batch
MEASURED = {
    "powe000": ("bert-large", "mlperf-nemo", "fp16", "data:8,accumulate=4", 768),
    "powe001": ("dlrm-dcnv2", "plain", "bf16", "data:8", 55296),
    "powe002": (LORA, "mlperf-nemo", "fp8", "data:2,accumulate=4 tensor:4,sequence=on", 8),
    "powe003": ("resnet50", "mlperf-resnet", "fp16", "data:8", 3200),
    "powe005": ("unet3d-kits19", "mlperf-unet3d", "fp16", "data:8", 56),
    "powe006": ("gpt3-175b", "mlperf-nemo", "fp8",
                "pipeline:8,segments=128,interleave=6 data:16 tensor:4,sequence=on", 2048),
    "powe007": (LORA, "mlperf-nemo", "fp8", "data:64 tensor:8,sequence=on", 64),
    "powe008": (LORA, "mlperf-nemo", "fp8", "data:8 tensor:4,sequence=on context:2", 8),
    "powe009": ("resnet50", "mlperf-resnet", "fp16", "data:64", 3200),
    "powe018": (LORA, "mlperf-nemo", "fp8", "data:8 tensor:4,sequence=on context:2", 8),
    "powe011": ("unet3d-kits19", "mlperf-unet3d", "fp16", "data:56", 56),
}  # fmt: skip
# run of runs.csv: system, devices of ours in one of theirs; PUE and grid where the row has none
META = {
    "pue": 1.1,
    "grid": 369.473,
}  # LLaMA's PUE (arXiv 2302.13971, Table 15), the US grid (powe061)
REPORTED: dict[str, tuple[str, int, dict[str, float]]] = {
    "bloom-176b": ("jean-zay", 1, {}),
    "poro-34b": ("lumi", 2, {}),
    **dict.fromkeys(("llama2-7b", "llama2-13b", "llama2-70b"), ("dgx-a100", 1, META)),
    **dict.fromkeys(("llama3-8b", "llama3-70b", "llama3.1-8b", "llama3.1-70b", "llama3.1-405b",
                     "llama3.2-1b", "llama3.2-3b"), ("dgx-h100", 1, META)),
}  # fmt: skip
FROM_ENERGY = ("olmo2-7b", "olmo2-13b", "olmo1-7b-a100")  # measured at the devices, no hours stated


@cache
def read(name: str) -> dict[str, dict[str, str]]:
    """The rows of a file, by their names."""
    with (RUNS / f"{name}.csv").open(encoding="utf-8") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def table(quick: bool = False) -> Table:
    """Reported hours first, then nodes that were measured."""
    found = [*hours()]
    nodes = [*powers()]
    off = [abs(row["ratio"] - 1) for row in found]
    worst = [abs(row["ratio"] - 1) for row in nodes]
    kept = [row["kept"] for row in nodes]
    lines = [
        {"what": row["what"], "predicted": row["predicted"], "reported": row["reported"],
         "off": f"{row['ratio'] - 1:+.1%}", "how": row["how"]}
        for row in (*found, *nodes)
    ]  # fmt: skip
    return {
        "title": "energy and carbon of reported hours; power of measured nodes", "rows": lines,
        "figures": {
            "hours.worst": figure(max(off), "", "≤ 0.1"),
            "hours.rows": figure(len(off), "", ""),
            "nodes.mape": figure(mean(worst), "", "≤ 0.1"),
            "nodes.covered": figure(mean(kept), "", "≥ 0.8"),
        },
        "notes": [
            "Llama: PUE and grid are not in their tables: LLaMA's 1.1 and the US grid of 2023",
            "single nodes come out 2 to 13 % low: bytes of memory are counted once an operand, "
            "however often a kernel moves them; LoRA on 64 nodes, high, ran two minutes in all",
            "OLMo states no hours: its carbon from its own measured energy, PUE and grid",
        ],
    }  # fmt: skip


def bare(name: str, pue: float, grid: float | None) -> System:
    """A machine whose devices alone are counted, at their rated power, as reports do."""
    where = oracle.system(name)
    assert where.device.power is not None
    device = replace(where.device, power=replace(where.device.power, idle=None))
    return replace(where, device=device, node_power=0.0, pue=pue, grid=grid)


def hours() -> Iterator[dict[str, Any]]:
    """Energy and carbon of the hours that a training is reported to have taken."""
    for name, (system, each, more) in REPORTED.items():
        row = read("runs")[name]
        grid = float(row["carbon_g_kWh"] or 0) or more.get("grid")
        where = bare(system, float(row["pue"] or more.get("pue", 1.0)), grid)
        paid = costs(where, each, float(row["device_hours"]) * 3600)
        if row["energy_kWh"]:
            yield told(f"{name}, kWh", paid.energy, row["energy_kWh"], row["energy_kind"])
        if row["carbon_t"] and paid.carbon is not None:
            yield told(f"{name}, t CO₂", paid.carbon / 1000, row["carbon_t"], "rated power × hours")
    for name in FROM_ENERGY:
        row = read("runs")[name]
        drawn = float(row["energy_kWh"]) * float(row["pue"])
        carbon = drawn * float(row["carbon_g_kWh"]) / 1e6
        yield told(f"{name}, t CO₂", carbon, row["carbon_t"], "measured energy × PUE × grid")


def told(what: str, predicted: float | None, reported: str, how: str) -> dict[str, Any]:
    assert predicted is not None
    return {"what": what, "predicted": f"{predicted:,.4g}", "reported": f"{float(reported):,.4g}",
            "ratio": predicted / float(reported), "how": how}  # fmt: skip


def powers() -> Iterator[dict[str, Any]]:
    """Watts of a node, while it trains, beside the mean of its runs."""
    for name, (model, software, precision, plan, batch) in MEASURED.items():
        row = read("power")[name]
        where = oracle.system("dgx-h100" if name in COOLED_BY_AIR else NODES)
        shown = oracle.estimate(model, where, plan, batch, software=software, any_plan=True,
                                precision=precision, reading="none")  # fmt: skip
        devices = float(shown.devices[0])
        load, watts = load_of(shown), float(row["value"])
        paid = costs(where, devices, 3600.0, load)
        nodes = -(-devices // where.node)
        mid, low, high = (1000 * (each or 0.0) / nodes
                          for each in (paid.energy, paid.energy_low, paid.energy_high))  # fmt: skip
        found = told(f"{row['what']}, W", mid, row["value"], f"u {load.share:.2f}")
        yield {**found, "kept": float(low <= watts <= high)}

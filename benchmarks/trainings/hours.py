"""Device-hours of published trainings: predicted where plan and goodput are stated, else implied.

Where device, plan and goodput are stated (or the hours are those of steps alone), steps × seconds ÷
goodput is held against the hours. Where they aren't, the share of the peak that the hours come to,
MFU × goodput = 6 N D / (hours × peak), is printed and nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import oracle
from benchmarks.published import RUNS, rows
from benchmarks.table import Table, figure
from oracle.spec import catalogue

HOUR = 3600.0
# a device of `runs.csv` by its shipped spec
DEVICES = {"A100-40GB": "a100-sxm4-40gb", "A100-80GB": "a100-sxm4-80gb",
           "A100-SXM": "a100-sxm4-80gb", "H100": "h100-sxm5-80gb", "H800": "h100-sxm5-80gb",
           "MI250X": "mi250x-gcd", "TPUv3": "tpu-v3-chip"}  # fmt: skip
DIES = {"MI250X": 2}  # of a device as hours count it
PEAKS = ("bf16", "fp16")


@dataclass(frozen=True)
class Published:
    """A training whose plan is stated, and what its authors say that it took."""

    model: Any
    system: str
    software: str
    plan: str
    batch: int
    sequence: int
    tokens: float
    hours: float
    goodput: float = 1.0
    dies: int = 1  # devices of the plan in a device of the hours
    precision: str = "bf16"
    goal: str = "≤ 0.15"

    @property
    def name(self) -> str:
        return self.model if isinstance(self.model, str) else str(self.model["name"])


def table(quick: bool = False) -> Table:
    """Hours of steps ÷ goodput; and what the hours of others imply."""
    lines, figures = [], {}
    for one in published():
        shown = oracle.estimate(
            one.model, one.system, one.plan, batch=one.batch, software=one.software,
            precision=one.precision, optimizer="adam", grow=True, any_plan=True, reading="none",
        )  # fmt: skip
        steps = math.ceil(one.tokens / (one.batch * one.sequence))
        each = steps / one.goodput * float(shown.devices[0]) / one.dies / HOUR
        taken, low, high = (each * float(part[0]) for part in (
            shown.seconds, shown.seconds_low, shown.seconds_high))  # fmt: skip
        lines.append({
            "training": one.name, "steps": steps, "step": f"{float(shown.seconds[0]):.4g} s",
            "goodput": f"{one.goodput:.0%}", "device-hours": f"{taken:,.0f}",
            "reported": f"{one.hours:,.0f}", "off": f"{taken / one.hours - 1:+.1%}",
            "interval": "holds it" if low <= one.hours <= high else "misses it",
        })  # fmt: skip
        figures[f"{one.name}.hours"] = figure(abs(taken / one.hours - 1), "", one.goal)
    told = {line["training"] for line in lines}
    lines += [line for line in implied() if line["training"] not in told]
    return {"title": "device-hours of published trainings", "rows": lines, "figures": figures,
            "notes": ["rows with `implied`: plan or goodput are not stated; the share of the peak "
                      "that model FLOP of all hours come to, MFU × goodput"]}  # fmt: skip


def implied() -> Iterator[dict[str, Any]]:
    """MFU × goodput of every training whose weights, tokens, devices and hours are stated."""
    for row in rows(RUNS / "runs.csv"):
        name = next((key for key in DEVICES if row["device"].startswith(key)), None)
        try:
            weights = float(row["active_B"] or row["params_B"]) * 1e9
            tokens, hours = float(row["tokens_B"].strip("~>")) * 1e9, float(row["device_hours"])
        except ValueError:
            continue
        if name is None or row["kind"] not in ("pretrain", "stage"):
            continue
        peaks = catalogue.device(DEVICES[name]).peak
        peak = next(peaks[each] for each in PEAKS if each in peaks) * DIES.get(name, 1)
        share = 6 * weights * tokens / (hours * HOUR * peak)
        yield {"training": row["id"], "reported": f"{hours:,.0f}", "implied": f"{share:.1%}"}


def published() -> Iterator[Published]:
    """BLOOM: 366 G tokens on 384 A100; 106.3 of 118.2 days were progress.

    bigscience-workshop/bigscience@9e64edec2a, train/tr11-176B-ml/README.md (plan) and chronicles.md
    (days); hours: arXiv 2211.02001, Table 1. The others: `benchmarks/data/runs/runs.csv`.
    OPT: 33 days of continuous training on 1,024 A100 (FSDP, tensor parallel over 8).
    Poro: hours are those of its measured rate; MI250X of two dies; sizes: its model card.
    Llama 3: more than 90 % of the time effective; FSDP shards gradients and optimizer (§3.3.2); of
    its ramp all but 252 M tokens ran at 8 M and 16 M tokens a batch, here 16 M; 4,608 devices of a
    SuperPOD are grown to 16,384.
    """
    yield Published(
        "bloom-176b", "jean-zay", "megatron-deepspeed",
        "pipeline:12,segments=128 data:8,zero=1 tensor:4 recompute:full", 2048, 2048, 366e9,
        1_082_990, 0.90, goal="≤ 0.1",
    )  # fmt: skip
    yield Published(
        "opt-175b", "dgx-a100", "pytorch-fsdp", "sharded:128 tensor:8 recompute:full", 1024, 2048,
        300e9, 811_008, precision="fp16",
    )  # fmt: skip
    poro = {
        "name": "poro-34b", "source": "huggingface.co/LumiOpen/Poro-34B, model card",
        "transformer": {"layers": 54, "hidden": 7168, "heads": 56, "vocab": 128000,
                        "sequence": 2048, "positions": "none", "embedding_norm": True,
                        "flash": False},
    }  # fmt: skip
    yield Published(
        poro, "lumi", "megatron-deepspeed",
        "pipeline:4,segments=16 data:128,zero=1 tensor:2 recompute:full", 2048, 2048, 1e12,
        815_700, dies=2,
    )  # fmt: skip
    yield Published(
        "llama3-405b", "dgx-h100", "megatron-core",
        "pipeline:16,segments=16,interleave=8 data:128,zero=2 tensor:8,sequence=on", 2048, 8192,
        15.6e12, 30_840_000, 0.90,
    )  # fmt: skip

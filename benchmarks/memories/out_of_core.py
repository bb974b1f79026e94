"""Out of core: what does not fit on one device, by copies, by recomputation, by both.

Six networks on a V100 of 16 GB behind PCIe 3 whose batches are up to three times what fits
[wahib2020]; ResNet-50 of 50 GB on two machines (arXiv 1907.05013); ResNet-50 at 7.5 times the batch
that fits (arXiv 2010.14109). Published figures are those of the papers' abstracts. Nothing is
fitted. "In core" is the time as if the device had room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import oracle
from benchmarks.table import Table, figure

MODELS = ("resnet50", "vgg16", "resnet200", "wrn-28-10", "resnet1001", "unet-2d")
TIMES = (1.5, 2.0, 3.0)
WAYS = {"copies": "offload:activations", "again": "recompute:best",
        "both": "offload:activations recompute:best"}  # fmt: skip
MACHINES = {"PCIe 3": (("abci", 12e9), 1.38), "NVLink, POWER9": (("summit", 60e9), 1.28)}
KEPT = 50e9  # bytes of the network there
TURNS, PART = 7.5, 0.55


def machine(name: str, link: float) -> Any:
    """One device with its link to the host for itself; four fifths of what it could be."""
    where = oracle.system(name)
    return replace(where, host=replace(where.host, link=link, shared_by=1, memory=1e12))


WORKSPACE = "plain,workspace=512 MiB"  # a convolution that finds no room takes what needs less


def taken(model: str, where: Any, batch: int, *ways: str) -> dict[str, float]:
    """Seconds of a step each way; infinite where that does not fit."""
    plans = ["serial", *(f"serial {way}" for way in ways)]
    found = oracle.estimate(model, where, plans, batch=batch, precision="fp32",
                            optimizer="momentum", software=WORKSPACE)  # fmt: skip
    fits = [not why for why in found.broken]
    names = ("", *ways)
    return {name: float(found.seconds[row]) if fits[row] or not row else np.inf
            for row, name in enumerate(names)}  # fmt: skip


def largest(model: str, where: Any) -> int:
    """The largest batch that fits, to a few percent."""
    low, high = 1, 4096
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        found = oracle.estimate(model, where, "serial", batch=middle, precision="fp32",
                                optimizer="momentum", software=WORKSPACE)  # fmt: skip
        low, high = (low, middle) if found.broken[0] else (middle, high)
    return low


def table(quick: bool = False) -> Table:
    """Gains, and how much slower than in core."""
    rows, gains, figures = [], {"copies": [], "again": []}, {}  # type: ignore[var-annotated]
    where = machine("abci", 12e9)
    for model in MODELS[: 2 if quick else None]:
        fits = largest(model, where)
        for times in TIMES:
            batch = max(fits + 1, round(fits * times))
            found = taken(model, where, batch, *WAYS.values())
            both = found[WAYS["both"]]
            row: dict[str, Any] = {"model": model, "batch": batch, "of what fits": times}
            for name, way in WAYS.items():
                row[f"{name}, of in core"] = f"{found[''] / found[way]:.2f}"
                if name in gains and np.isfinite(found[way]):
                    gains[name].append(found[way] / both)
            row["gain"] = " ".join(f"{found[WAYS[name]] / both:.2f}" for name in gains)
            rows.append(row)
    for name, each in gains.items():
        figures[f"gain.{name}"] = figure(np.mean(each), "×", "≥ 1.3")
    figures["gain"] = figure(np.mean([np.mean(each) for each in gains.values()]), "×",
                             "≥ 1.3, published 1.52")  # fmt: skip
    batch, slower = 0, {}
    for name, (told, published) in MACHINES.items():
        where = machine(*told)
        if not batch:
            found = oracle.estimate("resnet50", where, "serial", batch=64, precision="fp32")
            batch = round(64 * KEPT / found.memory_kinds["activations"][0])
        found = taken("resnet50", where, batch, *WAYS.values())
        slower[name] = found[WAYS["both"]] / found[""]
        shares = {f"{way}, of in core": f"{found[''] / found[plan]:.2f}"
                  for way, plan in WAYS.items()}  # fmt: skip
        rows.append({"model": f"resnet50, 50 GB, {name}", "batch": batch, **shares,
                     "gain": f"published {1 / published:.2f}"})  # fmt: skip
        figures[f"slower.{name}"] = figure(slower[name] / published - 1, "", "within 0.15")
    first, second = slower.values()
    figures["slower.order"] = figure(first >= second, "", "1")
    where = machine("abci", 12e9)
    fits = largest("resnet50", where)
    batch = round(TURNS * fits)
    found = taken("resnet50", where, batch, *WAYS.values())
    for way, plan in WAYS.items():
        goal = f"published {PART}" if way == "copies" else ""
        figures[f"resnet50.7.5x.{way}"] = figure(found[""] / found[plan], "of in core", goal)
    return {"title": "out of core: what does not fit on one V100 of 16 GB", "rows": rows,
            "figures": figures, "notes": [f"resnet50 fits up to a batch of {fits}"]}  # fmt: skip

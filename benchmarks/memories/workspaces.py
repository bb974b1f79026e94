"""Micro-batched convolutions under a limit of workspace, held against μ-cuDNN [oyama2018].

Networks on one P100-SXM2, 64 MiB a kernel, 256 and 128 samples: speed-ups that the paper states.
Kernels are DeepBench's square planes of 3×3 and 5×5 windows and stride 1 (baidu-research/DeepBench,
code/kernels/conv_problems.h) at 256 samples; how many gain, and how much, the authors drew. Nothing
is fitted to either: kernels are priced by curves of single kernels that DeepBench timed on a P100,
Fourier transforms by its curve of matrix products and its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

import oracle
from benchmarks import algorithms
from benchmarks.table import Table, figure
from oracle.kernels.conv import menu

SYSTEM = "dgx-1-p100"
MIB = 2**20
NETWORKS = {"alexnet": (256, 1.63), "resnet18": (128, 1.21)}  # samples, speed-up as published
LIMITS = (64, 128, 256, 512)  # MiB
SAMPLES = 256
# plane, channels, filters, side of the window
KERNELS = (
    (224, 3, 64, 3), (112, 64, 128, 3), (56, 64, 64, 3), (56, 128, 256, 3), (54, 64, 64, 3),
    (28, 128, 128, 3), (28, 256, 512, 3), (27, 128, 128, 3), (14, 128, 256, 3), (14, 256, 256, 3),
    (14, 512, 512, 3), (7, 256, 512, 3), (7, 512, 512, 3), (28, 192, 32, 5), (14, 512, 48, 5),
    (7, 832, 128, 5),
)  # fmt: skip
BEST = {3: 2.31, 5: 3.85}  # of any kernel by the side of its window, as drawn
GAINS = 1.01  # a kernel gains by more than one in a hundred
REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "kernels" / algorithms.FILE


def seconds(network: str, samples: int, workspace: str) -> float:
    """Of an iteration on one device."""
    found = oracle.estimate(network, SYSTEM, "serial", samples, workspace=workspace)
    return float(found.seconds[0])


@cache
def gains(limit: int) -> dict[int, list[float]]:
    """Times as fast in pieces as whole, of each pass of each kernel, by the side of its window."""
    device = oracle.system(SYSTEM).device
    found: dict[int, list[float]] = {}
    for plane, channels, filters, side in KERNELS:
        for part in ("forward", "data", "weight"):
            whole, pieces = (
                menu(device, "fp32", SAMPLES, channels, filters, (1, plane, plane),
                     (1, side, side), part=part, micro=micro, every=True, queued=True)
                for micro in (False, True)
            )  # fmt: skip
            before, after = (float(each.best(limit * MIB).seconds) for each in (whole, pieces))
            found.setdefault(side, []).append(before / after)
    return found


def networks() -> Iterator[dict[str, object]]:
    """Speed-ups of whole networks, published and here."""
    for network, (samples, published) in NETWORKS.items():
        whole = seconds(network, samples, "64MiB")
        micro = seconds(network, samples, "64MiB,micro=best")
        free = seconds(network, samples, "none")
        together = seconds(network, samples, "512MiB,micro=best,shared=on")
        yield {
            "what": f"{network}, {samples} samples, 64 MiB",
            "published": published,
            "here": round(whole / micro, 2),
            "off": whole / micro / published - 1,
            "no limit": round(whole / free, 2),
            "512 MiB shared": round(whole / together, 2),
        }


def table(quick: bool = False) -> Table:
    """Networks first, then kernels by limit."""
    rows = [*networks()]
    figures = {
        f"{name}.speedup": figure(row["here"], "x", f"{published} within 20 %")
        for row, (name, (_, published)) in zip(rows, NETWORKS.items(), strict=True)
    }
    figures["networks.worst"] = figure(max(abs(row["off"]) for row in rows), "relative", "≤ 0.2")
    lines = [{**row, "off": f"{row['off']:+.0%}"} for row in rows]
    for limit in LIMITS:
        every = [gain for found in gains(limit).values() for gain in found]
        share = float(np.mean([gain > GAINS for gain in every]))
        lines.append(
            {
                "what": f"DeepBench, {limit} MiB",
                "here": f"{max(every):.2f} at most",
                "gain": f"{share:.0%} of {len(every)}",
            }
        )
        if limit in (128, 512):
            goal = "13 of 39 drawn" if limit == 128 else "most gain nothing: < 0.5"
            figures[f"deepbench.gaining_at_{limit}"] = figure(share, "relative", goal)
    for side, published in BEST.items():
        best = max(max(gains(limit)[side]) for limit in LIMITS)
        figures[f"deepbench.best_{side}x{side}"] = figure(best, "x", f"{published} drawn")
    if REFERENCE.is_file() and not quick:
        found = algorithms.pairs(REFERENCE)
        agree = sum(taken == here for taken, here in found) / len(found)
        figures["deepbench.algorithm_met"] = figure(agree, "relative", "≥ 0.8")
    return {
        "title": "convolutions in pieces under a limit of workspace, P100", "rows": lines,
        "figures": figures,
        "notes": [
            "μ-cuDNN ran Caffe's AlexNet, some of whose layers are in two groups; here one tower",
            "DeepBench notes algorithms without a limit: `python -m benchmarks.algorithms`",
        ],
    }  # fmt: skip

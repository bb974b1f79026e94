"""How well the kernel model predicts kernels it has not seen: `python -m benchmarks.kernels`.

Each random fifth of the reference measurements is held out once; errors are of those. A device
is fitted from its datasheet alone: the curves that it ships with are taken off first.

Kernels of 2026, of servers of models on seven devices, are judged by halves: each random half is
predicted by a fit to the other. `benchmarks.sisters` leaves out whole devices.

A recurrent cell is priced as a product of few rows at each step, and no cell was measured whole:
products of such shapes are predicted by curves that were fitted to all others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from oracle.calibration import kernels
from oracle.calibration.power import kept_up
from oracle.kernels.gemm import gemm
from oracle.readers import kernels as timings
from oracle.readers.kernels import Kernel
from oracle.show.calibration import kernels_text
from oracle.spec import catalogue

GOAL = 0.15
# shipped device, what the tables call it, file
TABLES = (
    ("v100-sxm2-16gb", "NV_V100", "deepbench_gemm_v100_p100.csv"),
    ("p100-pcie", "NV_P100", "deepbench_gemm_v100_p100.csv"),
    ("v100-sxm2-16gb", "NV_V100", "deepbench_conv_v100_p100.csv"),
    ("p100-pcie", "NV_P100", "deepbench_conv_v100_p100.csv"),
    ("a100-sxm4-80gb", "A100-SXM4-80GB", "gemm_a100_h100_bf16.csv"),
    ("h100-sxm5-80gb", "H100 80GB", "gemm_a100_h100_bf16.csv"),
    ("a100-sxm4-80gb", "A100-SXM4-80GB", "attention_fwd_a100_h100.csv"),
    ("h100-sxm5-80gb", "H100 80GB", "attention_fwd_a100_h100.csv"),
)
# kernels of 2026: what the files call each shipped device, and the goal of each family
SERVED = {
    "a100-sxm4-80gb": "a100_sxm", "h100-sxm5-80gb": "h100_sxm", "h200-sxm5": "h200_sxm",
    "l40s": "l40s", "b200-sxm": "b200_sxm", "b300-sxm": "b300_sxm", "gb200": "gb200",
}  # fmt: skip
SERVED_FILES = ("gemm_2026.csv", "attention_2026.csv", "latent_attention_2026.csv",
                "experts_2026.csv", "mamba2_2026.csv")  # fmt: skip
SERVED_GOALS = {"gemm": 0.06, "linear": 0.06, "attention": 0.08, "latent": 0.1, "experts": 0.12,
                "conv1d": 0.1, "scan": 0.1}  # fmt: skip
CELLS = (1024, 128)  # weights of a cell are wider than this both ways; samples are at most so many
QUICK = 600  # kernels of a table, evenly chosen


@dataclass(frozen=True, slots=True)
class Result:
    """One table's fit, or why there is none."""

    device: str
    file: str
    fit: kernels.KernelFit | None
    missing: str = ""
    kept_up: float | None = None  # share of the peak, by long products

    def goal(self, family: str) -> float:
        """The median error that a family's kernels are to be predicted within."""
        return SERVED_GOALS[family] if self.file in SERVED_FILES else GOAL


def results(folder: Path, quick: bool) -> Iterator[Result]:
    for name, called, file in TABLES:
        path = folder / file
        if not path.is_file():
            yield Result(name, file, None, f"{path} is not there")
            continue
        samples = timings.read(path, called).kernels
        if quick:
            samples = samples[:: max(1, len(samples) // QUICK)]
        # no version of FlashAttention is said: none takes the place of the curve
        bare = replace(catalogue.device(name), kernels=(), generation="")
        yield Result(name, file, kernels.fit(samples, bare))
    for file in SERVED_FILES:
        path = folder / file
        if not path.is_file():
            yield Result("", file, None, f"{path} is not there")
            continue
        for name, called in SERVED.items():
            yield served(name, list(timings.read(path, called).kernels), file, quick)


def served(name: str, samples: list[Kernel], file: str, quick: bool) -> Result:
    """Kernels of servers on one device, by halves.

    Blocks of 8 bits run at the rate of 8 bits where the device has no unit of their own, and no
    version of FlashAttention is said.
    """
    known = catalogue.device(name)
    peak = known.peak | ({"mxfp8": known.peak["fp8"]} if "fp8" in known.peak else {})
    copies = tuple(curve for curve in known.kernels if curve.family == "stream")
    bare = replace(known, kernels=copies, peak=peak, generation="")
    if quick:
        samples = samples[:: max(1, len(samples) // QUICK)]
    products = [kernel for kernel in samples if kernel.family == "gemm"]
    share = kept_up(products, bare) if products and not quick else None
    return Result(name, file, kernels.fit(samples, bare, folds=2), kept_up=share)


@dataclass(frozen=True, slots=True)
class Cells:
    """Products of recurrent cells' shapes, by a curve that has seen none of them."""

    device: str
    precision: str
    kernels: int
    median: float  # relative error


def is_cell(kernel: Kernel) -> bool:
    """Whether a product is of the shape of a cell's: few samples, times a large matrix."""
    wide, most = CELLS
    m, n, k = kernel.shape[:3]
    return k >= wide and max(m, n) >= wide and min(m, n) <= most


def cells(folder: Path) -> Iterator[Cells]:
    """DeepBench's products: those of cells' shapes by a fit to the rest."""
    for name, called, file in TABLES[:2]:
        path = folder / file
        if not path.is_file():
            continue
        samples = timings.read(path, called).kernels
        bare = replace(catalogue.device(name), kernels=())
        known = kernels.fit([each for each in samples if not is_cell(each)], bare)
        fitted = kernels.onto(bare, known.kernels)
        for precision in sorted({each.precision for each in samples}):
            held = [each for each in samples if is_cell(each) and each.precision == precision]
            wrong = [
                abs(float(np.ravel(gemm(fitted, precision, *each.shape[:3]))[0]) / each.seconds - 1)
                for each in held
            ]
            if wrong:
                yield Cells(name, precision, len(held), float(np.median(wrong)))


def document(found: list[Result], held: list[Cells], seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = {"kernels.seconds": {"value": seconds, "unit": "s", "goal": "< 60"}}
    rows = []
    for result in found:
        for row in result.fit.residuals if result.fit else ():
            title = ".".join(filter(None, (row.family, row.precision, row.part)))
            name = f"{result.device}.{title}.held_out_median"
            figures[name] = {
                "value": row.median,
                "unit": "relative",
                "goal": f"<= {result.goal(row.family)}",
            }
            rows.append({
                "device": result.device, "family": row.family, "precision": row.precision,
                "part": row.part, "kernels": row.kernels, "first_fifth": row.first,
                "median": row.median, "p90": row.p90, "bias": row.bias, "spread": row.spread,
                "worst": row.worst, "reach": list(row.reach), "source": result.file,
            })  # fmt: skip
        if result.kept_up is not None:
            figures[f"{result.device}.kept_up"] = {"value": result.kept_up, "unit": "of the peak"}
    missing = [result.missing for result in found if result.missing]
    return {"figures": figures, "rows": rows, "cells": [asdict(each) for each in held],
            "missing": missing}  # fmt: skip


def table(found: list[Result], held: list[Cells], seconds: float) -> str:
    lines = []
    for result in found:
        lines.append(f"{result.device}  ({result.file})")
        lines.append(
            kernels_text(result.fit, verbose=True) if result.fit else f"skipped: {result.missing}"
        )
        if result.kept_up is not None:
            lines.append(f"long products keep up {result.kept_up:.2f} of the peak")
        lines.append("")
    lines += [
        f"{each.device}  {each.kernels} products of recurrent cells in {each.precision}, none of "
        f"them fitted: {each.median:.1%} median"
        for each in held
    ]
    rows = [(row, result.goal(row.family)) for result in found if result.fit
            for row in result.fit.residuals]  # fmt: skip
    met = sum(row.median <= goal for row, goal in rows)
    lines.append(f"held-out median within its goal: {met} of {len(rows)} ({seconds:.0f} s)")
    lines += [f"missed: {result.device} {row.title} {row.median:.1%}, goal {goal:.0%}"
              for result in found if result.fit for row in result.fit.residuals
              if row.median > (goal := result.goal(row.family))]  # fmt: skip
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.kernels", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help=f"some {QUICK} kernels of each table")
    parser.add_argument("--reference", type=Path, help="folder with kernels/ in it",
                        default=Path(__file__).parents[2] / "shared" / "reference")  # fmt: skip
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    found = list(results(given.reference / "kernels", given.quick))
    held = list(cells(given.reference / "kernels"))
    seconds = time.perf_counter() - start
    text = (
        json.dumps(document(found, held, seconds), indent=1)
        if given.json
        else table(found, held, seconds)
    )
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

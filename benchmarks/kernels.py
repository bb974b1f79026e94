"""How well the kernel model predicts kernels it has not seen: `python -m benchmarks.kernels`.

Each random fifth of the reference measurements is held out once; errors are of those. A device
is fitted from its datasheet alone: the curves that it ships with are taken off first.

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
from oracle.kernels.gemm import gemm
from oracle.readers import kernels as timings
from oracle.readers.kernels import Kernel
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
CELLS = (1024, 128)  # weights of a cell are wider than this both ways; samples are at most so many
QUICK = 600  # kernels of a table, evenly chosen


@dataclass(frozen=True, slots=True)
class Result:
    """One table's fit, or why there is none."""

    device: str
    file: str
    fit: kernels.KernelFit | None
    missing: str = ""


def results(folder: Path, quick: bool) -> Iterator[Result]:
    for name, called, file in TABLES:
        path = folder / file
        if not path.is_file():
            yield Result(name, file, None, f"{path} is not there")
            continue
        samples = timings.read(path, called).kernels
        if quick:
            samples = samples[:: max(1, len(samples) // QUICK)]
        bare = replace(catalogue.device(name), kernels=())
        yield Result(name, file, kernels.fit(samples, bare))


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
            figures[name] = {"value": row.median, "unit": "relative", "goal": f"<= {GOAL}"}
            rows.append({
                "device": result.device, "family": row.family, "precision": row.precision,
                "part": row.part, "kernels": row.kernels, "first_fifth": row.first,
                "median": row.median, "p90": row.p90, "bias": row.bias, "spread": row.spread,
                "worst": row.worst, "reach": list(row.reach), "source": result.file,
            })  # fmt: skip
    missing = [result.missing for result in found if result.missing]
    return {"figures": figures, "rows": rows, "cells": [asdict(each) for each in held],
            "missing": missing}  # fmt: skip


def table(found: list[Result], held: list[Cells], seconds: float) -> str:
    lines = []
    for result in found:
        lines.append(f"{result.device}  ({result.file})")
        lines.append(kernels.report(result.fit) if result.fit else f"skipped: {result.missing}")
        lines.append("")
    lines += [
        f"{each.device}  {each.kernels} products of recurrent cells in {each.precision}, none of "
        f"them fitted: {each.median:.1%} median"
        for each in held
    ]
    rows = [row for result in found if result.fit for row in result.fit.residuals]
    met = sum(row.median <= GOAL for row in rows)
    lines.append(f"held-out median within {GOAL:.0%}: {met} of {len(rows)} ({seconds:.0f} s)")
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

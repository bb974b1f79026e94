"""How well the kernel model predicts kernels it has not seen: `python -m benchmarks.kernels`.

Each random fifth of the reference measurements is held out once; errors are of those. A device
is fitted from its datasheet alone: the curves that it ships with are taken off first.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oracle.calibration import kernels
from oracle.readers import kernels as timings
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


def document(found: list[Result], seconds: float) -> dict[str, Any]:
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
    return {"figures": figures, "rows": rows, "missing": missing}


def table(found: list[Result], seconds: float) -> str:
    lines = []
    for result in found:
        lines.append(f"{result.device}  ({result.file})")
        lines.append(kernels.report(result.fit) if result.fit else f"skipped: {result.missing}")
        lines.append("")
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
    seconds = time.perf_counter() - start
    text = json.dumps(document(found, seconds), indent=1) if given.json else table(found, seconds)
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether convolutions take the algorithm that cuDNN took: `python -m benchmarks.algorithms`.

DeepBench notes the forward algorithm of each convolution, without a limit of workspace. The choice
here follows prices that were fitted to its seconds; the names it has not seen.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from oracle.kernels.algorithms import chosen
from oracle.kernels.box import Box
from oracle.kernels.conv import matrix
from oracle.kernels.curve import OPERAND_BYTES
from oracle.spec import catalogue

FILE = "deepbench_conv_v100_p100.csv"
DEVICES = {"NV_V100": "v100-sxm2-16gb", "NV_P100": "p100-pcie"}
NAMES = {"IMPLICIT_PRECOMP_GEMM": "precomputed", "LICIT_PRECOMP_GEMM": "precomputed",
         "IMPLICIT_GEMM": "implicit", "WINOGRAD": "winograd", "WINOGRAD_NONFUSED": "apart",
         "FFT": "fourier", "FFT_TILING": "fourier"}  # fmt: skip
MANY = 20  # rows of an algorithm whose recall is asked for


def pairs(path: Path) -> list[tuple[str, str]]:
    """(taken by the library, chosen here) of every row."""
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            device = catalogue.device(DEVICES[row["device"]])
            wide = row["precision"] == "Float" or "32 bit multiplication" in row["precision"]
            own = "fp32" if wide else "fp16"  # P100 multiplies 16-bit inputs in 32 bits
            across, down, channels, filters, batch = (
                float(row[key]) for key in ("S_filter_w", "R_filter_h", "C", "K", "N")
            )
            points = (float(row["P"]) // 1) * (float(row["Q"]) // 1)
            box = Box("forward", *map(np.asarray, (
                batch, points, channels, filters, across * down,
                float(row["stride_w"]) * float(row["stride_h"]), 1.0,
                across if across == down else 0.0)), OPERAND_BYTES[own],
                high=np.asarray(float(row["P"]) // 1), wide=np.asarray(float(row["Q"]) // 1),
            )  # fmt: skip
            here = str(chosen(device, own, box, matrix=matrix(device, own)))
            found.append((NAMES[row["fwd_algo"]], here))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.algorithms", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reference", type=Path, help="folder with kernels/ in it",
                        default=Path(__file__).parents[2] / "shared" / "reference")  # fmt: skip
    given = parser.parse_args(arguments)
    if not (given.reference / "kernels").is_dir():
        print(f"skipped: {given.reference / 'kernels'} is not there")
        return 0
    found = pairs(given.reference / "kernels" / FILE)
    agree = sum(taken == here for taken, here in found) / len(found)
    taken = Counter(name for name, _ in found)
    met = Counter(name for name, here in found if name == here)
    recall = {name: met[name] / count for name, count in taken.items() if count > MANY}
    if given.json:
        figures = {"algorithms.agree": {"value": agree, "unit": "relative", "goal": ">= 0.8"}}
        figures |= {f"algorithms.{name}.recall": {"value": value, "unit": "relative",
                                                  "goal": ">= 0.6"}
                    for name, value in recall.items()}  # fmt: skip
        print(json.dumps({"figures": figures}, indent=1))
        return 0
    for name, count in taken.most_common():
        print(f"{name:<12}{count:>5} rows, recall {met[name] / count:.0%}")
    print(f"the library's algorithm is met in {agree:.1%} of {len(found)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())

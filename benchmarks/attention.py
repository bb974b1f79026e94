"""How near attention of a named version comes to what its authors measured.

    python -m benchmarks.attention [--json]

FlashAttention 1 and 2 on an A100 and an H100, forward and backward together, as the labels of
their authors' figures say (`benchmarks/data/flash_attention.csv`). The constants of
`oracle.kernels.attention` were fitted to these very figures: errors are of the fit.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oracle import kernels
from oracle.spec import catalogue

DATA = Path(__file__).parent / "data" / "flash_attention.csv"
VERSIONS = {"flash1": 1, "flash2": 2}
TOKENS, CHANNELS = 16_384, 2_048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: TFLOP/s of both passes, measured and predicted."""

    device: str
    kernel: str
    causal: bool
    width: int
    length: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative, in logarithms: twice as fast is as wrong as half as fast."""
        return float(np.log(self.predicted / self.measured))


def bars() -> Iterator[Bar]:
    """All bars, priced."""
    lines = [line for line in DATA.read_text("utf-8").splitlines() if not line.startswith("#")]
    for row in csv.DictReader(lines):
        device = catalogue.device(row["device"])
        causal, width = row["causal"] == "yes", int(row["width"])
        heads = CHANNELS // width
        for length in LENGTHS:
            batch = TOKENS // length
            seconds = sum(
                float(kernels.attention(device, "bf16", batch, heads, heads, length, length, width,
                                        causal, part, version=VERSIONS[row["kernel"]]))
                for part in ("forward", "backward")
            )  # fmt: skip
            flop = 3.5 * 4 * length**2 * CHANNELS * batch / (2 if causal else 1)
            yield Bar(row["device"], row["kernel"], causal, width, length,
                      float(row[str(length)]), flop / seconds / 1e12)  # fmt: skip


def summary(found: list[Bar]) -> dict[str, dict[str, float]]:
    """Of each version: mean, bias and worst of its bars' errors."""
    lines = {}
    for kernel in VERSIONS:
        errors = np.array([bar.error for bar in found if bar.kernel == kernel])
        lines[kernel] = {"mean": float(abs(errors).mean()), "bias": float(errors.mean()),
                         "worst": float(abs(errors).max())}  # fmt: skip
    return lines


def main(arguments: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args(arguments).json
    found = list(bars())
    lines = summary(found)
    if as_json:
        figures = {
            f"attention.{kernel}.{key}": {"value": value, "unit": "relative"}
            for kernel, line in lines.items() for key, value in line.items()
        }  # fmt: skip
        sys.stdout.write(json.dumps({"figures": figures}, indent=1) + "\n")
        return 0
    for kernel, line in lines.items():
        words = "  ".join(f"{key} {value:+.1%}" for key, value in line.items())
        sys.stdout.write(f"{kernel}  {words}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How well a device is told by its sheet and its sisters' kernels: `python -m benchmarks.sisters`.

Each of three Blackwell devices is left out in turn, and a GB200 is told by its twin alone, a B200
of the same dies, as a GB300 is by a B300. A curve of shares of peak and bandwidth is
fitted to its two sisters together (`oracle.calibration.shared`), and predicts the kernels of the
one that no fit has seen. `GUESSED` is what the shipped curves that are told so are doubted by.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from oracle.calibration import kernels, shared
from oracle.calibration.timed import believable
from oracle.kernels.curve import ASSUMED
from oracle.readers import kernels as timings
from oracle.readers.kernels import Kernel
from oracle.spec import catalogue
from oracle.spec.device import Device
from oracle.spec.doubt import NINETY

GOAL = 0.12
GUESSED = 0.12  # 1σ, relative, of a kernel on a device that only its sisters tell of
SISTERS = {"b200-sxm": "b200", "b300-sxm": "b300", "gb200": "gb200"}
# a device that is left out, and those that tell of it
LEFT_OUT = (
    ("b200-sxm", ("b300-sxm", "gb200")), ("b300-sxm", ("b200-sxm", "gb200")),
    ("gb200", ("b200-sxm", "b300-sxm")), ("gb200", ("b200-sxm",)),
)  # fmt: skip
FILES = ("gemm_2026.csv", "attention_2026.csv", "latent_attention_2026.csv", "experts_2026.csv")
EVERY = 3  # kernels of a table that are taken: one in so many


@dataclass(frozen=True, slots=True)
class Told:
    """Kernels of one kind on a device that was left out."""

    device: str
    by: str
    kernels: str
    count: int
    median: float  # relative error
    bias: float
    held: float  # share within 90 %, by what a kernel of the sisters' and `GUESSED` are doubted by


def measured(path: Path) -> dict[str, list[tuple[Kernel, Device]]]:
    """Kernels that can be believed, with their devices."""
    pairs: dict[str, list[tuple[Kernel, Device]]] = {}
    for name, called in SISTERS.items():
        known = catalogue.device(name)
        copies = tuple(curve for curve in known.kernels if curve.family == "stream")
        device = replace(known, kernels=copies)
        # `b200` is part of `gb200` too
        samples = [kernel for kernel in timings.read(path, called).kernels
                   if kernel.device.startswith(called)]  # fmt: skip
        believed, _ = believable(samples, device, kernels.size)
        pairs[name] = [(kernel, device) for kernel in believed[::EVERY]]
    return pairs


def told(folder: Path, files: tuple[str, ...] = FILES) -> Iterator[Told]:
    """Every device left out, by kind of kernels."""
    for file in files:
        pairs = measured(folder / file)
        kinds = sorted({(k.family, k.precision) for part in pairs.values() for k, _ in part})
        for family, precision in kinds:
            by_device = {
                name: [(k, d) for k, d in part if (k.family, k.precision) == (family, precision)]
                for name, part in pairs.items()
            }
            for name, tellers in LEFT_OUT:
                others = [pair for teller in tellers for pair in by_device[teller]]
                if by_device[name] and others:
                    title = (name, " and ".join(tellers), f"{family} {precision}")
                    yield judged(title, by_device[name], others)


def judged(
    title: tuple[str, str, str], left_out: list[tuple[Kernel, Device]],
    others: list[tuple[Kernel, Device]],
) -> Told:  # fmt: skip
    """The errors on one device of a curve of the others."""
    first = others[0][0]
    start = replace(ASSUMED[kernels.SHOWS.get(first.family, first.family)],
                    precision=first.precision)  # fmt: skip
    starts = [start, replace(start, start=7e-6, sustained=0.6, traffic=0.5)]
    curve = shared.solved(others, starts)
    error = shared.off(left_out, curve)
    misses = shared.off(others, curve)
    spread = 1.4826 * float(np.median(np.abs(misses - np.median(misses))))
    within = np.abs(error) <= NINETY * np.hypot(spread, GUESSED)
    return Told(*title, len(left_out), float(np.median(np.abs(np.expm1(error)))),
                float(np.median(np.expm1(error))), float(within.mean()))  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.sisters", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="products alone")
    parser.add_argument("--reference", type=Path, help="folder with kernels/ in it",
                        default=Path(__file__).parents[2] / "shared" / "reference")  # fmt: skip
    options = parser.parse_args(arguments)
    rows = list(told(options.reference / "kernels", FILES[:1] if options.quick else FILES))
    if options.json:
        figures = {
            ".".join(("sisters", row.device, *row.by.split(" and "), *row.kernels.split())): {
                "value": row.median, "unit": "relative", "goal": f"<= {GOAL}"}
            for row in rows
        }  # fmt: skip
        document = {"figures": figures, "rows": [asdict(row) for row in rows]}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return 0
    for row in rows:
        sys.stdout.write(
            f"{row.device:<9} by {row.by:<22} {row.kernels:<16} {row.count:>5} kernels  median "
            f"{row.median:>6.1%}  bias {row.bias:>+6.1%}  in 90 % {row.held:>4.0%}\n"
        )
    met = sum(row.median <= GOAL for row in rows)
    sys.stdout.write(f"median within {GOAL:.0%}: {met} of {len(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

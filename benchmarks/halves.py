"""How well curves shared by devices predict kernels held out: `python -m benchmarks.halves`.

Each random half of the shapes is held out in turn, so that every kernel is predicted once by a fit
that has not seen its shape; the figure is the median error over all, and over several splits. A
device is fitted from its datasheet alone. Families of fewer than four shapes are not fitted; what
is assumed of them is compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from oracle.calibration import shared
from oracle.calibration.fit import Floats
from oracle.kernels.curve import ASSUMED
from oracle.readers import kernels as timings
from oracle.readers.kernels import Kernel
from oracle.spec import catalogue
from oracle.spec.device import Curve, Device

GOAL = 0.2
FEWEST = 4  # shapes
SPLITS = (20211, 1, 2)
ANY = ("norm", "pool", "depthwise")  # of any precision
# file, what it calls a device, the shipped device
TABLES = (
    ("deepbench_conv_knl.csv", "IA_KNL7250", "knl-7250"),
    ("kernels3d.csv", "A100-80GB", "a100-sxm4-80gb"),
    ("kernels3d.csv", "A100 (", "a100-sxm4-40gb"),
    ("kernels3d.csv", "L40S", "l40s"),
    ("kernels3d.csv", "T4", "t4"),
)
SHAPES = ((16, 16, 0.3, 1), (4, 8, 0.01, 8), (1, 1, 0.001, 1), (64, 100, 0.01, 16))


@dataclass(frozen=True, slots=True)
class Half:
    """One family and part on devices of one generation."""

    title: str
    kernels: int
    shapes: int
    median: float  # over the splits
    worst: float  # of the splits
    fit: shared.Shared | None
    error: Floats  # relative, of each kernel by a fit that did not see it
    file: str


def starts(family: str, precision: str, part: str, cores: bool) -> list[Curve]:
    """Where the search begins; cores that share no cache read weights again for each sample."""
    base = ASSUMED.get(f"{family} {part}", ASSUMED[family])
    known = replace(base, part=part, precision="" if family in ANY else precision,
                    origin="fitted", source="by hand")  # fmt: skip
    if family in ANY:
        return [known]
    return [
        replace(known, tile=tile, prologue=prologue, ramp=ramp, granule=granule, strided=strided,
                sweeps=1.0 if cores else 0.0)
        for tile, prologue, ramp, granule in SHAPES
        for strided in ((3.0, 30.0) if part == "data" else (1.0,))
    ]  # fmt: skip


def groups(folder: Path) -> dict[tuple[str, ...], list[tuple[Kernel, Device]]]:
    """Kernels by generation, family, precision and part."""
    found: dict[tuple[str, ...], list[tuple[Kernel, Device]]] = defaultdict(list)
    for file, called, name in TABLES:
        device = replace(catalogue.device(name), kernels=())
        for kernel in timings.read(folder / file).kernels:
            if kernel.device.startswith(called):
                key = (device.generation or name, kernel.family, kernel.precision, kernel.part)
                found[key].append((kernel, device))
    return found


def halves(folder: Path) -> Iterator[Half]:
    for (where, family, precision, part), pairs in sorted(groups(folder).items()):
        title = " ".join(filter(None, (where, family, precision, part)))
        file = pairs[0][0].where.rpartition(":")[0]
        shapes = len({kernel.shape for kernel, _ in pairs})
        begin = starts(family, precision, part, where == "knl-7250")
        if shapes < FEWEST:
            error = np.abs(np.expm1(shared.off(pairs, begin[0])))
            yield Half(title, len(pairs), shapes, float(np.median(error)), float(error.max()), None,
                       error, file)  # fmt: skip
            continue
        fits = [shared.fit(pairs, begin, seed) for seed in SPLITS]
        medians = [fit.median for fit in fits]
        error = np.abs(np.expm1(fits[0].error))
        yield Half(title, len(pairs), shapes, float(np.median(medians)), max(medians), fits[0],
                   error, file)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.halves", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reference", type=Path, help="folder with kernels/ in it",
                        default=Path(__file__).parents[2] / "shared" / "reference")  # fmt: skip
    given = parser.parse_args(arguments)
    if not (given.reference / "kernels").is_dir():
        print(f"skipped: {given.reference / 'kernels'} is not there")
        return 0
    found = list(halves(given.reference / "kernels"))
    if given.json:
        figures = {
            f"halves.{half.title.replace(' ', '.')}": {
                "value": half.median, "unit": "relative", "goal": f"<= {GOAL}"}
            for half in found
        }  # fmt: skip
        print(json.dumps({"figures": figures}, indent=1))
        return 0
    print(f"{'kernels of':<32}{'number':>7}{'shapes':>7}{'median':>8}{'worst split':>13}")
    for half in found:
        note = "" if half.fit else "  assumed"
        print(f"{half.title:<32}{half.kernels:>7}{half.shapes:>7}{half.median:>8.1%}"
              f"{half.worst:>13.1%}{note}")  # fmt: skip
    for file in sorted({file for file, *_ in TABLES}):
        errors = [half.error for half in found if half.file == file]
        print(f"median of all in {file}: {np.median(np.concatenate(errors)):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

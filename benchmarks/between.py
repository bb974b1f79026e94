"""Curves of matrix units as fast as nobody measured: `python -m benchmarks.between rtx-3090`.

A kernel loses time to fetching tiles, filling pipelines and unfinished waves, whatever its units
do meanwhile: the faster those of a processor, the less of their peak it reaches. DeepBench timed
one V100 with two kinds of units, 0.2 TFLOP/s (fp32) and 1.6 (fp16) a processor. A device with
units between them, of a processor, loses between as much: the times that its kernels take longer
than their peak allows lie between V100's, by the logarithm of the rate of a processor. Curves are
fitted to what that gives for DeepBench's shapes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from oracle.calibration import kernels
from oracle.kernels.box import Box, product, shape
from oracle.kernels.curve import AREA, fitted
from oracle.models.model import Floats
from oracle.readers import kernels as timings
from oracle.spec import catalogue
from oracle.spec.device import Curve, Device

FILE, CALLED, MEASURED = "deepbench_conv_v100_p100.csv", "NV_V100", "v100-sxm2-16gb"
SOURCE = ("between fp32 and fp16 of v100-sxm2-16gb by the rate of a processor, "
          f"python -m benchmarks.between: {FILE}")  # fmt: skip
WIDER = 1.5  # as other curves that were taken from V100


def rate(device: Device, precision: str) -> float:
    """Of one processor."""
    return device.peak[precision] / device.processors


def weight(device: Device, known: Device) -> float:
    """How near to fp16 of what was measured, from fp32: 0 to 1."""
    slow, fast = rate(known, "fp32"), rate(known, "fp16")
    return float(np.clip(np.log(rate(device, "fp16") / slow) / np.log(fast / slow), 0, 1))


def boxed(shapes: Floats, part: str) -> Box:
    """Shapes in columns, as `readers.kernels.SHAPES` orders them, as a convolution's part."""
    batch, channels, filters, *boxes, groups = shapes
    out, window, stride = (product(tuple(boxes[at : at + 3])) for at in (0, 3, 6))
    return Box(part, batch, out, channels / groups, filters / groups, window, stride, groups,
               np.zeros_like(batch), 2.0)  # fmt: skip


def longer(used: Curve, device: Device, box: Box) -> Floats:
    """Times that arithmetic takes as long as the peak allows."""
    m, n, k = shape(used, box)
    area = np.hypot(m, used.tile) * np.hypot(n, used.tile) * box.groups
    idle = used.ramp * AREA * device.processors
    return (area + idle) * (k + used.prologue) * 2 / (box.flop * used.sustained)


def curves(device: Device, folder: Path) -> Iterator[tuple[Curve, float]]:
    """The three parts' curves, and how well each meets what it stands for."""
    known = catalogue.device(MEASURED)
    samples = [each for each in timings.read(folder / FILE, CALLED).kernels
               if each.precision == "fp16"]  # fmt: skip
    by = weight(device, known)
    for part in timings.PARTS["conv"]:
        own = [each for each in samples if each.part == part]
        box = boxed(np.array([each.shape for each in own], float).T, part)
        fast, slow = (fitted(known, "conv", each, part) for each in ("fp16", "fp32"))
        if fast is None or slow is None:
            raise ValueError(f"{MEASURED} has no curves of {part}")
        # channels that are taken at a time and zeros that are multiplied are the kernels' own
        alike = replace(slow, granule=fast.granule, zeros=fast.zeros)
        times = longer(fast, device, box) ** by * longer(alike, device, box) ** (1 - by)
        traffic = box.moved / (device.memory_bandwidth * fast.traffic)
        seconds = fast.start + np.hypot(times * box.flop / device.peak["fp16"], traffic)
        given = [replace(k, seconds=float(s)) for k, s in zip(own, seconds, strict=True)]
        found = kernels.fit(given, replace(device, kernels=()), everything=True)
        curve = replace(found.kernels[0], origin="assumed", source=SOURCE,
                        uncertainty=round(WIDER * fast.uncertainty, 2))  # fmt: skip
        yield curve, found.residuals[0].median


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.between", description=__doc__)
    parser.add_argument("device")
    parser.add_argument("--reference", type=Path, help="folder with kernels/ in it",
                        default=Path(__file__).parents[2] / "shared" / "reference")  # fmt: skip
    given = parser.parse_args(arguments)
    device = catalogue.device(given.device)
    found = list(curves(device, given.reference / "kernels"))
    text = yaml.safe_dump(kernels.entries(curve for curve, _ in found), sort_keys=False)
    off = max(median for _, median in found)
    sys.stdout.write(f"{text}# fitted to within {off:.1%}, median of the worst part\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

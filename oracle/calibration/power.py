"""The share of its peak that a device keeps up in long products of a benchmark.

A product is timed for milliseconds, a few times over. Short ones run at the full clock; those that
fill the matrix units for longer draw more than the device is granted, and its clock gives way as
`kernels.curve.powered` has it. The share `loaded` under which one curve fits short and long
products best is what they keep up. Training draws power for hours, of other parts too, and keeps
up less: how much less such products cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from oracle.calibration.kernels import first_guesses, pricer, solve
from oracle.kernels.curve import REACHED
from oracle.readers.kernels import Kernel
from oracle.spec.device import Device

SHARES = tuple(float(share) for share in np.arange(0.5, REACHED + 0.03, 0.02).round(2))


def kept_up(samples: Iterable[Kernel], device: Device) -> float:
    """The share of the peak that long products keep up; 1 where nothing slows them down."""
    kernels = list(samples)
    shapes = np.array([kernel.shape for kernel in kernels]).T
    seconds = np.array([kernel.seconds for kernel in kernels])
    first = kernels[0]
    start = first_guesses(first, "tried")[0]

    def loss(share: float) -> float:
        price = pricer(first.family, first.precision, first.part, device, share)
        return solve(start, lambda trial: price(trial, shapes), seconds)[1]

    shares = (*SHARES, 1.0)
    return min(shares, key=loss)

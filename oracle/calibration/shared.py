"""Fits one curve to several devices, as shares of each device's peak and bandwidth.

A device of which few kernels were measured does not show eight numbers; several together show
what their library does with any of them. Each random half of the shapes is held out in turn, on
all devices at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oracle.calibration.fit import Floats
from oracle.calibration.kernels import seconds_of, size, solve
from oracle.readers.kernels import Kernel
from oracle.spec.device import Curve, Device

HALVES = 2


@dataclass(frozen=True, slots=True)
class Shared:
    """A curve of several devices, and its errors on the half that it has not seen."""

    curve: Curve
    error: Floats  # logarithm of predicted over measured, each by the fit that did not see it
    kernels: tuple[Kernel, ...]
    shapes: int

    @property
    def median(self) -> float:
        """The median relative error of kernels held out."""
        return float(np.median(np.abs(np.expm1(self.error))))


def fit(
    samples: Iterable[tuple[Kernel, Device]], start: Curve | Sequence[Curve], seed: int = 20211
) -> Shared:
    """Fit a curve to kernels of one family and part, from the best of some starts."""
    starts = [start] if isinstance(start, Curve) else list(start)
    pairs = list(samples)
    shapes = sorted({kernel.shape for kernel, _ in pairs})
    half = np.random.default_rng(seed).permutation(len(shapes)) % HALVES
    group = np.array([half[shapes.index(kernel.shape)] for kernel, _ in pairs])
    error = np.empty(len(pairs))
    for held_out in range(HALVES):
        curve = solved(pairs_of(pairs, group != held_out), starts)
        error[group == held_out] = off(pairs_of(pairs, group == held_out), curve)
    best = solved(pairs, starts)
    middle = float(np.median(error))
    spread = float(np.hypot(1.4826 * np.median(np.abs(error - middle)), middle))
    work = np.concatenate([size(k.family, np.array([k.shape]).T) for k, _ in pairs])
    reach = () if best.family in ("norm", "pool") else (float(work.min()), float(work.max()))
    chosen = replace(best, uncertainty=spread, reach=reach)
    return Shared(chosen, error, tuple(kernel for kernel, _ in pairs), len(shapes))


def pairs_of(pairs: Sequence[tuple[Kernel, Device]], which: Floats) -> list[tuple[Kernel, Device]]:
    """The pairs that are marked."""
    return [pair for pair, marked in zip(pairs, which, strict=True) if marked]


def solved(pairs: Sequence[tuple[Kernel, Device]], starts: Sequence[Curve]) -> Curve:
    """Fit the numbers of a curve, from the best of the starts."""
    seconds = np.array([kernel.seconds for kernel, _ in pairs])
    tried = (solve([start], lambda trial: priced(pairs, trial), seconds) for start in starts)
    (curve,), _ = min(tried, key=lambda pair: pair[1])
    return curve


def off(pairs: Sequence[tuple[Kernel, Device]], curve: Curve) -> Floats:
    """Logarithm of predicted over measured."""
    seconds = np.array([kernel.seconds for kernel, _ in pairs])
    return np.asarray(np.log(priced(pairs, [curve]) / seconds))


def priced(pairs: Sequence[tuple[Kernel, Device]], trial: list[Curve]) -> Floats:
    """Seconds of each kernel on its device by the trial's curves alone.

    Only the units of its own precision count: what others would do is not what was measured.
    """
    out = np.empty(len(pairs))
    members: dict[tuple[str, str, str], list[int]] = {}
    devices = {}
    for i, (kernel, device) in enumerate(pairs):
        key = (device.name, kernel.family, kernel.precision)
        members.setdefault(key, []).append(i)
        devices[device.name] = device
    for (name, family, precision), numbers in members.items():
        streams = tuple(c for c in devices[name].kernels if c.family == "stream")
        peak = {precision: rate} if (rate := devices[name].peak.get(precision)) else {}
        bare = replace(
            devices[name], kernels=(*trial, *streams), loaded=1.0, peak=peak or devices[name].peak
        )
        shapes = np.array([pairs[i][0].shape for i in numbers]).T
        part = pairs[numbers[0]][0].part
        out[numbers] = seconds_of(bare, family, precision, part, shapes, "first")
    return out

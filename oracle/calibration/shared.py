"""One curve for several devices, as shares of each one's peak and bandwidth.

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
    """A curve of several devices, and how it does on the half that it has not seen."""

    curve: Curve
    error: Floats  # logarithm of predicted over measured, each by the fit that did not see it
    kernels: tuple[Kernel, ...]
    shapes: int

    @property
    def median(self) -> float:
        """Of the relative error over kernels held out."""
        return float(np.median(np.abs(np.expm1(self.error))))


def fit(
    samples: Iterable[tuple[Kernel, Device]], start: Curve | Sequence[Curve], seed: int = 20211
) -> Shared:
    """The curve, from the best of some starts, that fits kernels of one family and part."""
    starts = [start] if isinstance(start, Curve) else list(start)
    pairs = list(samples)
    known = sorted({kernel.shape for kernel, _ in pairs})
    half = np.random.default_rng(seed).permutation(len(known)) % HALVES
    group = np.array([half[known.index(kernel.shape)] for kernel, _ in pairs])
    error = np.empty(len(pairs))
    for held in range(HALVES):
        seen = [pair for pair, own in zip(pairs, group, strict=True) if own != held]
        error[group == held] = off(pairs_of(pairs, group == held), solved(seen, starts))
    best = solved(pairs, starts)
    middle = float(np.median(error))
    spread = float(np.hypot(1.4826 * np.median(np.abs(error - middle)), middle))
    work = np.concatenate([size(k.family, np.array([k.shape]).T) for k, _ in pairs])
    reach = () if best.family in ("norm", "pool") else (float(work.min()), float(work.max()))
    chosen = replace(best, uncertainty=spread, reach=reach)
    return Shared(chosen, error, tuple(kernel for kernel, _ in pairs), len(known))


def pairs_of(pairs: Sequence[tuple[Kernel, Device]], which: Floats) -> list[tuple[Kernel, Device]]:
    """Those of the pairs that are marked."""
    return [pair for pair, wanted in zip(pairs, which, strict=True) if wanted]


def solved(pairs: Sequence[tuple[Kernel, Device]], starts: Sequence[Curve]) -> Curve:
    """The numbers that fit best, from any of the starts."""
    seconds = np.array([kernel.seconds for kernel, _ in pairs])
    tried = (solve([start], lambda trial: priced(pairs, trial), seconds) for start in starts)
    (found,), _ = min(tried, key=lambda pair: pair[1])
    return found


def off(pairs: Sequence[tuple[Kernel, Device]], known: Curve) -> Floats:
    """Logarithm of predicted over measured."""
    seconds = np.array([kernel.seconds for kernel, _ in pairs])
    return np.asarray(np.log(priced(pairs, [known]) / seconds))


def priced(pairs: Sequence[tuple[Kernel, Device]], trial: list[Curve]) -> Floats:
    """Seconds of each kernel on its device, with nothing known but the trial's curves.

    Only the units of its own precision count: what others would do is not what was measured.
    """
    out = np.empty(len(pairs))
    members: dict[tuple[str, str, str], list[int]] = {}
    devices = {}
    for i, (kernel, device) in enumerate(pairs):
        key = (device.name, kernel.family, kernel.precision)
        members.setdefault(key, []).append(i)
        devices[device.name] = device
    for (name, family, precision), each in members.items():
        streams = tuple(c for c in devices[name].kernels if c.family == "stream")
        peak = {precision: rate} if (rate := devices[name].peak.get(precision)) else {}
        bare = replace(
            devices[name], kernels=(*trial, *streams), loaded=1.0, peak=peak or devices[name].peak
        )
        shapes = np.array([pairs[i][0].shape for i in each]).T
        part = pairs[each[0]][0].part
        out[each] = seconds_of(bare, family, precision, part, shapes, "first")
    return out

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
from oracle.calibration.kernels import applies, seconds_of, size, solve
from oracle.readers.kernels import Kernel
from oracle.spec.device import Curve, Device

HALVES = 2
FEWEST = 4  # shapes


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


def fit(samples: Iterable[tuple[Kernel, Device]], start: Curve, seed: int = 20211) -> Shared:
    """The curve, from `start`, that fits kernels of one family and part on their devices."""
    pairs = list(samples)
    known = sorted({kernel.shape for kernel, _ in pairs})
    half = np.random.default_rng(seed).permutation(len(known)) % HALVES
    group = np.array([half[known.index(kernel.shape)] for kernel, _ in pairs])
    error = np.empty(len(pairs))
    for held in range(HALVES):
        seen = [pair for pair, own in zip(pairs, group, strict=True) if own != held]
        error[group == held] = off(pairs_of(pairs, group == held), solved(seen, start))
    best = solved(pairs, start)
    middle = float(np.median(error))
    spread = float(np.hypot(1.4826 * np.median(np.abs(error - middle)), middle))
    work = np.concatenate([size(k.family, np.array([k.shape]).T) for k, _ in pairs])
    reach = () if start.family in ("norm", "pool") else (float(work.min()), float(work.max()))
    chosen = replace(best, uncertainty=spread, reach=reach)
    return Shared(chosen, error, tuple(kernel for kernel, _ in pairs), len(known))


def pairs_of(pairs: Sequence[tuple[Kernel, Device]], which: Floats) -> list[tuple[Kernel, Device]]:
    """Those of the pairs that are marked."""
    return [pair for pair, wanted in zip(pairs, which, strict=True) if wanted]


def solved(pairs: Sequence[tuple[Kernel, Device]], start: Curve) -> Curve:
    """The numbers of `start` that fit best."""
    seconds = np.array([kernel.seconds for kernel, _ in pairs])
    (found,), _ = solve([start], lambda trial: priced(pairs, trial), seconds)
    return found


def off(pairs: Sequence[tuple[Kernel, Device]], known: Curve) -> Floats:
    """Logarithm of predicted over measured."""
    seconds = np.array([kernel.seconds for kernel, _ in pairs])
    return np.asarray(np.log(priced(pairs, [known]) / seconds))


def priced(pairs: Sequence[tuple[Kernel, Device]], trial: list[Curve]) -> Floats:
    """Seconds of each kernel on its device, with nothing known but the trial's curves."""
    out = np.empty(len(pairs))
    members: dict[tuple[str, str, str], list[int]] = {}
    devices = {}
    for i, (kernel, device) in enumerate(pairs):
        key = (device.name, kernel.family, kernel.precision)
        members.setdefault(key, []).append(i)
        devices[device.name] = device
    for (name, family, precision), each in members.items():
        streams = tuple(c for c in devices[name].kernels if c.family == "stream")
        bare = replace(devices[name], kernels=(*trial, *streams), loaded=1.0)
        shapes = np.array([pairs[i][0].shape for i in each]).T
        part = pairs[each[0]][0].part
        out[each] = seconds_of(bare, family, precision, part, shapes, "first")
    return out


__all__ = ["Shared", "applies", "fit"]

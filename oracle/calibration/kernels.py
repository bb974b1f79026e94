"""Fits kernel curves to measured kernels by robust least squares.

Each family, precision and part has its own `Curve`. Its six numbers minimise the soft-L1 loss of
the logarithm of predicted over measured seconds, so that a kernel that is off by a factor (another
algorithm, a cold cache) pulls no more than linearly, and weakly lean on the assumed values, so that
what the data do not show stays where it was. Each random fifth of the kernels is held out in turn,
and the spread that a curve states is what it shows on kernels it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.calibration.fit import Floats, Indices
from oracle.calibration.timed import attended, believable, experts, linear, scan, scanned
from oracle.kernels import conv, gemm, stream
from oracle.kernels.curve import ASSUMED
from oracle.kernels.stream import reduction
from oracle.readers.kernels import Kernel
from oracle.spec.device import Curve, Device
from oracle.spec.units import show

FOLDS = 5
SEED = 20211
FEWEST = 15  # fewest kernels of one family, precision and part for a curve
SOFT = 0.1  # relative error from which on a residual counts linearly
WAVES_PENALTY = 1.25  # factor on the loss of a curve with whole waves: few kernels fit many tilings
PRIOR = 4.0  # 1σ of the prior, in units of the logarithm: weak, a factor of fifty
# the fitted numbers, with their lowest and their highest values
NUMBERS = {
    "start": (1e-7, 5e-5),
    "sustained": (0.05, 1.0),
    "traffic": (0.05, 1.0),
    "tile": (1.0, 256.0),
    "prologue": (1.0, 1024.0),
    "ramp": (1e-4, 10.0),
    "pace": (1e7, 1e11),
    "sweeps": (1e-2, 30.0),
    "strided": (1.0, 300.0),
    "granule": (1.0, 256.0),
    "zeros": (1e-2, 30.0),
}
CONVOLUTIONS = ("conv", "conv3d", "grouped", "depthwise")
STREAMED = ("stream", "conv1d", "norm", "pool")  # timed by their bytes alone
TWO_WAYS = ("attention", "latent", "norm", "pool")  # timed forward and backward
# timings of several kernels, and the family whose curve they show
TOGETHER: dict[str, Callable[..., Floats]] = {"linear": linear, "experts": experts, "scan": scan}
SHOWS = {"linear": "gemm"}
SLOW = 1e8  # elements a second of a processor, slower than any GPU's
SHAPING = ("tile", "ramp", "prologue", "zeros")


@dataclass(frozen=True, slots=True)
class Residual:
    """How well a curve predicts kernels that its fit has not seen."""

    family: str
    precision: str
    part: str
    kernels: int
    first: float  # median of |predicted - measured| / measured over the first fifth alone
    median: float  # the same over all kernels, each by the fit that did not see it
    p90: float
    bias: float  # median of predicted / measured - 1
    spread: float  # robust 1σ of the logarithm
    worst: str  # where the worst prediction is, and how far off
    reach: tuple[float, float]  # FLOP of the smallest and the largest kernel (bytes of a stream)

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.family, self.precision, self.part)))


@dataclass(frozen=True, slots=True)
class KernelFit:
    """Curves fitted to kernels of one device, and how well they do on kernels held out."""

    kernels: tuple[Curve, ...]
    residuals: tuple[Residual, ...]
    skipped: tuple[str, ...]  # groups too small to fit, in words

    @property
    def held_out(self) -> float:
        """Median relative error over held-out kernels, the worst of all curves."""
        return max((residual.median for residual in self.residuals), default=0.0)


def fit(
    samples: Iterable[Kernel],
    device: Device,
    *,
    source: str = "",
    seed: int = SEED,
    everything: bool = False,
    folds: int = FOLDS,
    loaded: float = 1.0,
) -> KernelFit:
    """Fit a curve for each family, precision and part that has enough kernels.

    `everything`: the curves are fitted to all kernels once the held-out errors are known, as a
    shipped device wants it; without it they have not seen the first fifth. `folds`: parts that are
    held out in turn. `loaded`: share of the peak that power leaves to kernels as long as those
    that were timed (`power`).
    """
    samples, refused = believable(samples, device, size)
    groups: dict[tuple[str, str, str], list[Kernel]] = {}
    for sample in samples:
        groups.setdefault((sample.family, sample.precision, sample.part), []).append(sample)
    curves: list[Curve] = []
    residuals: list[Residual] = []
    skipped = list(refused)
    for (family, precision, part), kernels in sorted(groups.items()):
        title = " ".join(filter(None, (family, precision, part)))
        if len(kernels) < FEWEST:
            skipped.append(f"{title}: {len(kernels)} kernels, {FEWEST} are needed")
            continue
        if family not in STREAMED and precision not in device.peak:
            skipped.append(f"{title}: {device.name} has no peak for {precision}")
            continue
        drawn = (seed, folds)
        fitted, residual = fit_group(kernels, device, source, drawn, everything, loaded)
        curves += fitted
        residuals.append(residual)
    return KernelFit(tuple(curves), tuple(residuals), tuple(skipped))


def fit_group(
    kernels: list[Kernel], device: Device, source: str, drawn: tuple[int, int], everything: bool,
    loaded: float,
) -> tuple[list[Curve], Residual]:  # fmt: skip
    """Fit the curve of one group of kernels (two, where Winograd shows); with its residuals."""
    first = kernels[0]
    shapes = np.array([kernel.shape for kernel in kernels]).T
    seconds = np.array([kernel.seconds for kernel in kernels])
    files = ", ".join(sorted({kernel.where.rpartition(":")[0] for kernel in kernels}))
    starts = first_guesses(first, source or files)
    price = pricer(first.family, first.precision, first.part, device, loaded)

    def best(training: Indices) -> list[Curve]:
        # a second algorithm must pay for its numbers: an Akaike-like penalty on the loss
        tried = (
            solve(start, lambda trial: price(trial, shapes[:, training]), seconds[training])
            for start in starts
        )
        return min(tried, key=lambda pair: pair[1] * (WAVES_PENALTY if pair[0][0].waves else 1))[0]

    error = np.empty(len(kernels))
    seed, parts = drawn
    folds = [split(len(kernels), part, seed, parts) for part in range(parts)]
    fits = [best(trained) for _, trained in folds]
    for (held_out, _), curves in zip(folds, fits, strict=True):
        error[held_out] = np.log(price(curves, shapes[:, held_out]) / seconds[held_out])
    chosen = best(np.arange(len(kernels))) if everything else fits[0]
    relative, middle = np.expm1(error), float(np.median(error))
    spread = float(np.hypot(1.4826 * np.median(np.abs(error - middle)), middle))
    work = size(first.family, shapes)
    reach = (float(work.min()), float(work.max()))
    worst = int(np.argmax(np.abs(error)))
    off = np.abs(relative)
    residual = Residual(
        first.family, first.precision, first.part, len(kernels),
        float(np.median(off[folds[0][0]])), float(np.median(off)), float(np.quantile(off, 0.9)),
        float(np.median(relative)), spread, f"{kernels[worst].where} {relative[worst]:+.0%}", reach,
    )  # fmt: skip
    bounds = () if first.family in STREAMED else reach
    return [replace(curve, uncertainty=spread, reach=bounds) for curve in chosen], residual


def first_guesses(first: Kernel, source: str) -> list[list[Curve]]:
    """Curves from which the search starts.

    For matrix products without and with whole waves; for convolutions several, without and with
    Winograd.
    """
    # what is fitted forward serves backward too until that is measured, attention at a published
    # ratio
    part = "" if first.family in TWO_WAYS and first.part == "forward" else first.part
    assumed = ASSUMED[SHOWS.get(first.family, first.family)]
    precision = "" if first.family in STREAMED else first.precision
    plain = replace(assumed, origin="fitted", precision=precision, part=part, source=source)
    if assumed.family == "gemm":
        # a term that is never the longer shows nothing: start where loads are seen
        return [[plain], [replace(plain, waves=True, traffic=0.5)]]
    if first.family in ("attention", "latent"):
        return [[plain], [replace(plain, start=7e-6, sustained=0.6, traffic=0.5)]]
    if first.family in ("norm", "pool"):  # here too a term that is never the longer shows nothing
        return [[plain], [replace(plain, pace=SLOW)]]
    if first.family != "conv":
        return [[plain]]
    alone, with_winograd = [plain], [plain, replace(plain, family="winograd")]
    return [alone, with_winograd] + [
        [altered(curve, SHAPING, numbers) for curve in start]
        for start in (alone, with_winograd)
        for numbers in ((8, 0.5, 8, 0.3), (100, 0.001, 16, 3.0), (8, 0.001, 300, 0.3))
    ]


def applies(name: str, curve: Curve) -> bool:
    """Whether a curve of this family and part has the named number."""
    if curve.family in STREAMED:
        return name in ("start", "traffic", *(["pace"] * (curve.family in ("norm", "pool"))))
    if curve.family == "scan":
        return name in ("sustained", "traffic")
    if curve.family == "depthwise":
        return name in ("start", "sustained", "traffic")
    convolution = curve.family in ("conv", "winograd", "conv3d", "grouped")
    data = convolution and curve.part == "data"
    only = {"granule": convolution, "zeros": data and curve.family != "winograd",
            "ramp": not curve.waves,
            # all rows are long, so they show no start of a loop
            "prologue": curve.family != "experts", "pace": False, "sweeps": curve.sweeps > 0,
            "strided": data and curve.strided > 1}  # fmt: skip
    return only.get(name, True)


def altered(curve: Curve, names: Iterable[str], numbers: Iterable[float]) -> Curve:
    """The curve with other values of the named numbers."""
    changes: dict[str, Any] = dict(zip(names, numbers, strict=True))
    return replace(curve, **changes)


def split(count: int, part: int, seed: int, parts: int = FOLDS) -> tuple[Indices, Indices]:
    """Which kernels are held out (one random fifth) and which are seen."""
    order = np.random.default_rng(seed).permutation(count)
    held_out = np.arange(count) % parts == part
    return order[held_out], order[~held_out]


def solve(
    start: list[Curve], price: Callable[[list[Curve]], Floats], seconds: Floats
) -> tuple[list[Curve], float]:
    """The numbers of `start` that fit best, and their penalised loss."""
    from scipy.optimize import least_squares

    owned = [[name for name in NUMBERS if applies(name, curve)] for curve in start]
    lowest, highest = np.log([NUMBERS[name] for names in owned for name in names]).T
    pairs = list(zip(start, owned, strict=True))
    assumed = [max(getattr(curve, name), 1e-9) for curve, names in pairs for name in names]
    origin = np.clip(np.log(assumed), lowest + 1e-6, highest - 1e-6)
    cuts = np.cumsum([len(names) for names in owned])[:-1]

    def curves(numbers: Floats) -> list[Curve]:
        rows = np.split(np.exp(numbers), cuts)
        return [altered(*pair, row.tolist()) for pair, row in zip(pairs, rows, strict=True)]

    def residuals(numbers: Floats) -> Floats:
        off = np.log(price(curves(numbers)) / seconds)
        return np.concatenate([off, SOFT * (numbers - origin) / PRIOR])

    solution = least_squares(
        residuals, origin, loss="soft_l1", f_scale=SOFT, bounds=(lowest, highest), x_scale=0.3
    )
    loss = solution.cost / SOFT**2 + 2 * len(origin)
    return curves(solution.x), float(loss)


def pricer(
    family: str, precision: str, part: str, device: Device, loaded: float = 1.0
) -> Callable[[list[Curve], Floats], Floats]:
    """The function (trial curves, shapes) -> seconds on the device."""
    copies = tuple(curve for curve in device.kernels if curve.family == "stream" != family)

    def price(trial: list[Curve], shapes: Floats) -> Floats:
        # a benchmark of one kernel is mostly over before power slows its clock
        bare = replace(device, kernels=(*trial, *copies), loaded=loaded)
        return np.asarray(seconds_of(bare, family, precision, part, shapes))

    return price


def seconds_of(
    device: Device, family: str, precision: str, part: str, shapes: Floats, layout: str = ""
) -> Floats:
    """Price kernels whose shapes stand in columns, in the order of `readers.kernels.SHAPES`."""
    if family == "gemm":
        return np.asarray(gemm(device, precision, *shapes, queued=True))
    if family in CONVOLUTIONS:
        batch, channels, filters, *boxes, groups = shapes
        out, window, stride = (tuple(boxes[first : first + 3]) for first in (0, 3, 6))
        return np.asarray(conv(
            device, precision, batch, channels, filters, out, window, stride, groups, part,
            family=family, layout=layout, queued=True,
        ))  # fmt: skip
    if family in ("norm", "pool"):
        nbytes, elements, blocks = shapes
        return reduction(device, family, nbytes, elements, blocks, part)
    if family in ("attention", "latent"):
        return attended(device, family, precision, part, shapes)
    if family in TOGETHER:
        return TOGETHER[family](device, precision, *shapes)
    return np.asarray(stream(device, shapes[0], family=family, queued=True))


def size(family: str, shapes: Floats) -> Floats:
    """FLOP of each kernel; bytes where it is streamed."""
    if family == "experts":
        tokens, hidden, ffn, visits, _, devices, gated = shapes
        return np.asarray(2 * (2 + gated) * tokens * visits / devices * hidden * ffn)
    if family == "scan":
        return scanned(*shapes)
    if family in ("attention", "latent"):
        batch, heads, _, queries, keys, width, causal = shapes
        return np.asarray(4 * batch * heads * queries * keys * width / (1 + causal))
    if family in STREAMED:
        return np.asarray(shapes[0])
    shapes = np.delete(shapes, [9, 10, 11], axis=0) if family in CONVOLUTIONS else shapes
    work = 2.0 * np.prod(shapes, axis=0)
    return np.asarray(work / shapes[-1] ** 2 if family in CONVOLUTIONS else work)


def entries(curves: Iterable[Curve]) -> list[dict[str, object]]:
    """Curves as the `kernels:` of a device file lists them, in four digits."""
    units = {"start": "s"}
    listed: list[dict[str, object]] = []
    for curve in curves:
        entry: dict[str, object] = {"family": curve.family}
        entry |= {
            name: getattr(curve, name) for name in ("precision", "part") if getattr(curve, name)
        }
        for name in (name for name in NUMBERS if applies(name, curve)):
            value = getattr(curve, name)
            entry[name] = show(value, units[name], 4) if name in units else float(f"{value:.4g}")
        if curve.waves:
            entry["waves"] = True
        if curve.reach:
            entry["reach"] = [show(end, "FLOP", 4) for end in curve.reach]
        entry |= {"uncertainty": float(f"{curve.uncertainty:.2g}"), "origin": curve.origin}
        listed.append(entry | {"source": curve.source})
    return listed


def onto(device: Device, curves: Iterable[Curve]) -> Device:
    """The device with these curves in place of its own of the same kernels."""
    fresh = tuple(curves)
    algorithms = {"winograd": "conv"}

    def key(curve: Curve) -> tuple[str, str, str]:
        return algorithms.get(curve.family, curve.family), curve.precision, curve.part

    replaced = {key(curve) for curve in fresh}
    unchanged = tuple(curve for curve in device.kernels if key(curve) not in replaced)
    return replace(device, kernels=unchanged + fresh)

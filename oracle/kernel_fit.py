"""The few numbers of `oracle.compute`'s curves from measured kernels: robust least squares.

Each family, precision and part has its own `Curve`. Its six numbers minimise the soft-L1 loss of
the logarithm of predicted over measured seconds, so that a kernel that is off by a factor (another
algorithm, a cold cache) pulls no more than linearly, and weakly lean on the assumed values, so that
what the data do not show stays where it was. A random fifth is held out, and the spread that a
curve states is what it shows on kernels it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from oracle import compute
from oracle.compute.curve import ASSUMED, fitted
from oracle.readers.kernels import Kernel
from oracle.specs import Curve, Device
from oracle.units import show

HELD_OUT = 0.2
SEED = 20211
FEWEST = 12  # kernels of one family, precision and part that a curve is fitted to
KNEE = 0.1  # relative error from which on a residual counts linearly
LEAN = 2.0  # 1σ of the prior, in units of the logarithm: a factor of seven
# what is fitted: its least and its most, and the families that have it
NUMBERS = {
    "start": (1e-7, 5e-5),
    "sustained": (0.05, 1.0),
    "traffic": (0.05, 1.0),
    "tile": (1.0, 256.0),
    "prologue": (1.0, 1024.0),
    "ramp": (1e-4, 5.0),
    "granule": (1.0, 256.0),
    "zeros": (1e-2, 30.0),
}
OWN = {"conv": tuple(NUMBERS), "stream": ("start", "traffic")}
SHAPING = ("tile", "ramp", "prologue", "zeros")
COMMON = ("start", "sustained", "traffic", "tile", "prologue", "ramp")


@dataclass(frozen=True, slots=True)
class Residual:
    """How well one curve says kernels again: relative errors, on those held out and on all."""

    family: str
    precision: str
    part: str
    kernels: int
    held_out: int
    median: float  # of |predicted - measured| / measured, held out
    p90: float
    bias: float  # median of predicted / measured - 1, held out
    spread: float  # robust 1σ of the logarithm, held out
    worst: str  # where the worst prediction of all kernels is, and how far off
    reach: tuple[float, float]  # FLOP of the smallest and the largest kernel (bytes of a stream)


@dataclass(frozen=True, slots=True)
class Fit:
    """Curves fitted to kernels of one device, and how well they do on kernels held out."""

    kernels: tuple[Curve, ...]
    residuals: tuple[Residual, ...]
    skipped: tuple[str, ...]  # groups too small to fit, in words

    @property
    def held_out(self) -> float:
        """Median relative error over the held-out kernels, mean of all curves."""
        return float(np.mean([residual.median for residual in self.residuals]))


def fit(
    samples: Iterable[Kernel],
    device: Device,
    *,
    source: str = "",
    seed: int = SEED,
    everything: bool = False,
) -> Fit:
    """Fit a curve for each family, precision and part that has enough kernels.

    `everything` refits on all kernels after the held-out errors are known, as a shipped device
    wants it; without it the curves have seen four fifths.
    """
    groups: dict[tuple[str, str, str], list[Kernel]] = {}
    for sample in samples:
        groups.setdefault((sample.family, sample.precision, sample.part), []).append(sample)
    curves: list[Curve] = []
    residuals: list[Residual] = []
    skipped: list[str] = []
    for (family, precision, part), kernels in sorted(groups.items()):
        title = " ".join(filter(None, (family, precision, part)))
        if len(kernels) < FEWEST:
            skipped.append(f"{title}: {len(kernels)} kernels, {FEWEST} are needed")
            continue
        if family != "stream" and precision not in device.peak:
            skipped.append(f"{title}: {device.name} has no peak for {precision}")
            continue
        own, residual = one(kernels, device, source, seed, everything)
        curves += own
        residuals.append(residual)
    return Fit(tuple(curves), tuple(residuals), tuple(skipped))


def one(
    kernels: list[Kernel], device: Device, source: str, seed: int, everything: bool
) -> tuple[list[Curve], Residual]:
    """The curve of one group of kernels (two, where Winograd shows), and its residuals."""
    first = kernels[0]
    shapes = np.array([kernel.shape for kernel in kernels]).T
    seconds = np.array([kernel.seconds for kernel in kernels])
    held, seen = split(len(kernels), seed)
    # what is fitted forward serves backward too, at a published ratio, until that is measured
    part = "" if first.family == "attention" and first.part == "forward" else first.part
    start = replace(
        ASSUMED[first.family], origin="fitted", precision=first.precision, part=part,
        source=source or ", ".join(sorted({each.where.rpartition(":")[0] for each in kernels})),
    )  # fmt: skip
    starts = [[start]]
    if first.family == "conv":
        starts.append([start, replace(start, family="winograd")])
    price = pricer(first.family, first.precision, first.part, device)

    def solved(chosen: np.ndarray, begin: list[Curve]) -> tuple[list[Curve], float]:
        return solve(begin, lambda trial: price(trial, shapes[:, chosen]), seconds[chosen])

    if first.family == "conv":
        starts += [
            [replace(known, **dict(zip(SHAPING, numbers, strict=True))) for known in begin]
            for begin in starts[:2]
            for numbers in ((8, 0.5, 8, 0.3), (100, 0.001, 16, 3.0), (8, 0.001, 300, 0.3))
        ]
    # a second algorithm must pay for its numbers: an Akaike-like penalty on the loss
    best, _ = min((solved(seen, begin) for begin in starts), key=lambda pair: pair[1])
    error = np.log(price(best, shapes) / seconds)
    relative, unseen = np.expm1(error), error[held]
    spread = float(1.4826 * np.median(np.abs(unseen - np.median(unseen))))
    spread = float(np.hypot(spread, np.median(unseen)))
    work = size(first.family, shapes)
    reach = (float(work.min()), float(work.max()))
    at = int(np.argmax(np.abs(error)))
    residual = Residual(
        first.family, first.precision, first.part, len(kernels), len(held),
        float(np.median(np.abs(relative[held]))), float(np.quantile(np.abs(relative[held]), 0.9)),
        float(np.median(relative[held])), spread,
        f"{kernels[at].where} {relative[at]:+.0%}", reach,
    )  # fmt: skip
    if everything:
        best, _ = solved(np.arange(len(kernels)), best)
    bounds = () if first.family == "stream" else reach
    return [replace(c, uncertainty=spread, reach=bounds) for c in best], residual


def split(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which kernels are held out (a random fifth) and which are seen."""
    order = np.random.default_rng(seed).permutation(count)
    held = max(1, round(HELD_OUT * count))
    return order[:held], order[held:]


def solve(
    begin: list[Curve], price: Callable[[list[Curve]], np.ndarray], seconds: np.ndarray
) -> tuple[list[Curve], float]:
    """The numbers of `begin` that fit best, and their penalised loss."""
    from scipy.optimize import least_squares

    names = OWN.get(begin[0].family, COMMON)
    low, high = np.log([NUMBERS[name] for name in names]).T
    least, most = np.tile(low, len(begin)), np.tile(high, len(begin))
    assumed = [max(getattr(known, name), 1e-9) for known in begin for name in names]
    origin = np.clip(np.log(assumed), least + 1e-6, most - 1e-6)

    def curves(numbers: np.ndarray) -> list[Curve]:
        rows = np.exp(numbers).reshape(len(begin), -1).tolist()
        return [
            replace(known, **dict(zip(names, row, strict=True)))
            for known, row in zip(begin, rows, strict=True)
        ]

    def residuals(numbers: np.ndarray) -> np.ndarray:
        off = np.log(price(curves(numbers)) / seconds)
        return np.concatenate([off, KNEE * (numbers - origin) / LEAN])

    found = least_squares(
        residuals, origin, loss="soft_l1", f_scale=KNEE, bounds=(least, most), x_scale=0.3
    )
    loss = found.cost / KNEE**2 + 2 * len(origin)
    return curves(found.x), float(loss)


def pricer(
    family: str, precision: str, part: str, device: Device
) -> Callable[[list[Curve], np.ndarray], np.ndarray]:
    """The function (trial curves, shapes) -> seconds on the device."""

    def price(trial: list[Curve], shapes: np.ndarray) -> np.ndarray:
        bare = replace(device, kernels=tuple(trial))
        return np.asarray(seconds_of(bare, family, precision, part, shapes))

    return price


def seconds_of(
    device: Device, family: str, precision: str, part: str, shapes: np.ndarray
) -> np.ndarray:
    """Price kernels whose shapes stand in columns, in the order of `readers.kernels.SHAPES`."""
    if family == "gemm":
        return np.asarray(compute.gemm(device, precision, *shapes, queued=True))
    if family == "conv":
        batch, channels, filters, *boxes, groups = shapes
        out, window, stride = (tuple(boxes[at : at + 3]) for at in (0, 3, 6))
        return np.asarray(compute.conv(
            device, precision, batch, channels, filters, out, window, stride, groups, part,
            queued=True,
        ))  # fmt: skip
    if family == "attention":
        *extents, causal = shapes
        return np.where(
            causal > 0,
            compute.attention(device, precision, *extents, True, part, queued=True),
            compute.attention(device, precision, *extents, False, part, queued=True),
        )
    return np.asarray(compute.stream(device, shapes[0], queued=True))


def size(family: str, shapes: np.ndarray) -> np.ndarray:
    """FLOP of each kernel; bytes of a stream."""
    if family == "attention":
        batch, heads, _, queries, keys, width, causal = shapes
        return np.asarray(4 * batch * heads * queries * keys * width / (1 + causal))
    double = 1.0 if family == "stream" else 2.0
    shapes = np.delete(shapes, [9, 10, 11], axis=0) if family == "conv" else shapes
    work = double * np.prod(shapes, axis=0)
    return np.asarray(work / shapes[-1] ** 2 if family == "conv" else work)


def report(result: Fit) -> str:
    """The residuals of a fit as a table in text."""
    lines = [f"{'kernels of':<26}{'number':>7}{'held out':>9}{'median':>8}{'90 %':>8}{'bias':>8}"
             f"{'1 sigma':>9}  {'reach':<24} worst"]  # fmt: skip
    for row in result.residuals:
        title = " ".join(filter(None, (row.family, row.precision, row.part)))
        unit = "B" if row.family == "stream" else "FLOP"
        reach = " … ".join(show(end, unit) for end in row.reach)
        lines.append(
            f"{title:<26}{row.kernels:>7}{row.held_out:>9}{row.median:>8.1%}{row.p90:>8.1%}"
            f"{row.bias:>+8.1%}{row.spread:>9.1%}  {reach:<24} {row.worst}"
        )
    return "\n".join([*lines, *(f"not fitted: {line}" for line in result.skipped)])


def entries(curves: Iterable[Curve]) -> list[dict[str, object]]:
    """Curves as the `kernels:` of a device file lists them: four digits, every one with its unit."""
    units = {"start": "s"}
    listed: list[dict[str, object]] = []
    for each in curves:
        entry: dict[str, object] = {"family": each.family}
        entry |= {
            name: getattr(each, name) for name in ("precision", "part") if getattr(each, name)
        }
        for name in OWN.get("conv" if each.family == "winograd" else each.family, COMMON):
            value = getattr(each, name)
            entry[name] = show(value, units[name], 4) if name in units else float(f"{value:.4g}")
        if each.reach:
            entry["reach"] = [show(end, "FLOP", 4) for end in each.reach]
        entry |= {"uncertainty": float(f"{each.uncertainty:.2g}"), "origin": each.origin}
        listed.append(entry | {"source": each.source})
    return listed


def has(device: Device, family: str, precision: str, part: str = "") -> bool:
    """Whether the device carries a curve of its own for these kernels."""
    return fitted(device, family, precision, part) is not None

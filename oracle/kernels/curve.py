"""Seconds of one kernel from its causes: arithmetic, traffic, and what a start costs.

    area    = count · √(m² + tile²) · √(n² + tile²)          a part of a tile costs a tile
    idle    = ramp · 128² · processors                       nor does part of a wave come free
    math    = 2 · (area + idle) · (k + prologue) / (peak · sustained)
    traffic = bytes / (memory bandwidth · share)
    seconds = max(start + √(math² + traffic²), launch)      alone; in a step: `powered`

Every term grows with every extent, so more work is never faster (`williams2009`'s roofline with
round corners). It costs two square roots and no power: a million plans are priced with it. Where
measurements show the steps of whole waves of whole tiles, `waves` takes the place of `math`, and
the longer of the two counts: what a wave loads, it loads while it computes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from oracle.kernels.waves import waves
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Curve, Device
from oracle.spec.doubt import FAMILY, PRECISION, PROCESSORS, SIBLING, UNTILED
from oracle.spec.precision import NARROW

# bytes of an element as a kernel reads it
OPERAND_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, **NARROW}
REACHED = 0.83  # of the peak, by large products in a short benchmark: 0.81 H100, 0.84 A100
AREA = 128.0 * 128.0  # of the tile that one processor works on at a time

# what to compute in where a device has no unit for the precision asked for
INSTEAD = {
    "fp8": ("bf16", "fp16", "fp32"),
    "mxfp8": ("bf16", "fp16", "fp32"),
    "nvfp4": ("bf16", "fp16", "fp32"),
    "bf16": ("fp32", "tf32"),
    "fp16": ("bf16", "fp32"),
    "tf32": ("fp32", "bf16"),
    "fp32": ("tf32", "bf16"),
}
# whose curve to borrow where none was fitted at the precision computed in
RELATED = {
    "fp8": ("bf16", "fp16"),
    "mxfp8": ("fp8", "bf16", "fp16"),
    "nvfp4": ("fp8", "bf16", "fp16"),
    "bf16": ("fp16", "tf32"),
    "fp16": ("bf16", "tf32"),
    "tf32": ("bf16", "fp16"),
    "fp32": (),
}
# whose curve matrix units have where a family was not measured
LIKE = {"conv3d": "conv", "products": "gemm", "experts": "gemm", "latent": "attention"}
# what kernels do on a device that nobody measured: round figures of those that were, each with
# what twenty kernels together err by / COMMON, and the work from which on they err by no more
GUESS = Curve("", "assumed: round figures of measured devices", origin="assumed", uncertainty=0.3)
ASSUMED = {
    "gemm": replace(GUESS, family="gemm", tile=16, prologue=72, ramp=0.03, uncertainty=0.09,
                    reach=(1e10, inf)),
    "conv": replace(GUESS, family="conv", sustained=0.7, prologue=16, ramp=0.3, uncertainty=0.6,
                    reach=(1e10, inf)),
    # vector units on volumes: fitted to a T4's kernels and one of an RTX 2080 Ti, with the share of
    # the memory bandwidth that planes reach
    "conv3d": replace(GUESS, family="conv3d", sustained=1.0, tile=72, prologue=5.6, ramp=0.3,
                      granule=7.4, uncertainty=FAMILY),
    "conv3d weight": replace(GUESS, family="conv3d", sustained=1.0, tile=72, prologue=64,
                             ramp=0.01, granule=7.4, uncertainty=FAMILY),
    "grouped": replace(GUESS, family="grouped", sustained=0.5, tile=64, prologue=16, ramp=0.3,
                       granule=16, uncertainty=1.0),
    "grouped weight": replace(GUESS, family="grouped", sustained=0.5, tile=64, prologue=64,
                              ramp=0.01, granule=16, uncertainty=1.0),
    "depthwise": replace(GUESS, family="depthwise", sustained=0.25, traffic=0.4, tile=1, prologue=0,
                         ramp=0.0, granule=0, uncertainty=0.7),
    "depthwise weight": replace(GUESS, family="depthwise", sustained=0.1, traffic=0.2, tile=1,
                                prologue=0, ramp=0.0, granule=0, uncertainty=1.0),
    # what a weight's gradient adds up is dealt to all processors, so few of them idle
    "conv weight": replace(GUESS, family="conv", sustained=0.75, prologue=64, ramp=0.01,
                           uncertainty=0.6, reach=(1e10, inf)),
    "attention": replace(GUESS, family="attention", sustained=0.5, prologue=196, ramp=2,
                         uncertainty=0.15, reach=(1e11, inf)),
    "latent": replace(GUESS, family="latent", sustained=0.5, prologue=196, ramp=2,
                      uncertainty=0.3, reach=(1e11, inf)),
    "stream": replace(GUESS, family="stream", start=2e-6),
    # a convolution along the tokens: 0.75 on an H100, 0.5 of a Blackwell's faster memory
    "conv1d": replace(GUESS, family="conv1d", start=2e-6, traffic=0.65),
    # fitted to kernels3d.csv on A100, L40S and T4 together: forward, channels first
    "norm": replace(GUESS, family="norm", start=2.4e-6, traffic=0.75, pace=2.3e9),
    "pool": replace(GUESS, family="pool", start=4.8e-6, traffic=0.77, pace=1.4e9),
    # operators of which only FLOP and bytes are known: a tenth of the peak, or most of it
    "counted": replace(GUESS, family="counted", sustained=0.3, uncertainty=0.9),
    # a scan takes as long as FlashAttention-2 at 2,048 tokens and a sixth of it at 16,384, states
    # of 64 [dao2024, §9.3]; rows of tables are a few hundred bytes each; a transform's butterflies
    # run on vector units; a cell is as fast as a product of its shape
    "scan": replace(GUESS, family="scan", sustained=0.1, traffic=0.19, uncertainty=0.9),
    "tables": replace(GUESS, family="tables", traffic=0.4, uncertainty=0.9),
    "fft": replace(GUESS, family="fft", sustained=0.05, traffic=0.6, uncertainty=0.9),
    "recurrent": replace(GUESS, family="recurrent", uncertainty=0.9),
    "products": replace(GUESS, family="products", uncertainty=FAMILY),
    "experts": replace(GUESS, family="experts", prologue=128, uncertainty=FAMILY),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the seconds of a kernel come from, and their uncertainty."""

    kind: str  # measured, fitted, datasheet or assumed
    source: str
    uncertainty: float  # relative, 1σ, of one kernel
    outside: bool  # of the range of work that was fitted
    reach: tuple[float, ...] = ()  # of the smallest and of the largest kernel measured, FLOP


def precision_on(device: Device, precision: str) -> str:
    """The precision that the device really computes in."""
    for known in (precision, *INSTEAD[precision], *device.peak):
        if known in device.peak:
            return known
    raise ValueError(f"{device.name} has no peak for any precision")


def tiled(device: Device, own: str) -> bool:
    """Whether products of a precision have units of their own, for small tiles of matrices."""
    return own != "fp32" and device.peak[own] > 2.5 * device.peak.get("fp32", 0.0)


def curve(device: Device, family: str, precision: str = "", part: str = "") -> Curve:
    """The curve that fits best: same precision and part, else a related one, else assumed."""
    found = fitted(device, family, precision, part)
    if found is None and family in LIKE and precision != "fp32":  # matrix units do alike
        like = fitted(device, LIKE[family], precision, part)
        if like is not None:
            source = f"as {LIKE[family]} until `oracle measure compute` is run: {like.source}"
            unsure = max(ASSUMED[family].uncertainty, like.uncertainty)
            found = replace(
                like, family=family, origin="assumed", source=source, uncertainty=unsure
            )
    return ASSUMED.get(f"{family} {part}", ASSUMED[family]) if found is None else found


def fitted(device: Device, family: str, precision: str = "", part: str = "") -> Curve | None:
    """The device's own curve of a family, or None where nothing was fitted."""
    for wanted in (precision, *RELATED.get(precision, ()), ""):
        for known in device.kernels:
            if (known.family, known.precision) == (family, wanted) and known.part in (part, ""):
                return known
    return None


def origin(
    device: Device, family: str, precision: str = "", part: str = "", flop: float | None = None
) -> Origin:
    """Where the seconds of a kernel come from, and whether `flop` lies outside the fit."""
    own = precision and precision_on(device, precision)
    used = curve(device, family, own, part)
    outside = used.origin == "assumed"
    if flop is not None and used.reach and not outside:
        outside = not used.reach[0] <= flop <= used.reach[-1]
    kind, source, uncertainty = used.origin, used.source, used.uncertainty
    if kind != "assumed" and used.precision not in (own, ""):
        # the two 16-bit formats run on the same units at the same rate; other pairs are a guess
        alike = {used.precision, own} == {"fp16", "bf16"}
        kind, wider = (kind, SIBLING) if alike else ("assumed", PRECISION)
        source, uncertainty = f"as {used.precision}: {source}", wider * uncertainty
    if kind == "assumed":  # nobody knows less of a device with a curve than of one without
        guess = ASSUMED.get(f"{family} {part}", ASSUMED[family]).uncertainty
        if family == "gemm" and not tiled(device, own):
            guess = UNTILED
        elif family == "gemm" and own not in ("fp16", "bf16"):  # which alone were measured
            guess = PRECISION * guess
        elif family == "conv3d" and device.host:  # the guess was fitted to GPUs' kernels
            guess = PROCESSORS
        uncertainty = guess if used.source == GUESS.source else min(uncertainty, guess)
    return Origin(kind, source, uncertainty, outside, used.reach)


def duration(
    used: Curve,
    device: Device,
    rate: Numbers,
    m: Floats,
    n: Floats,
    k: Floats,
    count: Numbers,
    nbytes: Floats,
) -> Floats:
    """Seconds on the device of `count` products (m×k)·(k×n) in one kernel, by `used`."""
    traffic = nbytes * (1 / (device.memory_bandwidth * used.traffic))
    if used.waves:
        return used.start + np.maximum(waves(used, device, rate, m, n, k, count), traffic)
    tile, idle = used.tile**2, used.ramp * AREA * device.processors
    area = np.sqrt((m * m + tile) * (n * n + tile)) * count
    math = (area + idle) * (k + used.prologue) * (2 / (rate * used.sustained))
    # np.hypot guards against overflow that cannot be here, at five times the price
    return used.start + np.sqrt(math * math + traffic * traffic)


def launched(device: Device, seconds: Floats, queued: bool) -> Floats:
    """Seconds of a kernel, no less than the host takes to launch it unless it is `queued`."""
    return seconds if queued else np.maximum(seconds, device.launch)


def powered(device: Device, own: str, seconds: Floats, flop: Numbers, queued: bool) -> Floats:
    """As `launched`, and in a training step (`queued`) at the clock that the power limit allows.

        P ∝ rate · V²,  V ∝ clock:   clock = ∛(budget / rate)  where that is less than one

    Matrix units under random numbers for hours draw more than a device is granted, and its clock
    gives way: the largest products, at `REACHED` of the peak in a short benchmark, keep up
    `loaded` of it. A kernel that fills the units less draws less and is slowed down less.
    """
    if not queued or own == "fp32" or device.loaded >= REACHED:
        return launched(device, seconds, queued)
    budget = device.peak[own] * device.loaded**3 / REACHED**2
    return np.maximum(seconds, np.cbrt(seconds * seconds * (np.asarray(flop) / budget)))

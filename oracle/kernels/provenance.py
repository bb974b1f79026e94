"""Where the seconds of each pass come from (measured, fitted, assumed), and their uncertainty.

A row is `measured` where a profile has it, else what the curve of its kernels is: `fitted`,
`datasheet` or `assumed`. It lies outside where no measurement covers it: at work that a curve was
not fitted to, or at another shape than the profile's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oracle.kernels.conv import matrix
from oracle.kernels.curve import Origin, origin, precision_on
from oracle.kernels.families import families
from oracle.kernels.passes import Passes
from oracle.models.model import Floats, Model
from oracle.models.shard import Numbers, Shard
from oracle.spec.device import ORIGINS, Device
from oracle.spec.doubt import COMMON, EXACT, FOLD, SCALED
from oracle.spec.options import Options
from oracle.spec.software import Software

MEASURED = ("measured", "fitted")
CONVOLUTIONS = ("conv", "conv3d", "grouped", "depthwise")
# families that err alike: one library's convolutions, passes that memory sets the pace of
ALIKE = (
    dict.fromkeys(("conv", "conv3d", "grouped", "depthwise"), "convolutions")
    | dict.fromkeys(("attention", "latent"), "attention")
    | dict.fromkeys(("gemm", "products", "experts", "recurrent"), "products")
    | dict.fromkeys(("stream", "conv1d", "norm", "pool", "tables"), "passes")
)
REDUCED = ("norm", "pool")  # their gradients are kernels of another kind
ANY = ("stream", "conv1d", "norm", "pool", "depthwise")  # their curves are of any precision
# 1σ, relative, of factorisations priced as the products of their panels, which nobody timed
SOLVED = 0.4


@dataclass(eq=False)
class Provenance:
    """Seconds of one pass of each plan, by origin, and their uncertainty: (plans,) each."""

    seconds: dict[str, Floats] = field(default_factory=dict)  # by origin
    # seconds of what was measured or fitted, but not at such work
    outside: Floats = field(default_factory=lambda: np.zeros(1))
    # 1σ of families that err `ALIKE`, seconds; of others each by itself, for they err apart
    doubts: dict[str, Floats] = field(default_factory=dict)
    # seconds of convolutions on matrix units, which care where their channels stand
    convolved: Floats = field(default_factory=lambda: np.zeros(1))
    # seconds that logged runs told of, by the name of the factor: they have doubts of their own
    told: dict[str, Floats] = field(default_factory=dict)
    # seconds of rows that were timed at this very shape, with whatever lies between kernels
    timed: Floats = field(default_factory=lambda: np.zeros(1))

    def add(
        self, kind: str, family: str, seconds: Floats, outside: Numbers, uncertainty: Numbers
    ) -> None:
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds
        self.outside = self.outside + np.broadcast_to(outside, seconds.shape)
        doubt = np.broadcast_to(uncertainty, seconds.shape)
        alike = ALIKE.get(family, family)
        self.doubts[alike] = self.doubts.get(alike, 0.0) + doubt

    def spread(self, spread: Callable[[Floats], Floats]) -> Provenance:
        """The same of more plans, where those at hand each stand for some."""
        seconds = {kind: spread(each) for kind, each in self.seconds.items()}
        convolved = spread(self.convolved + 0.0 * self.total)
        told = {name: spread(each) for name, each in self.told.items()}
        doubts = {family: spread(each) for family, each in self.doubts.items()}
        timed = spread(self.timed + 0.0 * self.total)
        return Provenance(seconds, spread(self.outside), doubts, convolved, told, timed)

    @property
    def total(self) -> Floats:
        return np.maximum(sum(self.seconds.values()), 1e-30)

    def to_dict(self, plan: int) -> dict[str, object]:
        """The origin of one plan's seconds, as JSON has it."""
        shares = {kind: float(self.seconds[kind][plan] / self.total[plan])
                  for kind in ORIGINS if kind in self.seconds}  # fmt: skip
        shares = {kind: share for kind, share in shares.items() if share > 0}
        kind = max(shares, key=lambda kind: shares[kind], default="assumed")
        covered = kind in MEASURED and self.outside[plan] <= 0.1 * self.total[plan]
        return {"origin": kind, "outside": not covered, "shares": shares}


def provenance(
    shard: Shard, times: Passes, weights: Floats, device: Device, options: Options
) -> tuple[Provenance, Provenance, Provenance]:
    """Of forward and backward pass, per micro-batch of the whole model, and of the update.

    `weights` are those that each stage updates, (plans, p).
    """
    ahead, back, update = Provenance(), Provenance(), Provenance()
    if shard.ideal:
        for tally in (ahead, back, update):
            tally.add("assumed", "", np.ones(len(times.forward)), 0.0, 0.0)
        return ahead, back, update
    size, profile = times.forward.shape, options.profile
    for family, columns in _families(shard.model, shard.software, options.precision).items():
        at = np.array(columns)
        work = 2.0 * shard.model.mac[at] * np.broadcast_to(shard.micro * shard.work, size)[:, at]
        for part, tally in (("forward", ahead), ("data", back), ("weight", back)):
            seconds = np.broadcast_to(getattr(times, part), size)[:, at] * shard.model.repeat[at]
            if not seconds.any():
                continue
            made_in = _made_in(family, device, options)
            if family in CONVOLUTIONS and matrix(device, precision_on(device, made_in)):
                tally.convolved = tally.convolved + seconds.sum(axis=1)
            own = _origin(family, part, device, options)
            if np.ndim(times.measured):
                how = (
                    np.broadcast_to(each, size)[:, at] for each in (times.measured, times.spread)
                )
                seconds = _measured(tally, family, seconds, *how)
            told = [] if profile is None else profile.factors.naming(family, part)
            if told:  # by runs of other shapes
                total = seconds.sum(axis=1)
                tally.add("measured", family, total, total, 0.0)
                for name in told:
                    tally.told[name] = tally.told.get(name, 0.0) + total
            else:
                power = 0.0 if family in ANY else device.loaded_doubt
                _modelled(tally, family, seconds, own, work, power)
    held = weights.sum(axis=1)
    if options.optimizer == "kfac":  # nobody timed its solvers
        update.add("assumed", "update", held, 0.0, SOLVED * held)
        return ahead, back, update
    if profile is not None and profile.has(options.optimizer):
        near = profile.has_of(options.optimizer, weights).all(axis=1)
        update.add("measured", "update", held, held * ~near, EXACT * held)
    elif profile is not None and (told := profile.factors.doubt("update")) is not None:
        update.add("measured", "update", held, held, told * held)
    else:
        stream = origin(device, "stream")
        update.add(stream.kind, "update", held, 0.0, stream.uncertainty * held)
    return ahead, back, update


def assumed(shard: Shard, times: Passes, device: Device, options: Options) -> dict[str, float]:
    """Share of one plan's passes that each family takes whose curve nobody fitted."""
    found: dict[str, float] = {}
    total = 0.0
    for family, columns in _families(shard.model, shard.software, options.precision).items():
        at = np.array(columns)
        for part in ("forward", "data", "weight"):
            seconds = getattr(times, part)[0, at] * shard.model.repeat[at]
            total += float(seconds.sum())
            own = _origin(family, part, device, options)
            if own.kind != "assumed":
                continue
            if np.ndim(times.measured):
                seconds = seconds * (np.asarray(times.measured)[0, at] == 0)
            found[family] = found.get(family, 0.0) + float(seconds.sum())
    return {family: seconds / max(total, 1e-30) for family, seconds in found.items()}


def _made_in(family: str, device: Device, options: Options) -> str:
    """The precision that a family's kernels compute in, by what the software says."""
    return options.software.kernels.computed(options.precision, device, family in CONVOLUTIONS)


def _origin(family: str, part: str, device: Device, options: Options) -> Origin:
    """Where one part of a family has its curve from."""
    precision = "" if family in ANY else _made_in(family, device, options)
    if family in REDUCED and part != "forward":
        part = "backward"
    return origin(device, family, precision, part if family in CONVOLUTIONS + REDUCED else "")


def _measured(
    tally: Provenance, family: str, seconds: Floats, how: NDArray[np.int8], spread: Floats
) -> Floats:
    """Count the seconds that a profile has; the rest, which were never measured, are returned."""
    tally.timed = tally.timed + (seconds * (how == 2)).sum(axis=1)
    for level, uncertainty in ((2, EXACT), (1, SCALED)):
        mine = seconds * (how == level)
        these = mine.sum(axis=1)
        doubt = (mine * np.hypot(uncertainty, spread)).sum(axis=1)
        tally.add("measured", family, these, these * (level == 1), doubt)
    rest: Floats = seconds * (how == 0)
    return rest


def _modelled(
    tally: Provenance, family: str, seconds: Floats, own: Origin, work: Floats,
    power: float = 0.0,
) -> None:  # fmt: skip
    """Count seconds of the kernel model, by the origin of their curve.

    `power` is what the share of the peak that power leaves is known to, 1σ.
    """
    total = seconds.sum(axis=1)
    uncertainty = float(np.hypot(COMMON[own.kind] * own.uncertainty, power)) * total
    outside: Numbers = 0.0
    if own.reach:
        low, high = own.reach[0], own.reach[-1]
        if work.min() < low or work.max() > high:
            beyond = np.maximum(np.maximum(low / np.maximum(work, 1.0), work / high), 1.0)
            outside = (seconds * (beyond > 1)).sum(axis=1) * (own.kind in MEASURED)
            uncertainty = uncertainty + FOLD * (seconds * np.log(beyond)).sum(axis=1)
    tally.add(own.kind, family, total, outside, uncertainty)


def _families(model: Model, software: Software, precision: str) -> dict[str, list[int]]:
    """Rows by the family of kernels that most of their work is."""
    found: dict[str, list[int]] = {}
    for family in families(model):
        name = family.kind
        if name in ("gemm", "conv", "deconv", "counted"):
            name = family.more[0]
        elif name == "reduction":
            reduced, _, rank = family.more
            first = software.convolution.stands(precision, rank) == "first"
            name = reduced if first else "stream"
        elif name == "attention" and not family.rows[0].flash:
            name = "gemm"
        elif name == "attention" or (name == "stream" and family.more):
            name = family.more[-1]
        found.setdefault(name, []).extend(int(i) for i in family.columns)
    return {name: sorted(columns) for name, columns in found.items()}

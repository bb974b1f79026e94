"""A library's constants as logs correct them: the entry of a spec, its error, and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oracle.calibration.entries import source_of
from oracle.calibration.fit import NORMAL90
from oracle.calibration.library import NAMES, Floats, Mask, Place
from oracle.calibration.pools import FEWEST
from oracle.calibration.spec_block import rounded
from oracle.network import nccl
from oracle.readers.logs import Reading, Sample
from oracle.spec.doubt import AGAIN, COUSIN, FOLD
from oracle.spec.system import FACTORS, Library, System
from oracle.spec.units import show

# operations whose every algorithm is one of the library's
PRICED = ("allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
LARGE = 2**20  # bytes from which a run is judged by
SLOW = 1.5  # factor over what the other runs say from which a run is left out
ENOUGH = 0.075  # mean relative error that needs no lines of an operation's own
BANDS = 8  # sizes that are left out together: every eighth


@dataclass(frozen=True, eq=False)
class LibraryFit:
    """The factors on a library's constants inside a node, or between nodes, by all its logs."""

    place: Place
    level: str
    logs: Floats  # logarithms of the factors
    dropped: tuple[str, ...]  # runs that disagree with all others, in words
    source: str

    @cached_property
    def error(self) -> Floats:
        """Fitted / measured − 1."""
        return self.place.error(self.logs)

    @cached_property
    def left_out(self) -> Floats:
        """Errors of samples whose rank count, operation or size the fit did not see."""
        place = self.place
        sizes = np.searchsorted(np.unique(place.nbytes), place.nbytes) % BANDS
        every = [sample.operation for sample in place.samples]
        words, operations = np.unique(every, return_inverse=True)
        ways = [place.ranks, sizes.astype(float)]
        ways += [operations.astype(float)] if len(words) > 1 else []
        errors = np.concatenate([place.left_out(by) for by in ways])
        return np.asarray(errors[np.isfinite(errors)])

    @cached_property
    def sigma(self) -> float:
        """Relative 1σ: nine tenths of the samples left out lie within 1.64 of it."""
        errors = self.left_out if len(self.left_out) else self.error
        return float(np.quantile(np.abs(np.log1p(errors)), 0.9) / NORMAL90)

    def half_width(self, place: Place) -> Floats:
        """Half the 90 % interval of other samples, wider beyond the measured rank counts."""
        low, high = self.place.ranks.min(), self.place.ranks.max()
        away = np.maximum(0.0, np.log(np.maximum(low / place.ranks, place.ranks / high)))
        operations = {sample.operation for sample in self.place.samples}
        unmeasured = np.array([sample.operation not in operations for sample in place.samples])
        doubt = np.maximum(AGAIN, self.sigma) + FOLD * away + COUSIN * unmeasured
        return np.asarray(np.expm1(NORMAL90 * doubt))

    @cached_property
    def entry(self) -> Library:
        """The entry of a spec."""
        factor_of = {name: rounded(value, 3) for name, value in
                     zip(NAMES, np.exp(self.logs).tolist(), strict=True)}  # fmt: skip
        base, hop, bandwidth = (
            {kind: factor_of[part, kind] for kind in FACTORS}
            for part in ("base", "hop", "bandwidth")
        )
        ranks, sizes = self.place.ranks, self.place.nbytes
        return Library(
            self.level, self.source, base, hop, bandwidth, factor_of["tree", ""],
            factor_of["own", ""], factor_of["few", ""], factor_of["opened", ""],
            error=rounded(self.sigma, 3),
            operations=tuple(sorted({sample.operation for sample in self.place.samples})),
            ranks=(int(ranks.min()), int(ranks.max())),
            sizes=(float(sizes.min()), float(sizes.max())),
        )  # fmt: skip

    @property
    def share(self) -> float:
        """The share of the datasheet's bandwidth that large messages get."""
        system = self.place.system
        depth = system.inside if self.place.outside else max(0, system.inside - 1)
        reach = nccl.bandwidth_shares(system)[depth]
        return float(reach * self.entry.bandwidth["Simple"])

    def tells(self, op: str, level: str) -> bool:
        """Whether the fit is good enough for an operation to need no lines of its own."""
        of_operation = np.array([sample.operation == op for sample in self.place.samples])
        return (
            level == self.level
            and bool(of_operation.any())
            and (float(np.abs(self.error[of_operation]).mean()) <= ENOUGH)
        )

    def text(self) -> list[str]:
        """The fit in words, beginning with the share of the datasheet."""
        place = "between nodes" if self.place.outside else "inside a node"
        magnitudes = np.abs(self.left_out)
        entry = self.entry
        lines = [
            f"{place}: large messages get {self.share:.0%} of what "
            "the datasheet's links would give",
            f"  NCCL's constants, corrected by {len(self.error)} samples of "
            f"{', '.join(entry.operations)} among {entry.ranks[0]} to {entry.ranks[1]} ranks",
            f"  median error: fitted {np.median(np.abs(self.error)):.1%}"
            + (f", left out {np.median(magnitudes):.1%}, nine tenths within "
               f"{NORMAL90 * self.sigma:.0%}" if len(magnitudes) else ""),
        ]  # fmt: skip
        for name, words in (("base", "a call takes"), ("hop", "a hop"), ("bandwidth", "bandwidth")):
            factors = getattr(entry, name).items()
            listed = ", ".join(f"{kind} {value:.2f}" for kind, value in factors)
            lines.append(f"  {words}: {listed} times the constant")
        return lines + [f"  left out: {run}" for run in self.dropped]


def library_fits(
    pools: Iterable[tuple[str, str, list[Sample]]], system: System, readings: Sequence[Reading]
) -> list[LibraryFit]:
    """A fit for each place that the library's own logs say something of."""
    if not nccl.serves(system):
        return []
    fits: list[LibraryFit] = []
    names = [level.name for level in system.levels]
    for outside in (False, True):
        samples, levels = list[Sample](), list[str]()
        for _, level, pool in pools:
            if (
                pool
                and pool[0].library == "nccl"
                and ((names.index(level) >= system.inside) == outside)
            ):
                samples += [sample for sample in pool if (sample.groups or 1) == 1]
                levels.append(level)
        all_samples = Place.from_samples(_with(system, fits), outside, samples)
        if len(all_samples.samples) < FEWEST or len(np.unique(all_samples.nbytes)) < 3:
            continue
        place, dropped = trusted(all_samples)
        level = min(levels, key=names.index)
        source = source_of(place.samples, readings)
        fits.append(LibraryFit(place, level, place.fitted(), dropped, source))
    return fits


def _with(system: System, fits: Sequence[LibraryFit]) -> System:
    """The system with the entries that were fitted so far."""
    return replace(system, library=tuple(fit.entry for fit in fits)) if fits else system


def trusted(place: Place) -> tuple[Place, tuple[str, ...]]:
    """The place without runs whose large messages take far longer than all others say.

    A run is the samples of one file and rank count; three are needed to tell who disagrees.
    """
    words = [f"{sample.where.rpartition(':')[0]}, {sample.ranks} ranks" for sample in place.samples]
    names, run = np.unique(words, return_inverse=True)
    if len(names) < 3:
        return place, ()
    agreeing: Mask = np.ones(len(run), bool)
    dropped = []
    for number, name in enumerate(names.tolist()):
        of_run = run == number
        large = of_run & (place.nbytes >= LARGE)
        if not large.any():
            continue
        logs = place.part(~of_run).fitted()
        slower = 1 / (1 + place.part(large).error(logs))
        spread = np.median(np.abs(place.part(~of_run).error(logs)))
        middle = float(np.median(slower))
        if middle > max(SLOW, 1 + 4 * spread):
            agreeing &= ~of_run
            dropped.append(f"{name}: {middle:.1f} times as long as the other runs say from "
                           f"{show(LARGE, 'B')} on; congested, or not what it says")  # fmt: skip
    return (place.part(agreeing), tuple(dropped)) if dropped else (place, ())

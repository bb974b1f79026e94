"""Calibration: α, β and their intervals fitted to logs, and put into a system spec.

Samples are pooled by operation and by whether a group stays in a node or leaves it; every pool
is fitted by itself (`fit`), all its rank counts and sizes together, with the steps and volumes of
`collectives`. An entry of a level serves that level and those above it that have none of their
own. What cannot be fitted is listed with its reason and stays at its datasheet value.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from oracle.calibration import storage as of_storage
from oracle.calibration.concurrency import ConcurrentGroups, concurrent
from oracle.calibration.entries import entries, formula, notes, source_of
from oracle.calibration.fit import Envelope, Floats, Mask
from oracle.calibration.library_fit import LibraryFit, library_fits
from oracle.calibration.pools import SamplePool, degenerate, of_experts, pooled, pools
from oracle.calibration.spec_block import block, library_block, moved, with_block, with_levels
from oracle.calibration.structure import Structure, learned
from oracle.network.collectives import ALGORITHMS
from oracle.readers.logs import InputError, Reading
from oracle.spec import catalogue
from oracle.spec.files import read_text, write
from oracle.spec.system import Calibrated, System
from oracle.spec.tabular import Tabular
from oracle.spec.units import show


@dataclass(frozen=True, eq=False)
class CollectiveFit:
    """The fit of one pool: its envelope, the entries it makes, and what it cannot know."""

    pool: SamplePool
    envelope: Envelope
    entries: tuple[Calibrated, ...]
    notes: tuple[str, ...]

    @cached_property
    def error(self) -> Floats:
        return self.pool.error(self.envelope)

    @cached_property
    def without_size(self) -> Floats:
        return self.pool.left_out(self.pool.nbytes, self.envelope)

    @cached_property
    def without_ranks(self) -> Floats:
        if len(np.unique(self.pool.ranks)) < 3:
            return np.full(len(self.pool.seconds), np.nan)
        return self.pool.left_out(self.pool.ranks)

    @property
    def r2(self) -> float:
        """Share of the variance of log seconds that the fit explains."""
        logs = np.log(self.pool.seconds)
        rest = np.log1p(self.error)
        return float(1 - (rest**2).sum() / max(((logs - logs.mean()) ** 2).sum(), 1e-300))

    def formulas(self) -> list[str]:
        """The lines of the envelope with 90 % intervals, one text each."""
        return [formula(entry) for entry in self.entries]

    def residuals(self) -> list[tuple[float, float, float, float, int]]:
        """(bytes, median, lowest, highest fitted / measured − 1, samples) of every size."""
        rows = []
        for size in np.unique(self.pool.nbytes).tolist():
            of_size = self.error[self.pool.nbytes == size]
            row = float(np.median(of_size)), float(of_size.min()), float(of_size.max())
            rows.append((float(size), *row, len(of_size)))
        return rows

    def worst(self, count: int = 5) -> list[str]:
        """The samples farthest from the fit; those beyond the noise are called outliers."""
        outliers = set(self.envelope.outliers.tolist())
        order = np.argsort(-np.abs(self.error), kind="stable")[:count]
        return [
            f"{'outlier ' if k in outliers else ''}{self.pool.samples[k].where}: "
            f"{show(self.pool.nbytes[k], 'B')}, {self.pool.ranks[k]:.0f} ranks, "
            f"measured {show(self.pool.seconds[k], 's')}, fitted {self.error[k]:+.1%} from it"
            for k in order.tolist()
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Tabular):
    """What logs and topology files say about a system: fits, refusals, and the new spec."""

    system: System  # the system with what was learned of its levels
    before: System
    original: str  # text of the system's file; empty where it came from none
    origin: str
    readings: tuple[Reading, ...]
    fits: tuple[CollectiveFit, ...]
    libraries: tuple[LibraryFit, ...]
    refused: tuple[tuple[str, str], ...]  # what, why
    structure: Structure
    storage: tuple[of_storage.StorageFit, ...] = ()

    @property
    def told(self) -> bool:
        """Whether the readings say anything of the system."""
        limits = any(storage_fit.limits for storage_fit in self.storage)
        return bool(self.fits or self.structure.findings or limits)

    def says(self) -> str:
        """What was fitted onto which system, in a line."""
        fitted = ", ".join(f"{fit.pool.op} of the {fit.pool.level}" for fit in self.fits)
        return f"{self.system.name}: {fitted or 'nothing'} fitted to {len(self.readings)} files"

    @property
    def entries(self) -> tuple[Calibrated, ...]:
        return tuple(entry for fit in self.fits for entry in fit.entries)

    @property
    def remaining(self) -> tuple[str, ...]:
        """Operations and levels for which nothing is calibrated, here or in the system before."""
        calibrated = {(e.op, e.level) for e in (*self.entries, *self.system.collectives)}
        names = [level.name for level in self.system.levels]
        inside, beyond = names[: self.system.inside], names[self.system.inside :]
        rest = []
        for op in ALGORITHMS:
            levels_known = {level for name, level in calibrated if name == op}
            if inside and not levels_known & set(inside):
                rest.append(f"{op} in the {inside[-1]}")
            if beyond and not levels_known & set(beyond):
                rest.append(f"{op} beyond it" if inside else op)
        return tuple(rest)

    @cached_property
    def concurrent(self) -> list[ConcurrentGroups]:
        """Several groups at once against one alone, as measured and as predicted."""
        return concurrent(self.readings, self.system)

    def text(self) -> str:
        """The fits as formulas with intervals, how well they do, and what they leave open."""
        shares = [finding for finding in self.structure.findings if finding.field == "share"]
        lines = [f"{share.level}: streams get {float(share.file):.0%} of the datasheet's bandwidth"
                 for share in shares]  # fmt: skip
        lines += [line for fit in self.libraries for line in fit.text()]
        lines += [reading.summary() for reading in self.readings] + self.structure.text()
        lines += [line for storage_fit in self.storage for line in storage_fit.text()]
        for fit in self.fits:
            pool, big = fit.pool, fit.pool.nbytes >= 65536
            ranks = ", ".join(f"{p:.0f}" for p in np.unique(pool.ranks))
            low, high = pool.nbytes.min(), pool.nbytes.max()
            lines += [
                "",
                f"{pool.op}, {pool.level}: {len(pool.seconds)} samples, {ranks} ranks, "
                f"{show(low, 'B')} to {show(high, 'B')}",
                "  seconds of m bytes among p ranks, the least of:"
                if fit.entries
                else "  priced by the library's constants as they are corrected above",
                *("    " + entry.replace(": ", ":\n        ", 1) for entry in fit.formulas()),
                f"  R² of log seconds {fit.r2:.4f}, residual {fit.envelope.scale:.1%} "
                f"(1σ, robust), {len(fit.envelope.outliers)} outliers, repeats within "
                f"{_share(pool.repeats)}",
                "  median error (64 KiB and more / below):",
                f"    fitted {_medians(fit.error, big)}; a size left out "
                f"{_medians(fit.without_size, big)}; a rank count left out "
                f"{_medians(fit.without_ranks, big)}",
                "  fitted / measured − 1 by size: median [lowest, highest]",
                *_columns(
                    [
                        f"{show(size, 'B')} {mid:+.1%} [{lowest:+.0%}, {highest:+.0%}]"
                        for size, mid, lowest, highest, _ in fit.residuals()
                    ]
                ),
                "  farthest off:",
                *(f"    {worst}" for worst in fit.worst()),
                *(line for note in fit.notes for line in _wrapped(f"note: {note}", "  ")),
            ]
        if self.concurrent:
            lines += ["", "groups at once:", *(f"  {entry.words}" for entry in self.concurrent)]
        if self.refused:
            lines += ["", "not fitted:", *(f"  {subject}: {why}" for subject, why in self.refused)]
        rest = ", ".join(self.remaining) or "nothing"
        lines += ["", *_wrapped(f"still at datasheet values: {rest}")]
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """The calibration for another program."""
        return {
            "system": self.system.name,
            "readings": [
                {"path": r.path, "format": r.format, "samples": len(r.samples),
                 "skipped": dict(sorted(r.counts().items()))}
                for r in self.readings
            ],
            "fits": [_as_dict(fit) for fit in self.fits],
            "library": [_library(fit) for fit in self.libraries],
            "storage": [part.to_dict() for part in self.storage],
            "refused": [{"what": subject, "why": why} for subject, why in self.refused],
            "datasheet": list(self.remaining),
            "crowds": [asdict(part) for part in self.concurrent],
            "structure": [asdict(finding) for finding in self.structure.findings],
            "dropped": list(self.structure.dropped),
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each line that was fitted."""
        return [
            {"op": entry.op, "level": entry.level, "algorithm": entry.algorithm,
             "base": entry.base, "latency": entry.latency, "bandwidth": entry.bandwidth,
             "ranks": " ".join(map(str, entry.ranks)), "samples": len(fit.pool.seconds),
             "r2": float(fit.r2), "residual": float(fit.envelope.scale)}
            for fit in self.fits for entry in fit.entries
        ]  # fmt: skip

    def spec(self) -> str:
        """The text of the system's file with the new levels and `collectives:`."""
        if not self.original:
            raise InputError(self.system.name, 0, "this system came from no file",
                             "calibrate onto a shipped name or a path")  # fmt: skip
        text, entries = self.original, self.entries
        if self.system is not self.before:
            try:
                text = with_levels(text, self.before.levels, self.system.levels)
            except ValueError as error:
                hint = "begin each with `- name: …`, its other fields below"
                raise InputError(self.origin, 0, str(error), hint) from None
        if self.libraries:
            levels = {fit.level for fit in self.libraries}
            library = [entry for entry in self.system.library if entry.level not in levels]
            library += [fit.entry for fit in self.libraries]
            text = with_block(text, library_block(library))
        measured = of_storage.with_fits(self.before.storage, self.storage) if self.storage else None
        if measured:
            text = with_block(text, of_storage.block(measured))
        fresh = {(fit.pool.op, fit.pool.level) for fit in self.fits}
        old = [e for e in self.system.collectives if (e.op, e.level) not in fresh]
        if not entries and old == list(self.before.collectives):
            return text
        return with_block(text, block([*old, *entries]) if old or entries else "collectives: []\n")

    def write(self, path: str | Path) -> None:
        """Write the new spec into a file of its own, completely or not at all."""
        target = Path(path)
        inputs = [self.origin, *(reading.path for reading in self.readings)]
        for name in inputs:
            if name and target.exists() and Path(name).exists() and target.samefile(name):
                raise InputError(str(path), 0, "this file is an input", "name another output")
        text, folder = self.spec(), target.parent.absolute()
        if self.origin not in ("", "-"):
            text = moved(text, Path(self.origin).parent.absolute(), folder)
        catalogue.read_again(System, _loaded(text), folder)  # the written spec can be read again
        try:
            write(target, text.encode())
        except OSError as error:
            problem = error.strerror or "it cannot be written"
            raise InputError(
                str(path), 0, problem, "name a file in a folder you may write to"
            ) from None


def calibrate(readings: Iterable[Reading], system: Any, files: str = "") -> Calibration:
    """Fit all that the readings can tell about a system: a name, a path, or a `System`.

    Rates of files are of `files`, "shared" or "local", where the readings do not say.
    """
    readings = tuple(readings)
    before = catalogue.system(system)
    before.need_alike("what a log says of a machine")
    structure = learned(readings, before)
    spec = structure.system
    origin = "" if isinstance(system, Mapping) else _file_of(system)
    original = read_text(origin) if origin else ""
    found_pools, refused = pools(readings, spec)
    libraries = library_fits(found_pools, spec, readings)
    fits = []
    for op, level, samples in found_pools:
        title = f"{op}, {level}"
        pool = pooled(op, level, samples)
        why = degenerate(pool)
        if why:
            refused.append((title, why))
            continue
        fitted_envelope = pool.fitted()
        remarks = notes(pool, fitted_envelope)
        served = bool(samples) and bool(of_experts(samples[0]))
        enough = not served and any(fit.tells(op, level) for fit in libraries)
        lines: Iterable[Calibrated] = ()
        if not enough:
            lines = entries(pool, fitted_envelope, source_of(pool.samples, readings))
        fits.append(CollectiveFit(pool, fitted_envelope, tuple(lines), remarks))
    return Calibration(
        spec, before, original, origin, readings, tuple(fits), tuple(libraries), tuple(refused),
        structure, of_storage.fits(readings, files),
    )  # fmt: skip


def _library(fit: LibraryFit) -> dict[str, Any]:
    error = {"fitted": float(np.median(np.abs(fit.error)))}
    if len(fit.left_out):
        error["left out"] = float(np.median(np.abs(fit.left_out)))
    return {**asdict(fit.entry), "median error": error, "datasheet share": fit.share,
            "dropped": list(fit.dropped)}  # fmt: skip


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Lines of at most 100 columns, the later ones indented; a long path is not broken."""
    return textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=indent + "    ",
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


def _columns(cells: list[str], across: int = 3) -> list[str]:
    """Cells side by side, read down then right."""
    down = -(-len(cells) // across)
    width = max(map(len, cells)) + 3
    rows = [cells[k::down] for k in range(down)]
    return ["    " + "".join(cell.ljust(width) for cell in row).rstrip() for row in rows]


def _share(value: float) -> str:
    return f"{value:.1%}" if np.isfinite(value) else "– (none)"


def _median(error: Floats) -> float | None:
    """The median magnitude of those errors that are known; None where none is."""
    magnitudes = np.abs(error[np.isfinite(error)])
    return float(np.median(magnitudes)) if len(magnitudes) else None


def _medians(error: Floats, big: Mask) -> str:
    """The median error of large messages and of small ones."""
    medians = (_median(error[big]), _median(error[~big]))
    return " / ".join("–" if median is None else f"{median:.1%}" for median in medians)


def _as_dict(fit: CollectiveFit) -> dict[str, Any]:
    pool, big = fit.pool, fit.pool.nbytes >= 65536
    errors = {
        name: {"large": _median(error[big]), "small": _median(error[~big])}
        for name, error in (("fitted", fit.error), ("size left out", fit.without_size),
                            ("ranks left out", fit.without_ranks))
    }  # fmt: skip
    return {
        "op": pool.op,
        "level": pool.level,
        "samples": len(pool.seconds),
        "ranks": np.unique(pool.ranks).tolist(),
        "sizes": [float(pool.nbytes.min()), float(pool.nbytes.max())],
        "r2": fit.r2,
        "residual": fit.envelope.scale,
        "repeats": pool.repeats if np.isfinite(pool.repeats) else None,
        "errors": errors,
        "residuals": [
            {"bytes": size, "median": mid, "low": lowest, "high": highest, "samples": count}
            for size, mid, lowest, highest, count in fit.residuals()
        ],
        "outliers": [pool.samples[k].where for k in fit.envelope.outliers.tolist()],
        "entries": [
            {"algorithm": e.algorithm, "protocol": e.protocol, "base": e.base,
             "latency": e.latency, "bandwidth": e.bandwidth, "ranks": list(e.ranks),
             "sizes": list(e.sizes), "uncertainty": e.uncertainty}
            for e in fit.entries
        ],
        "notes": list(fit.notes),
    }  # fmt: skip


def _file_of(system: Any) -> str:
    if isinstance(system, System):
        path = catalogue.shipped("systems").get(system.name)
        return str(path) if path and catalogue.system(system.name) is system else ""
    return str(catalogue.find(os.fspath(system), "systems"))


def _loaded(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)

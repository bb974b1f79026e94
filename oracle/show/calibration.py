"""What logs of benchmarks and measured kernels made of a machine: the answer, a table, what next.

`-v` adds the formulas, the errors of each size and the samples farthest off.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from oracle.calibration.kernels import STREAMED
from oracle.show.layout import fact, percent, several, several_of
from oracle.show.terminal import fit, laid_out
from oracle.spec.units import show

if TYPE_CHECKING:
    from oracle.calibration.calibrate import Calibration, CollectiveFit
    from oracle.calibration.kernels import KernelFit, Residual

LEARNED = ("added", "changed")  # findings that make another system


def calibration_text(calibration: Calibration, following: str = "", verbose: bool = False) -> str:
    """Return what was fitted onto which system, how well, what was not, and what to type next."""
    system = calibration.system
    lines = [
        fit(f"{_fitted(calibration)} onto {system.title or system.name}"),
        *(fact("log", _log(reading.summary())) for reading in calibration.readings),
        *_findings(calibration),
    ]
    if calibration.fits:
        rows = [("operation", "among", "samples", "ranks", "sizes", "error"),
                *map(_row, calibration.fits)]  # fmt: skip
        lines += [*laid_out(rows, "<<>>>>", " "),
                  "   error: of the median sample, fitted against measured"]  # fmt: skip
    lines += [fact("left out", f"{name}: {why}") for name, why in calibration.refused]
    if verbose:
        lines += ["", calibration.text().rstrip("\n")]
    elif calibration.remaining:
        lines.append(fact("datasheet", f"{several_of(calibration.remaining, 4, ', ')}: no log "
                          "tells, so they stay as the datasheet says"))  # fmt: skip
    return "\n".join([*lines, *([following] if following else [])])


def _fitted(calibration: Calibration) -> str:
    """Return how much was fitted: operations of collectives, rates of files, levels of links."""
    counts = {"operation": len(calibration.fits), "finding": len(calibration.structure.findings),
              "rate": sum(len(storage.limits) for storage in calibration.storage)}  # fmt: skip
    parts = [several(count, noun) for noun, count in counts.items() if count]
    return f"Fitted {', '.join(parts)}" if parts else "Nothing fitted"


def _log(summary: str) -> str:
    """Return a log by its name alone, on one line, with what was skipped of it."""
    first, *skipped = summary.split("\n")
    path, words = first.split(": ", 1)
    reasons = f" ({'; '.join(map(str.strip, skipped))})" if skipped else ""
    return f"{Path(path).name}: {words.removesuffix(', 0 lines skipped')}{reasons}"


def _findings(calibration: Calibration) -> list[str]:
    """Return what was learned of libraries, links, disks and groups at once, a line for each."""
    lines = [fact("library", library.text()[0]) for library in calibration.libraries]
    structure = calibration.structure
    learned = [finding for finding in structure.findings if finding.verdict in LEARNED]
    lines += [fact("learned", finding.words.rpartition("; ")[0]) for finding in learned]
    if same := len(structure.findings) - len(learned):
        lines.append(fact("learned", f"{several(same, 'field')} stay as the system's file says"))
    lines += [fact("learned", f"{name}: this level is gone, with what was calibrated at it")
              for name in structure.dropped]  # fmt: skip
    lines += [fact("files", limit.words) for storage in calibration.storage
              for limit in storage.limits]  # fmt: skip
    return lines + [fact("at once", groups.words) for groups in calibration.concurrent]


def _row(fitted: CollectiveFit) -> tuple[str, ...]:
    """Return a line of the table: an operation, its samples, and how far off the median is."""
    pool = fitted.pool
    ranks = np.unique(pool.ranks)
    among = f"{ranks.min():,.0f} to {ranks.max():,.0f}" if len(ranks) > 1 else f"{ranks[0]:,.0f}"
    sizes = f"{show(pool.nbytes.min(), 'B')} to {show(pool.nbytes.max(), 'B')}"
    error = _share(float(np.median(np.abs(fitted.error))))
    return pool.op, f"a {pool.level}", f"{len(pool.seconds):,}", among, sizes, error


def kernels_text(kernels: KernelFit, following: str = "", verbose: bool = False) -> str:
    """Return how well each curve predicts kernels it has not seen, and what was not fitted."""
    errors = [residual.median for residual in kernels.residuals]
    answer = ("No kernels fitted" if not errors else
              f"Fitted {several(len(errors), 'curve')} of kernels, with a median error of "
              f"{percent(float(np.median(errors)))} on kernels held out")  # fmt: skip
    worst = [f"  {residual.title}: {residual.worst}" for residual in kernels.residuals]
    return "\n".join([
        fit(answer), *kernel_table(kernels),
        *(["Farthest off", *worst] if verbose and worst else []),
        *([following] if following else []),
    ])  # fmt: skip


def kernel_table(kernels: KernelFit) -> list[str]:
    """Return a line for each curve: kernels, errors on those held out, and their reach."""
    rows = [("kernels of", "number", "median", "90 %", "bias", "reach"),
            *map(_curve, kernels.residuals)]  # fmt: skip
    lines = []
    if kernels.residuals:
        lines += [*laid_out(rows, "<>>>><", " "),
                  fit("   errors on kernels that the curve has not seen: the median, of nine "
                      "tenths, and too much (+) or too little (-)", 3)]  # fmt: skip
    return lines + [fact("left out", text) for text in _reasons(kernels.skipped)]


def _curve(residual: Residual) -> tuple[str, ...]:
    unit = "B" if residual.family in STREAMED else "FLOP"
    return (residual.title, f"{residual.kernels:,}", _share(residual.median), _share(residual.p90),
            f"{100 * residual.bias:+.0f} %",
            " to ".join(show(end, unit) for end in residual.reach))  # fmt: skip


def _share(share: float) -> str:
    return f"{100 * share:{'.2g' if share < 0.1 else '.0f'}} %"


def _reasons(skipped: Sequence[str]) -> list[str]:
    """Return why groups of kernels were not fitted, the groups of one reason together."""
    groups: dict[str, list[str]] = {}
    for text in skipped:
        title, _, why = text.partition(": ")
        needed = why.partition(" kernels, ")[2]
        groups.setdefault(f"too few kernels, {needed}" if needed else why, []).append(title)
    return [f"{reason}: {', '.join(titles)}" for reason, titles in groups.items()]

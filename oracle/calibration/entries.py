"""Writes a fitted envelope as `collectives:` entries of a spec and as formulas, with notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from oracle.calibration.fit import FASTEST, NORMAL90, Envelope, FittedLine
from oracle.calibration.pools import SamplePool
from oracle.calibration.spec_block import plain, rounded
from oracle.readers.logs import Reading, Sample
from oracle.spec.system import Calibrated
from oracle.spec.units import show

ALIKE = 0.03  # bandwidths of neighbouring rank counts that share an entry


def notes(pool: SamplePool, fitted: Envelope) -> tuple[str, ...]:
    """What the samples leave open, and what the fit assumes instead."""
    remarks = []
    counts = np.unique(pool.ranks)
    if len(counts) == 1:
        remarks.append(
            f"one rank count ({counts[0]:.0f}): what a call and what a step costs cannot be told "
            "apart, so half is given to each; other counts follow the formula, unmeasured"
        )
    if len(np.unique(pool.inner)) == 1 and pool.inner[0] != pool.ranks[0]:
        remarks.append(f"always {pool.inner[0]:.0f} ranks a node: steps inside and between nodes "
                       "share one latency")  # fmt: skip
    if fitted.factors:
        remarks.append("the bandwidth differs by rank count: one entry for each, interpolated "
                       "between them, shared where within 3 %")  # fmt: skip
    if fitted.scale > 3 * pool.repeats:
        remarks.append(
            f"the same call again differs by {pool.repeats:.1%} only: what is left over is where "
            "the library changes its ways, which no least of lines follows"
        )
    if any(line.values[2] * FASTEST <= 1 for line in fitted.lines):
        remarks.append("one line does not grow with size within the range")
    return tuple(remarks)


def source_of(samples: Sequence[Sample], readings: Sequence[Reading]) -> str:
    """Tool, files, date and machine of the readings that samples are from."""
    paths = {sample.where.rpartition(":")[0] for sample in samples}
    used = [r for r in readings if r.path in paths]
    tools = dict.fromkeys(str(r.machine.get("tool", r.format)) for r in used)
    dates = sorted({str(r.machine["date"]) for r in used if r.machine.get("date")})
    machines = dict.fromkeys(str(r.machine["device"]) for r in used if r.machine.get("device"))
    names = ", ".join(Path(r.path).name for r in used)
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "date not in the log"
    machine_names = ", ".join(machines) or "machine not in the log"
    return plain(f"{', '.join(tools)}: {names}; {when}; {machine_names}")


def entries(pool: SamplePool, fitted: Envelope, source: str) -> Iterable[Calibrated]:
    """An entry for each line, and for each rank count where the bandwidth differs by it."""
    order = sorted(fitted.lines, key=lambda line: _start(pool, line))
    one_count = len(np.unique(pool.ranks)) == 1
    for number, line in enumerate(order, 1):
        on_line = fitted.nearest == fitted.lines.index(line)
        base, latency, slope = line.values.tolist()
        shares = [s / v if v > 0 else 0.0 for s, v in zip(line.sigma, line.values, strict=True)]
        steps = pool.forms[line.form].steps
        if one_count and steps[0] > 1:
            base, latency, shares[0] = steps[0] * latency / 2, latency / 2, shares[1]
        relative = {
            name: rounded(share, 3)
            for name, share in zip(("base", "latency", "bandwidth"), shares, strict=True)
            if share > 0
        }
        for low, high, factor in _ranges(pool, fitted):
            yield Calibrated(
                op=pool.op,
                level=pool.level,
                algorithm=pool.forms[line.form].algorithm,
                protocol=f"line {number} of {len(order)}",
                base=rounded(base, 5),
                latency=rounded(latency, 5),
                bandwidth=rounded(min(FASTEST, 1 / max(slope * factor, 1 / FASTEST)), 5),
                concurrency=float(pool.samples[0].groups or 1),
                ranks=(low, high),
                sizes=(float(pool.nbytes[on_line].min()), float(pool.nbytes[on_line].max())),
                uncertainty=relative | {"residual": rounded(fitted.scale, 3)},
                source=source,
            )


def _start(pool: SamplePool, line: FittedLine) -> float:
    return float(line.values[0] + pool.forms[line.form].steps.mean() * line.values[1])


def _ranges(pool: SamplePool, fitted: Envelope) -> list[tuple[int, int, float]]:
    """(first, last rank count, factor) of the entries that a line needs."""
    counts = [int(p) for p in np.unique(pool.ranks)]
    if not fitted.factors:
        return [(counts[0], counts[-1], 1.0)]
    ranges = []
    for low, high in zip(counts, [*counts[1:], counts[-1]], strict=True):
        ranges.append((low, low, fitted.factors[low]))
        if high > low + 1:
            middle = float(np.sqrt((low + 1) * (high - 1)))
            ranges.append((low + 1, high - 1, float(fitted.factor(np.array([middle]))[0])))
    joined = [ranges[0]]
    for low, high, factor in ranges[1:]:
        first, _, before = joined[-1]
        if abs(factor / before - 1) < ALIKE:
            joined[-1] = first, high, float(np.sqrt(factor * before))
        else:
            joined.append((low, high, factor))
    return joined


def formula(entry: Calibrated) -> str:
    """A line of the envelope with its 90 % intervals."""
    ranks = (
        f"{entry.ranks[0]}" if len(set(entry.ranks)) == 1 else f"{entry.ranks[0]}-{entry.ranks[1]}"
    )
    parts = []
    for name, value, after in (("base", entry.base, ""), ("latency", entry.latency, " × steps(p)")):
        if value:
            half = NORMAL90 * entry.uncertainty.get(name, 0.0)
            parts.append(f"{show(value, 's')} ± {half:.1%}{after}")
    half = NORMAL90 * entry.uncertainty.get("bandwidth", 0.0)
    parts.append(f"volume(p) m / ({show(entry.bandwidth, 'B/s')} ± {half:.1%})")
    low, high = (show(size, "B") for size in entry.sizes)
    return f"{entry.algorithm}, p = {ranks}, {low} to {high}: {' + '.join(parts)}"

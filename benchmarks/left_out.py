"""How well calibration tells what its logs did not hold: counts, sizes, operations, whole machines.

A row a place (inside a node, or between nodes) of each machine, and what was left out of its logs:

    ranks       each rank count in turn
    largest     the largest number of nodes, told from all smaller ones
    quarter     all but a quarter of the pairs of sizes and rank counts
    operations  all operations but allreduce
    unfitted    everything: the library's constants alone

Errors are |predicted / measured − 1|; `covered` is how often the 90 % interval holds the measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from oracle.calibration.fit import Floats
from oracle.calibration.library import CONSTANTS, Place
from oracle.calibration.library_fit import LibraryFit, trusted
from oracle.calibration.pools import pools
from oracle.network import nccl
from oracle.readers.logs import Reading, Sample
from oracle.spec import catalogue

SEED = 0
AIMS = {"ranks": 0.05, "largest": 0.12, "quarter": 0.09, "operations": 0.10, "unfitted": 0.15}
JUDGED = {"quarter": "mean"}  # the others by the median


def places(tables: Sequence[tuple[str, str, Sequence[Sample]]]) -> Iterator[tuple[str, Place]]:
    """(machine and place, its samples) of each table of a system's NCCL samples."""
    for name, system_name, samples in tables:
        system = catalogue.system(system_name)
        if not nccl.serves(system):
            continue
        found, _ = pools([Reading(name, "table", tuple(samples), {})], system)
        levels = [level.name for level in system.levels]
        for outside, words in ((False, "inside"), (True, "between")):
            mine = [one for _, level, pool in found for one in pool
                    if (levels.index(level) >= system.inside) == outside
                    and one.library == "nccl" and (one.groups or 1) == 1]  # fmt: skip
            if len(mine) >= 12:
                yield f"{name} {words}", Place.from_samples(system, outside, mine)


def splits(place: Place) -> Iterator[tuple[str, Floats]]:
    """(what is left out, a number for each sample: equal ones are left out together; −1 stays)."""
    ranks = place.ranks
    if len(np.unique(ranks)) > 2:
        yield "ranks", ranks
    nodes = np.array([float(one.nodes or 1) for one in place.samples])
    if len(np.unique(nodes)) > 2:
        yield "largest", np.where(nodes == nodes.max(), 1.0, -1.0)
    cells = sorted({(one.ranks, one.nbytes) for one in place.samples})
    chosen = np.random.default_rng(SEED).permutation(len(cells))[: max(3, len(cells) // 4)]
    kept = {cells[k] for k in chosen.tolist()}
    inside = np.array([(one.ranks, one.nbytes) in kept for one in place.samples])
    yield "quarter", np.where(inside, -1.0, 1.0)
    sums = np.array([one.operation == "allreduce" for one in place.samples])
    if sums.any() and not sums.all():
        yield "operations", np.where(sums, -1.0, 1.0)


def told(place: Place, by: Floats) -> tuple[Floats, Floats]:
    """(error, half width of the 90 % interval) of the samples that were left out, by the rest."""
    errors, widths = list[Floats](), list[Floats]()
    for value in np.unique(by[by >= 0]).tolist():
        rest, _ = trusted(place.part(by != value))
        mine = place.part(by == value)
        fit = LibraryFit(rest, "", rest.fitted(), (), "")
        errors.append(mine.error(fit.logs))
        widths.append(fit.half_width(mine))
    return np.concatenate(errors), np.concatenate(widths)


def left_out(
    tables: Sequence[tuple[str, str, Sequence[Sample]]],
    say: Callable[[dict[str, Any]], None],
) -> dict[str, dict[str, float]]:
    """A row for each place and split, and the figures of each split over all places."""
    every: dict[str, list[tuple[Floats, Floats]]] = {}
    for name, place in places(tables):
        found = [(what, *told(place, by)) for what, by in splits(place)]
        bare = place.error(CONSTANTS)
        found.append(("unfitted", bare, np.full(len(bare), np.nan)))
        for what, error, width in found:
            every.setdefault(what, []).append((error, width))
            say({"table": "left out", "place": name, "what": what, "samples": len(error),
                 "median": float(np.median(np.abs(error))), "mean": float(np.abs(error).mean()),
                 "covered": _covered(error, width), "width": float(np.median(width))})  # fmt: skip
    figures = {}
    for what, parts in every.items():
        error, width = (np.concatenate(each) for each in zip(*parts, strict=True))
        figures[what] = {"median": float(np.median(np.abs(error))),
                         "mean": float(np.abs(error).mean()), "covered": _covered(error, width),
                         "width": float(np.median(width))}  # fmt: skip
    return figures


def _covered(error: Floats, width: Floats) -> float:
    if np.isnan(width).any():
        return float("nan")
    return float((np.abs(np.log1p(error)) <= np.log1p(width)).mean())

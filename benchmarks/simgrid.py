"""The network model against SimGrid, whose links are shared max-min fairly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.platforms import Row, compared
from benchmarks.table import Table, figure, rounded

LARGE = 4_000_000  # bytes
# why the rows that stand out do so
REASONS: list[tuple[Callable[[Row], bool], str]] = [
    (lambda r: r.algorithm == "ompi_ring_segmented",
     "cut into segments of 1 MB, each with its own envelope and pipeline fill"),
    (lambda r: r.algorithm == "lr" and r.ranks & (r.ranks - 1) > 0,
     "elements that do not divide by the ranks go round in an exchange of their own"),
    (lambda r: "torus" in r.platform and r.algorithm in ("own", "ring", "bruck", "lr"),
     "SimGrid's torus turns left from its middle to its start, against its own rule"),
    (lambda r: r.platform.startswith("builtin"), "more messages than are played one by one"),
    (lambda r: r.nbytes < LARGE, "small messages: one group's latency hides behind another's data"),
]  # fmt: skip


def reference_table(reference: Path, quick: bool = False) -> Table:
    """Every simulated case against ours, 16 bytes of envelope a message counted.

    If it is to be quick, as plans are priced: nothing is played at its size.
    """
    path = reference / "network" / "simgrid_collectives.csv"
    rows = compared(path, 0) if quick else compared(path)
    table, figures = [], {}
    for family, sizes, contended in (
        ("flat", "large", False), ("flat", "large", True), ("flat", "small", False),
        ("flat", "small", True), ("builtin", "large", False), ("builtin", "large", True),
        ("builtin", "small", False), ("builtin", "small", True),
    ):  # fmt: skip
        part = [r for r in rows if r.platform.startswith(family) and (r.groups > 1) == contended
                and (r.nbytes >= LARGE) == (sizes == "large")]  # fmt: skip
        if not part:
            continue
        errors = np.array([abs(r.error) for r in part])
        worst = part[int(errors.argmax())]
        table.append({
            "platforms": family, "sizes": f"{'≥' if sizes == 'large' else '<'} 4 MB",
            "groups": "several" if contended else "one", "cases": len(part),
            "median": rounded(np.median(errors)), "p99": rounded(np.quantile(errors, 0.99)),
            "worst": rounded(errors.max()), "where": _case(worst), "why": _why(worst),
        })  # fmt: skip
    flat = np.array([abs(r.error) for r in rows
                     if r.platform.startswith("flat") and r.nbytes >= LARGE])  # fmt: skip
    built = np.array([abs(r.error) for r in rows
                      if r.platform.startswith("builtin") and r.nbytes >= LARGE])  # fmt: skip
    small = np.array([abs(r.error) for r in rows if r.platform.startswith("flat")
                      and r.groups > 1 and 10_000 < r.nbytes < 100_000])  # fmt: skip
    plain = [abs(r.error) for r in rows if r.platform.startswith("flat_xbar") and r.algorithm
             in ("own", "rdb", "rab_rdb", "pair") and r.nbytes >= LARGE]  # fmt: skip
    for name, values, goal in (("simgrid_flat", flat, "median ≤ 1e-4, p99 ≤ 0.01"),
                               ("simgrid_builtin", built, "within 0.02")):  # fmt: skip
        if len(values):
            figures[f"{name}.median"] = figure(np.median(values), "", goal)
            figures[f"{name}.p99"] = figure(np.quantile(values, 0.99), "", goal)
            figures[f"{name}.worst"] = figure(values.max(), "", goal)
    if len(built):
        within = float((built <= 0.02).mean())
        figures["simgrid_builtin.within_2_percent"] = figure(within, "share", "1")
    if len(small):
        figures["simgrid_flat_16k_contended.worst"] = figure(small.max(), "", "≤ 0.08")
    if plain:
        figures["simgrid_uncontended.worst"] = figure(max(plain), "", "≤ 1e-6")
    return {"title": "Against SimGrid (max-min fair shares)", "rows": table, "figures": figures}


def other_tables(path: Path, quick: bool = False) -> Table:
    """Sizes and topologies that the big table lacks, simulated with the same settings at 4 MB."""
    rows = compared(path, 0) if quick else compared(path)
    table = []
    for name in dict.fromkeys(r.platform for r in rows):
        part = [r for r in rows if r.platform == name]
        errors = np.array([abs(r.error) for r in part])
        worst = part[int(errors.argmax())]
        table.append({
            "platform": name, "ranks": part[0].ranks, "cases": len(part),
            "median": rounded(np.median(errors)), "within 1 %": rounded((errors <= 0.01).mean()),
            "worst": rounded(errors.max()), "where": _case(worst),
        })  # fmt: skip
    flat = [r for r in rows if r.platform.startswith("flat")]
    even = [r for r in flat if r.collective != "alltoall"
            and not (r.ranks // r.groups) & (r.ranks // r.groups - 1)]  # fmt: skip
    figures = {
        "simgrid_others_flat.median": figure(np.median([abs(r.error) for r in flat]), "", "1e-4"),
        "simgrid_others_flat.within_1_percent": figure(
            np.mean([abs(r.error) <= 0.01 for r in flat]), "share", "0.99"),
        "simgrid_others_flat_allreduce.worst": figure(
            max(abs(r.error) for r in even), "", "0.01"),
    }  # fmt: skip
    notes = [
        "beyond 1 %: what starts while others end (all-to-all of 64 KB messages among drifting "
        "ranks), and clusters with more messages than are played one by one",
    ]
    return {"title": "Against SimGrid: other sizes and topologies, 4 MB", "rows": table,
            "figures": figures, "notes": notes}  # fmt: skip


def _case(row: Row) -> str:
    return (f"{row.platform} {row.collective} {row.algorithm} {row.layout}×{row.groups} "
            f"{row.nbytes:.2g} B {row.error:+.2%}")  # fmt: skip


def _why(row: Row) -> str:
    if abs(row.error) < 1e-3:
        return ""
    return next((why for is_so, why in REASONS if is_so(row)), "unexplained")

"""Every SimGrid case, simulated with max-min shares, by how large its messages are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.platforms import Row, compared
from benchmarks.table import Table, figure, rounded

ROOT = Path(__file__).parents[2]
TABLES = (
    ROOT.parent / "shared" / "reference" / "network" / "simgrid_collectives.csv",
    ROOT / "tests" / "data" / "simgrid_others.csv",
    ROOT / "tests" / "data" / "simgrid_sample.csv",
)
SIZES = (
    ("from 4 MB on", 4e6, np.inf, "p99 ≤ 0.01, worst ≤ 0.05"),
    ("64 KB to 4 MB", 65_536, 4e6, "p99 ≤ 0.02"),
    ("below 64 KB", 0, 65_536, "p99 ≤ 0.05"),
)
# of what is missed by more, why
CAUSES = (
    ("lr", "elements that do not divide by the ranks go round in an exchange of their own"),
    ("pair", "ranks start a nanosecond apart, which each step makes more of"),
    ("bruck", "SimGrid's torus turns left from its middle to its start"),
    ("ring", "SimGrid's torus turns left from its middle to its start"),
    ("", "ranks drift apart"),
)


def table(quick: bool = False) -> Table:
    """p99 and the worst of each class of sizes, and what the farthest cases have in common."""
    paths = [path for path in TABLES if path.exists()]
    paths = paths[1:] if quick and len(paths) > 2 else paths[:2]
    cases: list[Row] = [row for path in paths for row in compared(path)]
    rows, figures = [], {}
    for name, low, high, goal in SIZES:
        part = [row for row in cases if low <= row.nbytes < high]
        if not part:
            continue
        errors = np.array([abs(row.error) for row in part])
        worst = part[int(errors.argmax())]
        cause = next(why for word, why in CAUSES if word in (worst.algorithm, worst.collective, ""))
        rows.append({
            "messages": name, "cases": len(part), "median": rounded(np.median(errors)),
            "p99": rounded(np.quantile(errors, 0.99)), "worst": rounded(errors.max()),
            "where": f"{worst.platform} {worst.collective} {worst.algorithm}", "cause": cause,
            "p99 of lines": rounded(np.quantile([abs(row.line_error) for row in part], 0.99)),
        })  # fmt: skip
        key = name.replace(" ", "_")
        figures[f"{key}.p99"] = figure(np.quantile(errors, 0.99), "", goal)
        figures[f"{key}.worst"] = figure(errors.max(), "", goal)
    notes = [
        "where every link delays (SimGrid's own clusters) messages are played at their size: a "
        "straight line over sizes adds up what hides behind each other (p99 of lines)",
    ]
    return {"title": "Against SimGrid by size of message", "rows": rows, "figures": figures,
            "notes": notes}  # fmt: skip

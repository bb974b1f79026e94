"""New kinds of network against SimGrid, by how large messages are."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fabrics.shapes import Case, simulated
from benchmarks.platforms import ENVELOPE, EnvelopedCost
from benchmarks.table import Table, figure, rounded
from oracle.network.contention.counting.asynchronous import listed, played, swaps

TABLE = Path(__file__).parents[2] / "tests" / "data" / "simgrid_shapes.csv"

GOALS = {4_194_304: "p99 ≤ 0.01, worst ≤ 0.05", 262_144: "p99 ≤ 0.02", 16_384: "p99 ≤ 0.05"}


def compared() -> Iterator[tuple[Case, float, float]]:
    """Yield every case of the table, and the errors of its seconds as played and by the line.

    `python -m benchmarks.simulate` makes the table. Cases are played at their size where some
    ranks run ahead; the line is what plans are priced by.
    """
    nets, costs_by_case = dict(simulated()), {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            case = Case(row["platform"], row["op"], row["algorithm"], int(row["groups"]),
                        float(row["nbytes"]))  # fmt: skip
            net, key = nets[case.platform], case[:-1]
            if key not in costs_by_case:
                groups, steps = case.groups_of(net.devices), case.steps(net.devices)
                costs_by_case[key] = EnvelopedCost.of(net, groups, steps)
            cost = costs_by_case[key]
            line = cost.seconds(case.nbytes)
            seconds, groups, steps = line, case.groups_of(net.devices), case.steps(net.devices)
            if cost.data.phi > 1 and (swaps(steps, groups) or listed(steps, groups)):
                seconds = played(net, groups, steps, nbytes=case.nbytes, envelope=ENVELOPE)
            simulated_seconds = float(row["seconds"])
            yield case, seconds / simulated_seconds - 1, line / simulated_seconds - 1


def table(quick: bool = False) -> Table:
    """Errors by platform and by size."""
    cases = [(case, abs(error), abs(line)) for case, error, line in compared()]
    rows, figures = [], {}
    for name in dict.fromkeys(case.platform for case, _, _ in cases):
        of_platform = [(error, case, line) for case, error, line in cases if case.platform == name]
        worst, case, _ = max(of_platform)
        rows.append({
            "platform": name, "cases": len(of_platform),
            "median": rounded(np.median([error for error, _, _ in of_platform])),
            "worst": rounded(worst),
            "where": f"{case.op} {case.algorithm}, {case.groups} groups, {case.nbytes:.0f} B"
            if worst > 1e-3 else "", "worst line": rounded(max(line for _, _, line in of_platform)),
        })  # fmt: skip
    for size, goal in GOALS.items():
        errors, lines = np.array(
            [(error, line) for case, error, line in cases if case.nbytes == size]
        ).T
        for statistic, value in (("p99", np.quantile(errors, 0.99)), ("worst", errors.max()),
                            ("lines_p99", np.quantile(lines, 0.99))):  # fmt: skip
            figures[f"{size}_bytes.{statistic}"] = figure(value, "", goal)
    notes = [
        "where ranks run ahead, data of some hides the start of others: a line over sizes, which "
        "plans are priced by, has starts and data one after the other",
    ]
    return {"title": "New platforms against SimGrid", "rows": rows, "figures": figures,
            "notes": notes}  # fmt: skip

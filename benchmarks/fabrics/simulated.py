"""New kinds of network against SimGrid, by how large messages are."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fabrics.shapes import Case, simulated
from benchmarks.table import Table, figure, rounded
from oracle.network.contention import schedule_cost
from oracle.network.contention.counting.asynchronous import listed, played, swaps

TABLE = Path(__file__).parents[2] / "tests" / "data" / "simgrid_shapes.csv"
ENVELOPE = 16  # bytes that SimGrid adds to every message
GOALS = {4_194_304: "p99 ≤ 0.01, worst ≤ 0.05", 262_144: "p99 ≤ 0.02", 16_384: "p99 ≤ 0.05"}


def compared() -> Iterator[tuple[Case, float, float]]:
    """Every case of the table (`python -m benchmarks.simulate` makes it), and how far off we are.

    Played at its size where some ranks run ahead, and by the line that plans are priced by.
    """
    nets, known = dict(simulated()), {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            case = Case(row["platform"], row["op"], row["algorithm"], int(row["groups"]),
                        float(row["nbytes"]))  # fmt: skip
            net, key = nets[case.platform], case[:-1]
            if key not in known:
                groups, steps = case.of(net.devices), case.steps(net.devices)
                each = [replace(s, share=np.sign(s.share)) for s in steps]
                known[key] = [schedule_cost(net, groups, one) for one in (steps, each)]
            cost, messages = known[key]
            line = cost.start + cost.per_byte * case.nbytes + messages.per_byte * ENVELOPE
            seconds, groups, steps = line, case.of(net.devices), case.steps(net.devices)
            if cost.phi > 1 and (swaps(steps, groups) or listed(steps, groups)):
                seconds = played(net, groups, steps, nbytes=case.nbytes, envelope=ENVELOPE)
            yield case, *(each / float(row["seconds"]) - 1 for each in (seconds, line))


def table(quick: bool = False) -> Table:
    """Errors by platform and by size."""
    found = [(case, abs(error), abs(line)) for case, error, line in compared()]
    rows, figures = [], {}
    for name in dict.fromkeys(case.platform for case, _, _ in found):
        mine = [(error, case, line) for case, error, line in found if case.platform == name]
        worst, case, _ = max(mine)
        rows.append({
            "platform": name, "cases": len(mine),
            "median": rounded(np.median([error for error, _, _ in mine])), "worst": rounded(worst),
            "where": f"{case.op} {case.algorithm}, {case.groups} groups, {case.nbytes:.0f} B"
            if worst > 1e-3 else "", "worst line": rounded(max(line for _, _, line in mine)),
        })  # fmt: skip
    for size, goal in GOALS.items():
        errors, lines = np.array([one[1:] for one in found if one[0].nbytes == size]).T
        for what, value in (("p99", np.quantile(errors, 0.99)), ("worst", errors.max()),
                            ("lines_p99", np.quantile(lines, 0.99))):  # fmt: skip
            figures[f"{size}_bytes.{what}"] = figure(value, "", goal)
    notes = [
        "where ranks run ahead, data of some hides the start of others: a line over sizes, which "
        "plans are priced by, has starts and data one after the other",
    ]
    return {"title": "New platforms against SimGrid", "rows": rows, "figures": figures,
            "notes": notes}  # fmt: skip

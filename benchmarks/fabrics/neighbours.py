"""Two jobs on one network: how much slower each exchange is said to get, against max-min rates."""

from __future__ import annotations

import numpy as np

from benchmarks.table import Table, figure, rounded
from oracle.network import topology
from oracle.network.arrays import Ints
from oracle.network.contention import fair_rates
from oracle.network.contention.neighbours import Neighbour, Traffic, slowdown
from oracle.network.topology import Topology


def loads(graph: Topology, route: Ints) -> Traffic:
    """What flows of one size put on each link."""
    flows = np.bincount(route.ravel(), minlength=graph.links + 1)[:-1].astype(float)
    busy = flows * graph.seconds_per_byte[:-1]
    return Traffic(busy / max(float(busy.max()), 1e-300), flows)


def table(quick: bool = False) -> Table:
    """Scattered halves of a machine, both with everybody sending on to a rank some way off."""
    rows, figures = [], {}
    nets = {
        "fat tree 2:1": topology.fat_tree((8, 8), (1, 4), 1e9),
        "dragonfly": topology.dragonfly(4, 4, 4, 1e9),
        "torus 8 × 8": topology.torus((8, 8), 1e9),
    }
    draw = np.random.default_rng(0)
    every = []
    for name, graph in nets.items():
        errors = []
        for _ in range(10 if quick else 100):
            seats = draw.permutation(graph.devices)
            half = graph.devices // 2
            goals = [np.roll(ranks, -int(draw.integers(1, half)))
                     for ranks in (seats[:half], seats[half:])]  # fmt: skip
            route = graph.route(seats, np.concatenate(goals))
            alone = fair_rates(graph.capacity, route[:, :half]).min()
            rates = fair_rates(graph.capacity, route)
            exact = max(1.0, float(alone / rates[:half].min()))
            neighbour = Neighbour("other", (1.0,), (loads(graph, route[:, half:]),))
            predicted = slowdown(loads(graph, route[:, :half]), [neighbour], graph)
            errors.append(predicted.worst / exact - 1)
        every += errors
        rows.append({"network": name, "pairs of jobs": len(errors),
                     "median error": rounded(np.median(np.abs(errors))),
                     "p99": rounded(np.quantile(np.abs(errors), 0.99)),
                     "lowest": rounded(min(errors)), "highest": rounded(max(errors))})  # fmt: skip
    figures["median_error"] = figure(np.median(np.abs(every)), "", "")
    figures["worst_error"] = figure(np.max(np.abs(every)), "", "")
    notes = ["exact: progressive filling of all flows of both jobs; what an exchange takes is what "
             "its slowest flow takes"]  # fmt: skip
    return {"title": "Jobs beside each other: slowdown against max-min fair rates", "rows": rows,
            "figures": figures, "notes": notes}  # fmt: skip

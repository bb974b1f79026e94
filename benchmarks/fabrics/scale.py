"""CPU seconds of collectives among very many ranks: tori, fat trees, dragonflies."""

from __future__ import annotations

import time

from benchmarks.table import Table, figure, rounded
from oracle.network import topology
from oracle.network.collectives import ALGORITHMS, menu, named
from oracle.network.contention import RankGroups, schedule_cost

BANDWIDTH = 12.5e9
# another partner in each of p − 1 steps: p² flows, which only a torus folds
LONG = {("sparse_allreduce", "pairwise")}


def spent(graph: topology.Topology, pattern: tuple[tuple[int, int], ...], op: str, name: str
          ) -> float:  # fmt: skip
    """CPU seconds of one query, the schedule included."""
    start = time.process_time()
    groups = RankGroups(pattern, graph.devices)
    schedule_cost(graph, groups, named(op, name).schedule(groups.p))
    return time.process_time() - start


def table(quick: bool = False) -> Table:
    """Pairwise on a torus; every collective of the menu by four groups at once."""
    rows, figures = [], {}
    torus = topology.torus((16, 16, 16), BANDWIDTH)
    for pattern in (((4096, 1),), ((1024, 4),), ((1024, 1),)):
        seconds = spent(torus, pattern, "alltoall", "pairwise")
        rows.append({"network": "torus 16 × 16 × 16", "groups": 4096 // pattern[0][0],
                     "collective": "alltoall pairwise", "seconds": rounded(seconds)})  # fmt: skip
        name = f"torus_pairwise_4096_by_{pattern[0][0]}x{pattern[0][1]}"
        figures[f"{name}.cpu_seconds"] = figure(seconds, "s", "≤ 0.5")
    ranks = 16_384 if quick else 131_072
    networks = {
        "fat tree": topology.fat_tree((64, 32, ranks // 2048), (1, 32, 32), BANDWIDTH),
        "dragonfly": topology.dragonfly(ranks // 2048, 32, 64, BANDWIDTH),
    }
    for network, graph in networks.items():
        graph.seconds_per_byte  # noqa: B018  # built once, with the graph
        worst = 0.0
        for op in ALGORITHMS:
            for by in menu(op, ranks // 4):
                if (op, by.name) in LONG:
                    continue
                seconds = spent(graph, ((ranks // 4, 4),), op, by.name)
                worst = max(worst, seconds)
                rows.append(
                    {
                        "network": f"{network}, {ranks:,} ranks",
                        "groups": 4,
                        "collective": f"{op} {by.name}",
                        "seconds": rounded(seconds),
                    }
                )
        figures[f"{network.replace(' ', '_')}_{ranks}.slowest_cpu_seconds"] = figure(
            worst, "s", "≤ 2"
        )
    notes = [
        "left out: pairwise sparse exchange, whose p² flows no fat tree or dragonfly folds yet"
    ]
    return {"title": "Scale: CPU seconds a query", "rows": rows, "figures": figures, "notes": notes}

"""A network of any shape: hosts, switches and links as a spec or a file lists them."""

from __future__ import annotations

import numpy as np

from oracle.network.topology.wired import Wired, Wiring


class GraphNetwork(Wired):
    """Hosts and switches joined as `graph` lists them; hosts pass nothing on if there are switches.

    `graph` is a list of links, or a file: an edge list, GraphML, ibnetdiscover's output, Slurm's
    topology.conf, NCCL's topology XML. A link without a bandwidth has that of the level, and its
    parallel ones are a trunk. Host n of a copy is unit n.
    """

    kind = "graph"
    usual_way = "d-mod-k"
    has_ports = False

    def wire(self) -> Wiring:
        graph = self.level.graph
        if graph is None or len(graph.hosts) != self.width:
            raise ValueError(f"{self.level.name}: a graph of {self.width} hosts is needed")
        hosts, vertices = len(graph.hosts), len(graph.hosts) + len(graph.switches)
        level_rate = self.level.bandwidth

        def label(a: int, b: int) -> str:
            return "host links" if min(a, b) < hosts else "switch links"

        trunks = [(a, b, rate if rate > 0 else -rate * level_rate, label(a, b))
                  for a, b, rate in graph.links]  # fmt: skip
        passing = np.arange(vertices) >= (0 if graph.direct else hosts)
        return Wiring(vertices, np.arange(hosts), trunks, passing)

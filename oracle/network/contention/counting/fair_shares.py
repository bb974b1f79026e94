"""Max-min fair rates of flows that share links, and their contention graph.

The contention graph has flows for nodes and an edge where two share a link, as in
[martinasso2011]; kept as flows × links, since a full link is a clique. The penalty of a flow is
its solo rate over its fair rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.topology import Topology

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, eq=False)
class Contention:
    """Flows in flight at once, and the links each crosses (columns padded with `links`)."""

    topology: Topology
    source: Ints
    target: Ints
    nbytes: Floats

    @cached_property
    def route(self) -> Ints:
        return self.topology.route(self.source, self.target)

    @cached_property
    def part(self) -> Floats:
        """The part of a flow that the link in each column carries."""
        return self.topology.spread_route(self.source, self.target)[2]

    @cached_property
    def solo(self) -> Floats:
        """B/s of each flow with its links to itself."""
        slowest = self.topology.slowest(self.route, self.part)
        return np.divide(1.0, slowest, out=np.full_like(slowest, np.inf), where=slowest > 0)

    @cached_property
    def rates(self) -> Floats:
        """B/s of each flow by max-min fairness."""
        return fair_rates(self.topology.capacity, self.route, self.part)

    @cached_property
    def phi(self) -> Floats:
        """Penalty of each flow: solo rate over fair rate."""
        return np.where(np.isfinite(self.solo), self.solo / self.rates, 1.0)

    def graph(self) -> nx.Graph[int]:
        """Return a graph with flows for nodes, and edges with the names of links they share."""
        import networkx as nx

        graph: nx.Graph[int] = nx.Graph()
        for flow, (a, b) in enumerate(zip(self.source.tolist(), self.target.tolist(), strict=True)):
            graph.add_node(flow, source=a, target=b, phi=float(self.phi[flow]))
        by_link: dict[int, list[int]] = {}
        for column in self.route:
            for flow, link in enumerate(column.tolist()):
                if link < self.topology.links:
                    by_link.setdefault(link, []).append(flow)
        for link, members in by_link.items():
            for i, a in enumerate(members):
                for b in members[i + 1 :]:
                    graph.add_edge(a, b)
                    graph.edges[a, b].setdefault("links", set()).add(self.topology.label(link))
        return graph

    def seconds(self) -> float:
        """Return the seconds until the last flow is through; rates change whenever one is."""
        left, now = self.nbytes.astype(float), 0.0
        going = np.flatnonzero((left > 0) & np.isfinite(self.solo))
        while len(going):
            rate = fair_rates(self.topology.capacity, self.route[:, going], self.part)
            span = (left[going] / rate).min()
            left[going] -= rate * span
            now += span
            going = going[left[going] > 1e-9 * self.nbytes[going]]
        return now + float(self.topology.alpha(self.source, self.target).max(initial=0.0))


def fair_rates(
    capacity: Floats, route: Ints, part: Floats | None = None, weight: Floats | None = None
) -> Floats:
    """Return max-min fair rates by progressive filling [bertsekas1992, §6.5.2].

    All flows grow alike, or by their weight, until a link is full; its flows stay, the others
    grow on. `route` is padded with the last link, which has no limit; the link in a column
    carries `part` of a flow.
    """
    sent = np.broadcast_to(1.0 if part is None else part[:, None], route.shape)
    if weight is not None:
        weight = weight / weight.max(initial=1e-300)
        sent = sent * weight
    limitless = len(capacity) - 1
    rate = np.full(route.shape[1], np.inf)
    room = capacity.astype(float).copy()
    active = (route != limitless).any(axis=0)
    while active.any():
        count = np.bincount(route[:, active].ravel(), sent[:, active].ravel(), len(capacity))
        count[limitless] = 0
        share = np.where(count > 0, room / np.maximum(count, 1e-9), np.inf)
        level = share.min()
        full = share <= level * (1 + 1e-12)
        done = active & full[route].any(axis=0)
        rate[done] = level if weight is None else level * weight[done]
        room -= level * np.bincount(route[:, done].ravel(), sent[:, done].ravel(), len(capacity))
        room = np.maximum(room, 0.0)
        room[limitless] = np.inf
        active &= ~done
    return rate

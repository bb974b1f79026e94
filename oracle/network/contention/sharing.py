"""Flows that share links: the contention graph, max-min fair rates, and loads to look at.

The contention graph has flows for nodes and an edge where two share a link, as in
[martinasso2011]; kept as flows × links, since a full link is a clique. The penalty of a flow is
its solo rate over its fair rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.network.arrays import Floats, Ints
from oracle.network.collectives import menu, named
from oracle.network.contention.cost import Line, nest, spanning
from oracle.network.contention.groups import Groups, Pattern
from oracle.network.contention.loads import flows_of
from oracle.network.contention.price import lines
from oracle.network.topology import Topology, network_of
from oracle.spec.system import System

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
    def solo(self) -> Floats:
        """B/s of each flow with its links to itself."""
        return np.asarray(self.topology.capacity[self.route].min(axis=0))

    @cached_property
    def rates(self) -> Floats:
        """B/s of each flow by max-min fairness."""
        return fair(self.topology.capacity, self.route)

    @cached_property
    def phi(self) -> Floats:
        """Penalty of each flow: solo rate over fair rate."""
        return np.where(np.isfinite(self.solo), self.solo / self.rates, 1.0)

    @cached_property
    def step_penalty(self) -> Floats:
        """Penalty of each flow by the load of its fullest link: what a step costs."""
        weight = np.broadcast_to(self.nbytes, self.route.shape)
        load = np.bincount(self.route.ravel(), weight.ravel(), self.topology.links + 1)
        busy = load * self.topology.seconds_per_byte
        return np.asarray(busy[self.route].max(axis=0) * self.solo / self.nbytes)

    def graph(self) -> nx.Graph[int]:
        """Flows as nodes, an edge where they share a link, with the links' names."""
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
                    graph.edges[a, b].setdefault("links", set()).add(self.topology.labels[link])
        return graph

    def seconds(self) -> float:
        """Until the last flow is through, shares set anew whenever one is done."""
        left, now = self.nbytes.astype(float), 0.0
        going = np.flatnonzero((left > 0) & np.isfinite(self.solo))
        while len(going):
            rate = fair(self.topology.capacity, self.route[:, going])
            span = (left[going] / rate).min()
            left[going] -= rate * span
            now += span
            going = going[left[going] > 1e-9 * self.nbytes[going]]
        return now + float(self.topology.alpha(self.source, self.target).max(initial=0.0))


def fair(capacity: Floats, route: Ints) -> Floats:
    """Max-min fair rates by progressive filling [bertsekas1992, §6.5.2].

    All flows grow alike until a link is full; its flows stay, the others grow on. `route` is
    padded with the last link, which has no limit.
    """
    limitless = len(capacity) - 1
    rate = np.full(route.shape[1], np.inf)
    room = capacity.astype(float).copy()
    active = (route != limitless).any(axis=0)
    while active.any():
        count = np.bincount(route[:, active].ravel(), minlength=len(capacity))
        count[limitless] = 0
        share = np.where(count > 0, room / np.maximum(count, 1), np.inf)
        level = share.min()
        full = share <= level * (1 + 1e-12)
        done = active & full[route].any(axis=0)
        rate[done] = level
        room -= level * np.bincount(route[:, done].ravel(), minlength=len(capacity))
        room = np.maximum(room, 0.0)
        room[limitless] = np.inf
        active &= ~done
    return rate


@dataclass(frozen=True, eq=False)
class Loads:
    """How full every link gets in one call of an operation, all groups at once."""

    topology: Topology
    line: Line
    nbytes: Floats  # that cross each link, per byte of the message

    @property
    def seconds(self) -> Floats:
        """Time each link works, per byte of the message."""
        return np.asarray(self.nbytes * self.topology.seconds_per_byte[:-1])

    @property
    def use(self) -> Floats:
        """Part of the exchange's time that each link works."""
        return self.seconds / max(float(self.seconds.max(initial=0.0)), self.line.per_byte, 1e-300)

    def by_label(self) -> dict[str, tuple[float, float]]:
        """What kind of link -> (mean, highest) use: the picture in a line a kind."""
        labels = np.array(self.topology.labels)
        return {
            str(label): (float(self.use[labels == label].mean()),
                         float(self.use[labels == label].max()))
            for label in dict.fromkeys(self.topology.labels)
        }  # fmt: skip


def loads(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str | None = None,
    nbytes: float = 64e6,
) -> Loads:  # fmt: skip
    """Bytes on every link when all groups run an operation: the named algorithm or the best."""
    offer = lines(system, op, pattern, devices, algorithm)
    line = min(offer, key=lambda each: each.start + each.per_byte * nbytes)
    groups = Groups(tuple(pair for pair in pattern if pair[0] > 1), devices)
    topology = network_of(system, devices, circuits="circuits" in line.algorithm)
    total = np.zeros(topology.links + 1)
    if groups.p > 1:
        inner = groups.inner(nest(system))
        name = line.algorithm.split("/")[0].split(" ")[0]
        fitting = {by.name: by for by in menu(op, groups.p, inner)}
        by = fitting.get(name) or named(op, name)
        by = by if by.fits(groups.p, inner) else named(op, "ring")
        for steps in by.schedule(groups.p, inner):
            for flows in flows_of(topology, groups, steps):
                route = topology.route(flows.source, flows.target)
                times = np.repeat(flows.times, flows.each)
                weight = np.broadcast_to(flows.share * times, route.shape)
                total += np.bincount(route.ravel(), weight.ravel(), len(total))
    return Loads(topology, line, total[:-1])


def sentence(system: System, what: str, pattern: Pattern, devices: int, line: Line) -> str:
    """What limits an exchange, in words: "4 groups leave each node over 2 ports: φ = 2".

    At φ = 1 links may well be full, and shared; but no flow is slower than it would be alone.
    """
    if not line.full:
        return f"{what}: nothing is sent"
    if line.phi < 1.005:
        return f"{what}: no flow slows another; the {line.full[0]} set the pace (φ = 1)"
    topology = network_of(system, devices)
    groups = Groups(tuple(pair for pair in pattern if pair[0] > 1), devices)
    unit_name, _, way = line.full[0].rpartition(" ")
    for fabric in topology.fabrics:
        inside = min(fabric.unit, devices)
        if fabric.unit_name == unit_name and fabric.port_links and inside > 1:
            ports = f"{fabric.ports:.3g} port" + ("s" if fabric.ports > 1 else "")
            meeting = len(np.unique(groups.first[:inside]))
            who = f"{meeting} groups" if meeting > 1 else f"{inside} members of one group"
            verb = "enter" if way == "downlinks" else "leave"
            return f"{what}: {who} {verb} each {unit_name} over {ports}: φ = {line.phi:.3g}"
    return f"{what}: the {' and '.join(line.full)} are full: φ = {line.phi:.3g}"


def interference(system: System, pattern: Pattern, devices: int) -> tuple[float, float]:
    """(p50, p99) factors by which other jobs slow these groups down; they widen, never shift.

    Those of the outermost level that the groups cross, (1, 1) where the system gives none
    [chunduri2019].
    """
    groups = Groups(tuple(pair for pair in pattern if pair[0] > 1), devices)
    factors: Sequence[Any] = (1.0, 1.0)
    if groups.p > 1:
        for level in system.levels[: spanning(system, groups) + 1]:
            factors = level.interference or factors
    return float(factors[0]), float(factors[-1])

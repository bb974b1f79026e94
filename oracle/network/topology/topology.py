"""A network below a job: its links as flat arrays, and the route between any two devices.

A network is a tower of levels, each of a kind that `kinds` lists. A route climbs through the
ports of its own units, crosses the level where both ends meet, and comes down through the
target's ports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from oracle.network.arrays import Floats, Ints, ShortInts
from oracle.network.topology.fabric import NOWHERE, Fabric
from oracle.network.topology.kinds import KINDS
from oracle.spec.document import refusal
from oracle.spec.system import Level

if TYPE_CHECKING:
    import networkx as nx

LARGEST = 2**25  # links that are counted


class Topology:
    """Links of a network below `devices` devices, and routes over them.

    `capacity` holds the B/s of each link, and one more entry, without limit, that stands for
    "no link": routes are rectangular arrays padded with its number. `alpha` of a route is the
    latency of the level where its ends meet, or `hop` seconds a link where that is given. Half
    duplex is a property of a level: both ways of its links are then one.
    """

    round_trip = False  # flows played at their size share links as TCP's do, by the inverse of α

    def __init__(
        self, levels: Sequence[Level], devices: int, hop: float = 0.0, circuits: bool = False
    ) -> None:
        self.devices, self.hop = devices, hop
        self.levels = tuple(_stages(levels, devices))
        self.fabrics: list[Fabric] = []
        below, inner = None, 1.0
        for level in self.levels:
            fabric = KINDS[level.kind](level, below, inner, devices, circuits)
            self.fabrics.append(fabric)
            below, inner = level, fabric.ports * fabric.width
        self.spans = np.array([level.devices for level in self.levels], np.int64)
        self.latency = np.array([level.latency for level in self.levels] + [0.0])
        sizes = [2 * f.port_links + f.inner_links * f.copies for f in self.fabrics]
        self.starts = np.cumsum([0, *sizes])
        self.links = int(self.starts[-1])
        if self.links > LARGEST:
            raise refusal("system", f"a network of {self.links:,} links below {devices:,} devices",
                          f"no more than {LARGEST:,} can be counted")  # fmt: skip
        self.hashed = any(fabric.routing == "ecmp" for fabric in self.fabrics)
        self.half = any(level.duplex == "half" for level in self.levels)

    @cached_property
    def seconds_per_byte(self) -> Floats:
        """s/B of each link, 0 where there is no link."""
        capacity = self.capacity
        return np.divide(1.0, capacity, out=capacity)

    @property
    def capacity(self) -> Floats:
        """B/s of each link, without limit where there is no link."""
        rates = np.full(self.links + 1, np.inf)
        for start, end, fabric in zip(self.starts, self.starts[1:], self.fabrics, strict=False):
            fabric.rate(rates[start:end])
        return rates

    @property
    def tree(self) -> bool:
        """Whether each unit's traffic keeps to that unit's own links, whatever others do."""
        return not self.half and all(f.tree and f.routing != "ecmp" for f in self.fabrics)

    @property
    def uniform(self) -> bool:
        """Whether the network is a tree in which the units of each level are joined alike."""
        return self.tree and not any(level.wires for level in self.levels)

    @cached_property
    def period(self) -> int:
        """Devices after which a torus or a loop repeats itself; all devices where it never does."""
        fabric = self.fabrics[0]
        filled = len(self.fabrics) == 1 and fabric.level.devices == self.devices
        return fabric.period if filled and not self.half else self.devices

    @cached_property
    def first_period(self) -> Ints:
        """Each link's counterpart in the first period."""
        fabric, periods = self.fabrics[0], self.devices // self.period
        link = np.arange(self.links + 1)
        for start, size in ((0, fabric.port_links), (fabric.port_links, fabric.port_links),
                            (2 * fabric.port_links, fabric.inner_links)):  # fmt: skip
            part = slice(start, start + size)
            link[part] = start + (link[part] - start) % max(1, size // periods)
        return link

    @property
    def innermost(self) -> list[Fabric]:
        """The fabric that joins the devices of a node, for each kind of node."""
        return self.fabrics[:1]

    def meeting_level(self, source: Ints, target: Ints) -> Ints:
        """Return the level at which two devices meet."""
        level = np.zeros(np.broadcast_shapes(np.shape(source), np.shape(target)), np.int64)
        for span in self.spans[:-1]:
            level += source // span != target // span
        return level

    def alpha(self, source: Ints, target: Ints) -> Floats:
        """Return the seconds before the first byte arrives; zero for a device and itself."""
        route, level = self.route_and_level(source, target)
        return self.hop_delay(route) if self.hop else np.asarray(self.latency[level])

    def weight(self, source: Ints, target: Ints) -> Floats | None:
        """Return the weight of each flow's share of a link where shares go by round-trip time."""
        return 1 / np.maximum(self.alpha(source, target), 1e-12) if self.round_trip else None

    def hop_delay(self, route: Ints) -> Floats:
        """Return α of routes whose links take `hop` seconds each."""
        return np.asarray((route != self.links).sum(axis=0) * self.hop)

    def route(self, source: Ints, target: Ints) -> Ints:
        """Return the links of each flow: an array (columns, flows) of link numbers, padded."""
        return self.route_and_level(source, target)[0]

    @cached_property
    def spreads(self) -> bool:
        """Whether some level spreads a flow over several ways."""
        return any(fabric.spread > 1 for fabric in self.fabrics)

    def route_and_level(
        self, source: Ints, target: Ints, into: Ints | None = None
    ) -> tuple[Ints, Ints]:
        """Return each flow's route, and the level where its ends meet (−1: they are one device)."""
        route, level, _ = self.spread_route(source, target, into)
        return route, level

    def spread_route(
        self, source: Ints, target: Ints, into: Ints | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Return each flow's route and level, and the part of a flow that each column carries.

        `into` counts the way down as if it ended at another device that stands for the target:
        one period of a network that repeats itself then holds all of its traffic.
        """
        source, target = np.asarray(source, np.int64), np.asarray(target, np.int64)
        source, target = np.broadcast_arrays(source, target)
        into = target if into is None else np.broadcast_to(into, source.shape)
        level = np.where(source == target, -1, self.meeting_level(source, target))
        columns: list[Ints] = []
        parts: list[float] = []
        ports_by_level = self.ports(source, target, into)
        for depth, (fabric, start, (up, down)) in enumerate(
            zip(self.fabrics, self.starts, ports_by_level, strict=False)
        ):
            inside = bool(fabric.inner_links)
            if inside:
                meets, first = level == depth, source // fabric.unit
                a, b = first % fabric.width, target // fabric.unit % fabric.width
            if fabric.port_links:
                ports = level >= depth
                if inside:
                    ports &= ~(meets & fabric.bypass(a, b))
                columns += [np.where(ports, up, self.links), np.where(ports, down, self.links)]
                parts += [1.0, 1.0]
            if inside:
                base = start + 2 * fabric.port_links + first // fabric.width * fabric.inner_links
                for link in fabric.path(a, b, source, target):
                    columns.append(np.where(meets & (link != NOWHERE), base + link, self.links))
                    parts.append(1.0 / fabric.spread)
        route = np.stack(columns) if columns else np.full((1, *source.shape), self.links)
        return self.paired(route), level, np.array(parts or [1.0])

    def ports(self, source: Ints, target: Ints, into: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the links up from the source and down to the target at each level.

        They are no link where the units of a level have no ports.
        """
        salt = source * 2654435761 + target * 40503 >> 6 if self.hashed else source
        up_key, down_key = target, into
        none = np.full(source.shape, self.links)
        for fabric, start in zip(self.fabrics, self.starts, strict=False):
            if fabric.port_links:
                up = start + fabric.port(source, up_key, salt)
                yield up, start + fabric.port_links + fabric.port(into, down_key, salt)
            else:
                yield none, none
            up_key = fabric.port_number(target, up_key)
            down_key = up_key if into is target else fabric.port_number(into, down_key)

    def paired(self, route: Ints) -> Ints:
        """Return a route in which both ways of a link are one where a level is half duplex."""
        return self.pairing[route] if self.half else route

    def slowest(self, route: Ints, part: Floats) -> Floats:
        """Return the seconds per byte of each flow's slowest link, were the flow alone."""
        seconds = self.seconds_per_byte[route]
        if not self.spreads:
            return np.asarray(seconds.max(axis=0))
        carried = np.zeros(route.shape)
        for link, share in zip(route, part, strict=True):
            carried += share * (route == link)  # a link that several of its ways share
        return np.asarray((seconds * carried).max(axis=0))

    @cached_property
    def kinds(self) -> tuple[list[str], ShortInts]:
        """The kinds of links in words ("node uplinks"), and the number of each link's kind."""
        words: list[str] = []
        numbers = []
        for fabric in self.fabrics:
            fabric_words, number = fabric.labels()
            numbers.append(number + np.int16(len(words)))
            words += fabric_words
        return words, np.concatenate(numbers) if numbers else np.zeros(0, np.int16)

    def label(self, link: int) -> str:
        """Return a link's kind in words."""
        words, number = self.kinds
        return words[int(number[link])]

    @property
    def labels(self) -> list[str]:
        """The kind of each link in words."""
        words, number = self.kinds
        return [words[kind] for kind in number.tolist()]

    @cached_property
    def ends(self) -> list[tuple[str, str]]:
        """The two vertices of each link."""
        ends: list[tuple[str, str]] = []
        for f in self.fabrics:
            name, unit_name = f.level.name, f.unit_name

            def switch(copy: int, number: int, f: Fabric = f, name: str = name) -> str:
                single = f.routing not in ("d-mod-k", "ecmp") and not f.inner_links
                return f"{name} {copy}" + ("" if single else f".{number - f.width}")

            ports = [
                (f"{unit_name} {unit}", switch(unit // f.width, f.port_switch(unit, lane)))
                for unit in range(f.units)
                for lane in range(f.lanes)
            ] * bool(f.port_links)
            ends += ports + [port[::-1] for port in ports]
            for copy in range(f.copies):
                for a, b, _, _ in f.inside():
                    ends.append((
                        f"{unit_name} {copy * f.width + a}" if a < f.width else switch(copy, a),
                        f"{unit_name} {copy * f.width + b}" if b < f.width else switch(copy, b),
                    ))  # fmt: skip
        return ends

    @cached_property
    def pairing(self) -> Ints:
        """Each link's number, or that of its way back where a level is half duplex."""
        paired = np.arange(self.links + 1)
        for depth, f in enumerate(self.fabrics):
            if f.level.duplex != "half":
                continue
            first_way: dict[tuple[str, str, int], int] = {}
            count: dict[tuple[str, str], int] = {}
            for link in range(self.starts[depth], self.starts[depth + 1]):
                ends = self.ends[link]
                count[ends] = count.get(ends, 0) + 1
                low, high = sorted(ends)
                paired[link] = first_way.setdefault((low, high, count[ends]), link)
        return paired

    def graph(self) -> nx.DiGraph[str]:
        """Return the network as a graph: vertices by name, links with B/s and their kind."""
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(f"device {device}" for device in range(self.devices))
        for link, (a, b) in enumerate(self.ends):
            if a == b:
                continue
            if graph.has_edge(a, b):
                graph.edges[a, b]["bandwidth"] += self.capacity[link]
                graph.edges[a, b]["links"].append(link)
            else:
                graph.add_edge(a, b, bandwidth=float(self.capacity[link]),
                               what=self.label(link), links=[link])  # fmt: skip
        for depth, level in enumerate(self.levels[:-1]):  # switches of a unit to the unit itself
            for copy in range(-(-self.devices // level.devices)):
                unit = f"{level.name} {copy}"
                inside = [v for v in graph if v.startswith(f"{unit}.")] or [
                    f"{self.fabrics[depth].unit_name} {u}"
                    for u in range(copy * self.fabrics[depth].width,
                                   min((copy + 1) * self.fabrics[depth].width,
                                       self.fabrics[depth].units))
                    if not self.fabrics[depth].port_links
                ]  # fmt: skip
                for vertex in inside:
                    graph.add_edge(vertex, unit, bandwidth=math.inf, what="inside", links=[])
                    graph.add_edge(unit, vertex, bandwidth=math.inf, what="inside", links=[])
        return graph


def _stages(levels: Sequence[Level], devices: int) -> Iterable[Level]:
    """Yield the levels that a job of `devices` devices reaches, their stages one by one."""
    unit = 1
    for level in levels:
        if level.kind not in KINDS:
            raise ValueError(f"level {level.name}: no kind is called {level.kind!r}; "
                             f"known: {', '.join(sorted(KINDS))}")  # fmt: skip
        for stage in KINDS[level.kind].stages(level, unit):
            yield stage
            unit = stage.devices
            if unit >= devices:
                return
    raise ValueError(f"the network joins {unit} devices, not {devices}")

"""A system as a graph: its links as flat arrays, and the route between any two devices.

A system is a tower of levels, each of one kind (one file beside this one, found by itself). A
route climbs through the ports of its own units, crosses the level where both ends meet, and
comes down through the target's ports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from itertools import zip_longest
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from oracle.network.topology.fabric import NOWHERE, Fabric, Ids, Numbers
from oracle.spec.system import Level, System

if TYPE_CHECKING:
    import networkx as nx


def _descendants(kind: type[Fabric]) -> Iterable[type[Fabric]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _descendants(below)


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
KINDS: dict[str, type[Fabric]] = {cls.kind: cls for cls in _descendants(Fabric)}


class Topology:
    """Links of a network below `devices` devices, and routes over them.

    `capacity` holds the B/s of each link, and one more entry, without limit, that stands for
    "no link": routes are rectangular arrays padded with its number. `alpha` of a route is its
    turning level's latency, or `hop` seconds a link where that is given. Half duplex is a
    property of a level: both ways of its links are then one.
    """

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
        sizes = [2 * f.gates + f.inner_links * f.copies for f in self.fabrics]
        self.starts = np.cumsum([0, *sizes])
        self.links = int(self.starts[-1])
        self.capacity: Numbers = np.concatenate(
            [f.capacities() for f in self.fabrics] + [np.array([np.inf])]
        )
        self.hashes = any(fabric.routing == "ecmp" for fabric in self.fabrics)
        self.pace: Numbers = 1 / self.capacity  # seconds a byte; nothing where there is no link
        self.half = any(level.duplex == "half" for level in self.levels)

    @property
    def tree(self) -> bool:
        """Whether each unit's traffic keeps to that unit's own links, whatever others do."""
        return not self.half and all(f.tree and f.routing != "ecmp" for f in self.fabrics)

    @cached_property
    def wheel(self) -> int:
        """Devices after which a torus or a loop looks the same; all of them where it never does."""
        fabric = self.fabrics[0]
        whole = len(self.fabrics) == 1 and fabric.level.devices == self.devices
        return fabric.period if whole and not self.half else self.devices

    @cached_property
    def folded(self) -> Ids:
        """Each link's counterpart in the first turn of the wheel."""
        fabric, turns = self.fabrics[0], self.devices // self.wheel
        link = np.arange(self.links + 1)
        for start, size in ((0, fabric.gates), (fabric.gates, fabric.gates),
                            (2 * fabric.gates, fabric.inner_links)):  # fmt: skip
            part = slice(start, start + size)
            link[part] = start + (link[part] - start) % max(1, size // turns)
        return link

    def turn(self, source: Ids, target: Ids) -> Ids:
        """The level at which two devices meet."""
        turn = np.zeros(np.broadcast_shapes(np.shape(source), np.shape(target)), np.int64)
        for span in self.spans[:-1]:
            turn += source // span != target // span
        return turn

    def alpha(self, source: Ids, target: Ids) -> Numbers:
        """Seconds before the first byte arrives; zero for a device and itself."""
        route, turn = self.trail(source, target)
        return self.delay(route) if self.hop else np.asarray(self.latency[turn])

    def delay(self, route: Ids) -> Numbers:
        """α of routes that cost so much a link."""
        return np.asarray((route != self.links).sum(axis=0) * self.hop)

    def route(self, source: Ids, target: Ids) -> Ids:
        """Links of each flow: an array (columns, flows) of link numbers, padded."""
        return self.trail(source, target)[0]

    def trail(self, source: Ids, target: Ids, into: Ids | None = None) -> tuple[Ids, Ids]:
        """Route of each flow, and the level where it turns (−1: it stays where it is).

        `into` counts the way down as if it ended at another device that stands for the target:
        one period of a network that looks the same everywhere then holds all of its traffic.
        """
        source, target = np.asarray(source, np.int64), np.asarray(target, np.int64)
        source, target = np.broadcast_arrays(source, target)
        into = target if into is None else np.broadcast_to(into, source.shape)
        turn = np.where(source == target, -1, self.turn(source, target))
        salt = source * 2654435761 + target * 40503 >> 6 if self.hashes else source
        up_key, down_key = target, into
        columns: list[Ids] = []
        for depth, fabric in enumerate(self.fabrics):
            start = self.starts[depth]
            inside = bool(fabric.inner_links)
            if inside:
                here, first = turn == depth, source // fabric.unit
                a, b = first % fabric.width, target // fabric.unit % fabric.width
            if fabric.gates:
                ports = turn >= depth
                if inside:
                    ports &= ~(here & fabric.bypass(a, b))
                up = start + fabric.gate(source, up_key, salt)
                down = start + fabric.gates + fabric.gate(into, down_key, salt)
                columns += [np.where(ports, up, self.links), np.where(ports, down, self.links)]
            if inside:
                base = start + 2 * fabric.gates + first // fabric.width * fabric.inner_links
                for link in fabric.path(a, b, source, target):
                    columns.append(np.where(here & (link != NOWHERE), base + link, self.links))
            if depth + 1 < len(self.fabrics):
                up_key = fabric.number(target, up_key)
                down_key = up_key if into is target else fabric.number(into, down_key)
        route = np.stack(columns) if columns else np.full((1, *source.shape), self.links)
        route = self.pairing[route] if self.half else route
        return route, turn

    @cached_property
    def labels(self) -> list[str]:
        """What each link is, in words: "node uplinks"."""
        return [label for fabric in self.fabrics for label in fabric.labels()]

    @cached_property
    def ends(self) -> list[tuple[str, str]]:
        """The two vertices of each link."""
        ends: list[tuple[str, str]] = []
        for f in self.fabrics:
            name, unit_name = f.level.name, f.unit_name

            def switch(copy: int, number: int, f: Fabric = f, name: str = name) -> str:
                one = f.routing not in ("d-mod-k", "ecmp") and not f.inner_links
                return f"{name} {copy}" + ("" if one else f".{number - f.width}")

            gates = [
                (f"{unit_name} {unit}", switch(unit // f.width, f.gate_switch(unit, lane)))
                for unit in range(f.units)
                for lane in range(f.lanes)
            ] * bool(f.gates)
            ends += gates + [gate[::-1] for gate in gates]
            for copy in range(f.copies):
                for a, b, _, _ in f.inside():
                    ends.append((
                        f"{unit_name} {copy * f.width + a}" if a < f.width else switch(copy, a),
                        f"{unit_name} {copy * f.width + b}" if b < f.width else switch(copy, b),
                    ))  # fmt: skip
        return ends

    @cached_property
    def pairing(self) -> Ids:
        """Each link's number, or that of its way back where a level is half duplex."""
        paired = np.arange(self.links + 1)
        for depth, f in enumerate(self.fabrics):
            if f.level.duplex != "half":
                continue
            seen: dict[tuple[str, str, int], int] = {}
            count: dict[tuple[str, str], int] = {}
            for link in range(self.starts[depth], self.starts[depth + 1]):
                ends = self.ends[link]
                count[ends] = count.get(ends, 0) + 1
                low, high = sorted(ends)
                paired[link] = seen.setdefault((low, high, count[ends]), link)
        return paired

    def graph(self) -> nx.DiGraph[str]:
        """The network to look at: vertices by name, links with B/s and what they are."""
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
                               what=self.labels[link], links=[link])  # fmt: skip
        for depth, level in enumerate(self.levels[:-1]):  # switches of a unit to the unit itself
            for copy in range(-(-self.devices // level.devices)):
                unit = f"{level.name} {copy}"
                inside = [v for v in graph if v.startswith(f"{unit}.")] or [
                    f"{self.fabrics[depth].unit_name} {u}"
                    for u in range(copy * self.fabrics[depth].width,
                                   min((copy + 1) * self.fabrics[depth].width,
                                       self.fabrics[depth].units))
                    if not self.fabrics[depth].gates
                ]  # fmt: skip
                for vertex in inside:
                    graph.add_edge(vertex, unit, bandwidth=math.inf, what="inside", links=[])
                    graph.add_edge(unit, vertex, bandwidth=math.inf, what="inside", links=[])
        return graph


def _stages(levels: Sequence[Level], devices: int) -> Iterable[Level]:
    """The levels that a job of `devices` devices reaches, those of several stages unrolled."""
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


_BUILT: WeakKeyDictionary[System, dict[object, Topology]] = WeakKeyDictionary()


def of(
    system: System, devices: int, reach: tuple[float, ...] = (), circuits: bool = False
) -> Topology:
    """The network below the first `devices` devices of a system, built once.

    `reach` is the part of each level's datasheet bandwidth that messages get (all of it); with
    `circuits`, optical circuits are set.
    """
    built = _BUILT.setdefault(system, {})
    key = devices, reach, circuits
    if key not in built:
        if len(built) >= 64:  # a sweep asks for every size once
            del built[next(iter(built))]
        levels = [replace(level, bandwidth=level.bandwidth * part)
                  for level, part in zip_longest(system.levels, reach, fillvalue=1.0)
                  if isinstance(level, Level)]  # fmt: skip
        built[key] = Topology(levels, devices, circuits=circuits)
    return built[key]


def _level(name: str, devices: int, bandwidth: float, latency: float, **more: Any) -> Level:
    return Level(name, devices, bandwidth, latency, source="given", **more)


def crossbar(
    devices: int, bandwidth: float, latency: float = 1e-6, duplex: str = "full", hop: float = 0.0
) -> Topology:
    """One switch."""
    level = _level("switch", devices, bandwidth, latency, duplex=duplex)
    return Topology([level], devices, hop)


def fat_tree(
    down: Sequence[int], up: Sequence[float], bandwidth: float, latency: float = 1e-6,
    duplex: str = "full", hop: float = 0.0,
) -> Topology:  # fmt: skip
    """A fat tree by its arities: stage i has `down[i]` units a switch, `up[i]` links above each.

    The first stage is the hosts and their leaf, so `up[0]` is the links of one host (1), and
    `up[1]` those of one leaf switch; above, those of one switch of the stage.
    """
    levels, span, ports = [], 1, 1.0
    for stage, (below, above) in enumerate(zip(down, up, strict=True)):
        span, ports = span * below, ports * above
        name = "leaf" if stage == 0 else "spine" if stage == len(down) - 1 else f"stage {stage}"
        levels.append(_level(name, span, bandwidth, latency, kind="fat-tree" if stage else "switch",
                             ports=ports, duplex=duplex))  # fmt: skip
    return Topology(levels, span, hop)


def torus(
    shape: Sequence[int], bandwidth: float, latency: float = 1e-6, hop: float = 0.0,
    kind: str = "torus",
) -> Topology:  # fmt: skip
    """A torus, ring or open grid of devices."""
    devices = math.prod(shape)
    level = _level(kind, devices, bandwidth, latency, kind=kind, shape=tuple(shape))
    return Topology([level], devices, hop)


def dragonfly(
    groups: int, routers: int, hosts: int, bandwidth: float, latency: float = 1e-6,
    hop: float = 0.0, routing: str | None = None, trunk: int = 1,
) -> Topology:  # fmt: skip
    """A dragonfly; `trunk` links between each two groups, taken as one."""
    devices = groups * routers * hosts
    level = _level("dragonfly", devices, bandwidth, latency, kind="dragonfly",
                   shape=(groups, routers, hosts, trunk), routing=routing)  # fmt: skip
    return Topology([level], devices, hop)


def loop(
    switches: int, hosts: int, bandwidth: float, latency: float = 1e-6, longest: int | None = None,
    duplex: str = "full", hop: float = 0.0,
) -> Topology:  # fmt: skip
    """A distributed loop network."""
    shape = (switches, hosts) + ((longest,) if longest else ())
    level = _level("loop", switches * hosts, bandwidth, latency, kind="loop", shape=shape,
                   duplex=duplex)  # fmt: skip
    return Topology([level], switches * hosts, hop)


def nodes(
    count: int, devices: int, ports: int, inner: float, outer: float, leaf: int, spines: float,
    latency: float = 1e-6,
) -> Topology:  # fmt: skip
    """Nodes of several devices behind shared ports, below leaf switches and spines."""
    levels = [_level("node", devices, inner, latency)]
    leaf = min(leaf, count)
    levels.append(_level("leaf", leaf * devices, outer, latency, ports=ports))
    if leaf < count:
        levels.append(_level("spine", count * devices, outer, latency, kind="fat-tree",
                             ports=spines))  # fmt: skip
    return Topology(levels, count * devices)

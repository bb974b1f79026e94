"""A level of a system's network: how the units below are joined, and at what α and 1/β."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Literal

from oracle.spec.by_nodes import ByNodes
from oracle.spec.document import suggest
from oracle.spec.graphs import Graph
from oracle.spec.schema import Between, Clash, Count
from oracle.spec.units import BytesPerSecond, Seconds

LINKS = ("nvlink", "pcie", "network")  # what joins a level; the first network leaves the node
# how a level joins its units: each is a file of `oracle.network.topology.kinds`
KINDS = ("switch", "fat-tree", "rail", "rail-only", "multi-plane", "mesh", "pcie", "torus",
         "twisted-torus", "ring", "grid", "loop", "dragonfly", "dragonfly+", "hyperx", "slim-fly",
         "graph", "optical")  # fmt: skip
# how many numbers of `shape`, from the first on, multiply to the units joined; None: all of them
SHAPED = {"fat-tree": None, "torus": None, "twisted-torus": None, "ring": None, "grid": None,
          "loop": 2, "dragonfly": 3, "dragonfly+": 3, "hyperx": None, "slim-fly": None}  # fmt: skip
# units have a link to each neighbour, and no ports
PORTLESS = ("mesh", "torus", "twisted-torus", "ring", "grid", "graph")
ROUTINGS = ("adaptive", "striped", "affinity", "d-mod-k", "ecmp")
WIRED_ROUTINGS = (
    "minimal",
    "d-mod-k",
    "ecmp",
    "adaptive",
    "valiant",
)  # over switches joined in any way
OWN_ROUTINGS = {
    "dragonfly": (*ROUTINGS, "minimal", "matched", "valiant"),
    **dict.fromkeys(("dragonfly+", "hyperx", "slim-fly", "graph", "twisted-torus"), WIRED_ROUTINGS),
    **dict.fromkeys(("rail-only", "multi-plane"), ("affinity",)),
}
WIRED_KINDS = ("dragonfly+", "hyperx", "slim-fly")  # each link of switches has the bandwidth
REDUCES = {"nvls": "nvlink", "sharp": "network"}  # by which switches reduce, and on what links
INTERFERENCE = ("interference", "interference_pairs", "interference_collectives")
WIRED = 64  # units that a level may join wire by wire


NEED_SHAPE = {
    "dragonfly": "shape: [groups, routers, units per router]",
    "dragonfly+": "shape: [groups, leaves, units per leaf]",
    "slim-fly": "shape: [2, q, q, units per switch], q an odd prime",
}


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the network: how the units below are joined, and at what α and 1/β."""

    name: str
    devices: Count  # devices joined at this level in all
    bandwidth: BytesPerSecond  # one port, one direction
    latency: Seconds  # α of a message whose route turns here
    source: str
    kind: str = "switch"  # of KINDS
    link: str = ""  # of LINKS; by the kind and the place where the file is silent: `linked`
    # of each unit below into this level; None: its inner ports
    ports: Annotated[float, Between(0, 65_536)] | None = None
    duplex: str = "full"
    oversubscription: Annotated[float, Between(1, 1000)] = 1.0
    shape: tuple[Count, ...] = ()  # extents of a torus, arities of a tree, …; meaning by kind
    routing: str | None = None
    # of a mesh whose pairs of units are not all joined alike: `0-3` for each link, numbers below
    wires: tuple[str, ...] = ()
    # of a graph: hosts, switches and the links between them, listed here or in a file
    graph: Graph | None = None
    # how much slower other jobs make messages that cross this level: (p50, p99) factors
    interference: tuple[Annotated[float, Between(1, 1000)], ...] = ()
    # likewise, what short ones take: of pairs of ranks, of collectives; else as all messages
    interference_pairs: tuple[Annotated[float, Between(1, 1000)], ...] = ()
    interference_collectives: tuple[Annotated[float, Between(1, 1000)], ...] = ()
    # what its switches add up and multicast: `nvls` those of NVLink, `sharp` those of a network
    reduces: str = ""
    # hosts of a unit, which a scheduler gives one by one; of up to 16 devices it is one itself
    hosts: Count | None = None
    # devices of a unit that a job of several units uses at most; all if not said
    used: Count | None = None
    # whether groups of ranks lie whole in units, some of whose devices may stay idle, or fill them;
    # by default they do in units of several hosts
    placement: Literal["", "aligned", "packed"] = ""
    # of the datasheet's bandwidth, what collectives were measured to get; None: never measured
    share: Annotated[float, Between(0.01, 1)] | None = None
    # the same by operation and by the number of nodes that a message spans; none: as links say
    by_nodes: tuple[ByNodes, ...] = ()

    def check(self) -> Iterator[Clash]:
        yield from self._joined()
        if self.duplex not in ("full", "half"):
            yield Clash("duplex", f"duplex is `full` or `half`, not `{self.duplex}`")
        if self.link and self.link not in LINKS:
            yield Clash("link", f"unknown link `{self.link}`", suggest(self.link, LINKS, "known"))
        if self.reduces not in ("", *REDUCES):
            what = f"no switch reduces by `{self.reduces}`"
            yield Clash("reduces", what, suggest(self.reduces, REDUCES, "known"))
        if self.reduces and self.kind in (*PORTLESS, "mesh", "pcie"):
            yield Clash("reduces", f"a {self.kind} has no switches that could", "leave it out")
        for name in INTERFERENCE:
            factors = getattr(self, name)
            if len(factors) > 2 or [*factors] != sorted(factors):
                what = "other jobs slow messages by two factors, the second no smaller"
                yield Clash(name, what, "[p50, p99], e.g. [1.1, 2.5]")
        if self.hosts is not None and self.devices % self.hosts:
            what = f"{self.hosts} hosts do not share {self.devices} devices evenly"
            yield Clash("hosts", what, "a divisor of `devices`")
        if self.used is not None and self.used > self.devices:
            what = f"a job uses {self.used} of {self.devices} devices"
            yield Clash("used", what, f"up to {self.devices}")
        if self.ports is not None and self.ports <= 0:
            yield Clash("ports", "a unit without a port cannot be joined", "1 or more")

    def _joined(self) -> Iterator[Clash]:
        """What is wrong with the way its units are joined."""
        if self.kind not in KINDS:
            hint = suggest(self.kind, KINDS, "known")
            yield Clash("kind", f"no level is of a kind called `{self.kind}`", hint)
            return
        routings = OWN_ROUTINGS.get(self.kind, ROUTINGS)
        if self.routing is not None and self.routing not in routings:
            what = f"a {self.kind} has no routing called `{self.routing}`"
            yield Clash("routing", what, suggest(self.routing, routings, "known"))
        elif self.routing is not None and self.kind in PORTLESS and routings is ROUTINGS:
            yield Clash("routing", f"a {self.kind} has one way between two units", "leave it out")
        if self.wires and self.kind != "mesh":
            yield Clash("wires", f"a {self.kind} has no wires between pairs", "kind: mesh")
        if (self.kind == "graph") != (self.graph is not None):
            has = self.graph is not None
            yield Clash(
                "graph" if has else "kind",
                f"a {self.kind} has no graph" if has else "a graph without its links",
                "kind: graph" if has else "graph: [host switch 25 GB/s, …], or its file",
            )
        if self.shape and self.kind not in (*SHAPED, "optical", "multi-plane"):
            hint = f"kinds that have: {', '.join(SHAPED)}"
            yield Clash("shape", f"a {self.kind} has no shape", hint)
        rails = ("rail", "multi-plane")
        full = self.kind in PORTLESS or (self.ports is not None and self.kind not in rails)
        full |= self.kind in WIRED_KINDS
        if self.oversubscription != 1 and full and len(self.shape) < 2:
            what = "the links up are as many as `ports` says, or as the kind has"
            yield Clash("oversubscription", what, "say one of the two")

    @staticmethod
    def joined_by(wires: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """The two units of each wire; −1 where it names none."""
        for wire in wires:
            a, _, b = wire.partition("-")
            read = a.isdecimal() and b.isdecimal() and len(wire) < 9
            yield (int(a), int(b)) if read else (-1, -1)

    def loose(self, unit: int) -> Clash | None:
        """What is wrong with its wires, where units of so many devices each are joined."""
        width, wires = self.devices // unit, [*self.joined_by(self.wires)]
        if not wires:
            return None
        if width > WIRED:
            return Clash("wires", f"more than {WIRED} units are not wired pair by pair")
        if width > len(wires) + 1:
            what = f"{len(wires)} wires do not join the {width} units of `{self.name}`"
            return Clash("wires", what, "one for each link, as 0-1")
        near = [{k} for k in range(width)]
        for wire, (a, b) in zip(self.wires, wires, strict=True):
            if not (0 <= a < width and 0 <= b < width and a != b):
                what = f"`{wire}` is no pair of two of the {width} units of `{self.name}`"
                return Clash("wires", what, "as 0-1, numbers from 0")
            near[a].add(b)
            near[b].add(a)
        most = max(sum(k in pair for pair in wires) for k in range(width))
        if self.ports is not None and most > self.ports:
            return Clash("wires", f"a unit has {most} wires, but {self.ports:g} ports")
        for a in range(width):
            for b in range(a):
                if not near[a] & near[b]:
                    what = f"{b} and {a} are more than one unit apart"
                    return Clash("wires", what, "a wire between them, or to one unit from both")
        return None

    def misfit(self, unit: int) -> Clash | None:
        """Whether its shape does not hold the units that it joins, of so many devices each."""
        if self.graph is not None and len(self.graph.hosts) != self.devices // unit:
            return Clash("graph", f"{len(self.graph.hosts)} hosts for the {self.devices // unit} "
                         f"units of `{self.name}`", "one for each")  # fmt: skip
        if self.kind == "multi-plane" and self.shape and self.devices // unit % self.shape[0]:
            return Clash("shape", f"{self.devices // unit} units do not fill leaves of "
                         f"{self.shape[0]}", "a divisor")  # fmt: skip
        if self.kind in NEED_SHAPE and not self.shape:
            return Clash("kind", f"a {self.kind} without a shape", NEED_SHAPE[self.kind])
        if self.kind == "slim-fly" and (q := self.shape[1:2]) and not _odd_prime(q[0], self.shape):
            return Clash("shape", f"{[*self.shape]} is no slim-fly", NEED_SHAPE[self.kind])
        if self.kind not in SHAPED or not self.shape:
            return None
        count, width = SHAPED[self.kind], self.devices // unit
        head = self.shape[:count]
        if len(head) == (count or len(head)) and prod(head) == width:
            return None
        shown = " x ".join(map(str, head))
        numbers = f"{count} numbers whose product" if count else "numbers whose product"
        return Clash("shape", f"{shown} does not hold the {width} units of `{self.name}`",
                     f"{numbers} is {width}")  # fmt: skip


def _odd_prime(q: int, shape: tuple[int, ...]) -> bool:
    """Whether a shape is (2, q, q, any) for an odd prime."""
    prime = 2 < q < 10_000 and all(q % k for k in range(2, int(q**0.5) + 1))
    return prime and len(shape) == 4 and shape[:3] == (2, q, q)


def linked(levels: tuple[Level, ...]) -> Iterator[Level]:
    """The levels with their links said.

    Where the file is silent a `mesh` is of NVLinks, `pcie` is what it says, the innermost switch
    joins a node's devices by NVLinks, and every other level is a network.
    """
    outside = False
    for depth, level in enumerate(levels):
        inner = {"mesh": "nvlink", "pcie": "pcie", "switch": "" if depth else "nvlink"}
        habit = "" if outside else inner.get(level.kind, "")
        link = level.link or habit or "network"
        outside = outside or link == "network"
        yield replace(level, link=link)

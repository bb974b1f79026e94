"""A system: devices joined level by level, with the collectives measured on it and its storage.

Datasheet values and calibrated values stand beside each other, each with its source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Annotated

from oracle.spec import hostlist
from oracle.spec.device import Device
from oracle.spec.document import refusal, suggest
from oracle.spec.running import Checkpoint, Reliability
from oracle.spec.schema import Between, Clash, Count, Ratio
from oracle.spec.seats import Seats
from oracle.spec.storage import Host, Storage
from oracle.spec.units import Bytes, BytesPerSecond, Emission, Price, Seconds, Watt

LINKS = ("nvlink", "pcie", "network")  # what joins a level; the first network leaves the node
# how a level joins its units: each is a file of `oracle.network.topology.kinds`
KINDS = ("switch", "fat-tree", "rail", "mesh", "pcie", "torus", "ring", "grid", "loop",
         "dragonfly", "optical")  # fmt: skip
# how many numbers of `shape`, from the first on, multiply to the units joined; None: all of them
SHAPED = {"fat-tree": None, "torus": None, "ring": None, "grid": None, "loop": 2, "dragonfly": 3}
PORTLESS = ("mesh", "torus", "ring", "grid")  # units have a link to each neighbour, and no ports
ROUTINGS = ("adaptive", "striped", "affinity", "d-mod-k", "ecmp")
OWN_ROUTINGS = {"dragonfly": ("minimal", "matched", "valiant")}
WIRED = 64  # units that a level may join wire by wire
RUNNING = ("price", "node_power", "pue", "grid")  # what it costs to run one
LARGEST = 2**21  # devices that a system may be let grow to


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
    # how much slower other jobs make messages that cross this level: (p50, p99) factors
    interference: tuple[Annotated[float, Between(1, 1000)], ...] = ()
    # of the datasheet's bandwidth, what collectives were measured to get; None: never measured
    share: Annotated[float, Between(0.01, 1)] | None = None

    def check(self) -> Iterator[Clash]:
        yield from self._joined()
        if self.duplex not in ("full", "half"):
            yield Clash("duplex", f"duplex is `full` or `half`, not `{self.duplex}`")
        if self.link and self.link not in LINKS:
            yield Clash("link", f"unknown link `{self.link}`", suggest(self.link, LINKS, "known"))
        if len(self.interference) > 2 or [*self.interference] != sorted(self.interference):
            what = "other jobs slow messages by two factors, the second no smaller"
            yield Clash("interference", what, "[p50, p99], e.g. [1.1, 2.5]")
        if self.ports is not None and self.ports <= 0:
            yield Clash("ports", "a unit without a port cannot be joined", "1 or more")

    def _joined(self) -> Iterator[Clash]:
        """What is wrong with the way its units are joined."""
        if self.kind not in KINDS:
            hint = suggest(self.kind, KINDS, "known")
            yield Clash("kind", f"no level is of a kind called `{self.kind}`", hint)
            return
        routings = (*ROUTINGS, *OWN_ROUTINGS.get(self.kind, ()))
        if self.routing is not None and self.routing not in routings:
            what = f"a {self.kind} has no routing called `{self.routing}`"
            yield Clash("routing", what, suggest(self.routing, routings, "known"))
        elif self.routing is not None and self.kind in PORTLESS:
            yield Clash("routing", f"a {self.kind} has one way between two units", "leave it out")
        if self.wires and self.kind != "mesh":
            yield Clash("wires", f"a {self.kind} has no wires between pairs", "kind: mesh")
        if self.shape and self.kind not in (*SHAPED, "optical"):
            hint = f"kinds that have: {', '.join(SHAPED)}"
            yield Clash("shape", f"a {self.kind} has no shape", hint)
        full = self.kind in PORTLESS or (self.ports is not None and self.kind != "rail")
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


FACTORS = ("LL", "LL128", "Simple", "pairs")  # what a `Library` may say something of


@dataclass(frozen=True, slots=True)
class Calibrated:
    """α and β of one operation at one level, fitted to measurements."""

    op: str
    level: str
    algorithm: str
    bandwidth: BytesPerSecond  # on the fullest link of one unit
    source: str
    protocol: str = ""
    base: Seconds = 0.0  # per call
    latency: Seconds = 0.0  # per step of the algorithm
    concurrency: Ratio = 1.0  # groups in flight when measured
    ranks: tuple[Count, ...] = ()  # range covered
    sizes: tuple[Bytes, ...] = ()
    uncertainty: dict[str, Ratio] = field(default_factory=dict)  # relative, 1σ


@dataclass(frozen=True, slots=True)
class Library:
    """What a library's public constants are off by from a level up: factors, fitted to logs.

    By protocol, and `pairs` of what only sends and receives; what is not said is 1.
    """

    level: str
    source: str
    base: dict[str, Ratio] = field(default_factory=dict)  # on the seconds of a call
    hop: dict[str, Ratio] = field(default_factory=dict)  # on those of a hop
    bandwidth: dict[str, Ratio] = field(default_factory=dict)
    tree: Ratio = 1.0  # on the bandwidth of trees, beside
    own: Ratio = 0.0  # of its own part of a message, what a rank copies as if it were sent
    few: Ratio = 1.0  # on the bandwidth of the few channels that short messages open
    opened: Ratio = 0.0  # of a call's base, what it takes to open all channels
    error: Ratio = 0.0  # relative, 1σ, of what was left out
    operations: tuple[str, ...] = ()
    ranks: tuple[Count, ...] = ()  # range covered
    sizes: tuple[Bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Collectives:
    """Calibrated entries that several systems share: the same nodes, the same software."""

    name: str
    collectives: tuple[Calibrated, ...]
    title: str = ""


@dataclass(frozen=True)
class System:
    """A cluster of equal devices, joined level by level, innermost first."""

    name: str
    device: Device = field(metadata={"named": True})
    levels: tuple[Level, ...]
    source: str
    title: str = ""
    collectives: tuple[Calibrated, ...] = field(default=(), metadata={"named": True})
    library: tuple[Library, ...] = ()
    storage: Storage | None = None
    host: Host | None = None  # of one node
    reliability: Reliability | None = None
    price: Price | None = None  # of one device here; what the device costs elsewhere if not said
    checkpoint: Checkpoint | None = None
    node_power: Watt | None = None  # of one node, beside its devices
    pue: Annotated[float, Between(1, 3)] | None = None  # what a site draws by what machines do
    grid: Emission | None = None  # of CO₂, for its electricity
    sources: dict[str, str] = field(default_factory=dict)  # of these four, by name
    software: str = ""  # what the calibration ran under
    # a framework's own work on this host for each kernel it launches; the software's if not said
    dispatch: Seconds | None = None
    # the levels that `collectives` were fitted on: those of the file, also of a machine supposed
    calibrated_on: tuple[Level, ...] = field(default=(), repr=False, metadata={"hidden": True})
    nodes: str = ""  # names of its nodes in the order of their numbers: `rack[1-8]-[1-16]`
    # where a job's ranks sit, and the system without them; else rank r is device r
    seats: Seats | None = field(default=None, repr=False, metadata={"hidden": True})
    whole: System | None = field(default=None, repr=False, metadata={"hidden": True})

    def __post_init__(self) -> None:
        levels = tuple(linked(self.levels))
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "calibrated_on", self.calibrated_on or levels)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def devices(self) -> int:
        """Devices that a job may have: all, or those of the nodes that it was given."""
        if self.seats is not None and self.seats.slots:
            return len(self.seats.slots)
        return self.levels[-1].devices if self.levels else 1

    @property
    def bare(self) -> System:
        """The system with rank r on device r."""
        return self if self.seats is None else self._bare

    @cached_property
    def _bare(self) -> System:
        there, told = self.whole, ("collectives", "library", "device")
        if (
            there is not None
            and there.levels == self.levels
            and all(getattr(self, name) is getattr(there, name) for name in told)
        ):
            return there
        return replace(self, seats=None, whole=None)

    def seated(self, seats: Seats | None) -> System:
        """The system for a job whose ranks sit so."""
        return self.bare if seats is None else replace(self.bare, seats=seats, whole=self.bare)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """Names of its nodes in the order of their numbers; nothing where nobody says them."""
        return hostlist.names(self.nodes) if self.nodes else ()

    def of_size(self, devices: int, grow: bool = False) -> System:
        """The system, if it has so many devices; to `grow`, its outermost level joins more units.

        Its units stay as they are, and no level is invented whose links nobody said.
        """
        if devices <= self.devices:
            return self
        what = f"{devices} devices, but {self.name} has {self.devices}"
        if self.seats is not None and self.seats.slots:
            what = f"{devices} devices, but the nodes that were given have {self.devices}"
            raise refusal("options", what, "more --nodes, or fewer devices")
        if not grow:
            raise refusal("options", what, "fewer, a larger system, or --grow (`grow=True`)")
        if devices > LARGEST:
            raise refusal("options", what, f"no system grows beyond {LARGEST:,} devices")
        last = self.levels[-1]
        if last.shape and last.kind in SHAPED:
            what = f"{what}, and `{last.name}` has a shape that says how many"
            raise refusal("options", what, f"write its `shape` for {devices} devices")
        unit = self.levels[-2].devices if len(self.levels) > 1 else 1
        larger = replace(last, devices=-(-devices // unit) * unit)
        return replace(self, levels=(*self.levels[:-1], larger))

    @cached_property
    def as_calibrated(self) -> System:
        """The machine that `collectives` were fitted on: itself, unless levels were replaced."""
        if self.seats is not None:
            return self.bare.as_calibrated
        if self.calibrated_on == self.levels:
            return self
        return replace(self, levels=self.calibrated_on)

    @property
    def inside(self) -> int:
        """How many levels lie inside a node: those below the first that is a network."""
        links = [level.link for level in self.levels]
        return links.index("network") if "network" in links else len(links)

    @property
    def node(self) -> int:
        """Devices that share a node and its network ports; 1 where each is a node of its own."""
        return self.levels[self.inside - 1].devices if self.inside else 1

    def check(self) -> Iterator[Clash]:
        if not self.levels:
            yield Clash("levels", "a system needs at least one level", "- {name: node, …}")
        for i, (inner, outer) in enumerate(pairwise(self.levels)):
            if outer.devices % inner.devices or outer.devices <= inner.devices:
                yield Clash(
                    f"levels.{i + 1}.devices",
                    f"`{outer.name}` joins {outer.devices} devices, "
                    f"not whole copies of `{inner.name}` ({inner.devices})",
                    f"a multiple of {inner.devices}",
                )
        for i, level in enumerate(self.levels):
            unit = self.levels[i - 1].devices if i else 1
            if level.devices % unit == 0 and (misfit := level.misfit(unit) or level.loose(unit)):
                yield replace(misfit, field=f"levels.{i}.{misfit.field}")
        for i, level in enumerate(self.levels[self.inside :], self.inside):
            if level.link != "network":
                what = f"`{level.name}` lies above a network, so it is one"
                yield Clash(f"levels.{i}.link", what, "network, or nothing")
        if self.nodes and (clash := self._misnamed()):
            yield clash
        for key in self.sources:
            if key not in RUNNING:
                yield Clash(f"sources.{key}", f"`{key}` has no source of its own",
                            suggest(key, RUNNING, "known"), True)  # fmt: skip
        names = [level.name for level in self.levels]
        for i, name in enumerate(names):
            if name in names[:i]:
                yield Clash(
                    f"levels.{i}.name", f"two levels are called `{name}`", "names tell them apart"
                )
        fitted = [(f"collectives.{i}", each.level) for i, each in enumerate(self.collectives)]
        fitted += [(f"library.{i}", each.level) for i, each in enumerate(self.library)]
        for where, name in fitted:
            if name not in names:
                yield Clash(f"{where}.level", f"no level is called `{name}`",
                            suggest(name, names, "levels"))  # fmt: skip
        for i, library in enumerate(self.library):
            for key in ("base", "hop", "bandwidth"):
                for word in getattr(library, key):
                    if word not in FACTORS:
                        yield Clash(f"library.{i}.{key}", f"no protocol is called `{word}`",
                                    suggest(word, FACTORS, "known"))  # fmt: skip

    def _misnamed(self) -> Clash | None:
        """What is wrong with the names of its nodes."""
        try:
            known = len(hostlist.names(self.nodes))
        except ValueError as error:
            what, _, hint = str(error).partition("; ")
            return Clash("nodes", what, hint)
        if known != (count := -(-self.devices // self.node)):
            return Clash("nodes", f"{known} names for {count} nodes", "one for each, in order")
        return None


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

"""A system: devices joined level by level, with the collectives measured on it and its storage.

Datasheet values and calibrated values stand beside each other, each with its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

from oracle.spec import hostlist
from oracle.spec.collective_names import ALGORITHMS
from oracle.spec.device import Device
from oracle.spec.document import refusal, suggest
from oracle.spec.level import REDUCES, SHAPED, linked
from oracle.spec.level import Level as Level
from oracle.spec.running import Checkpoint, Reliability
from oracle.spec.schema import Between, Clash, Count, Ratio
from oracle.spec.seats import Seats
from oracle.spec.storage import Host, Storage
from oracle.spec.units import Bytes, BytesPerSecond, Emission, Price, Seconds, Watt

RUNNING = ("price", "node_power", "pue", "grid")  # what it costs to run one
LARGEST = 2**21  # devices that a system may be let grow to
PARTITIONS = 8  # that a system may have
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

    def check(self) -> Iterator[Clash]:
        if self.op not in ALGORITHMS:
            hint = suggest(self.op, ALGORITHMS, "known")
            yield Clash("op", f"no operation is called `{self.op}`", hint)
        elif self.algorithm.partition(":")[0] not in (known := ALGORITHMS[self.op]):
            what = f"no algorithm of {self.op} is called `{self.algorithm}`"
            yield Clash("algorithm", what, suggest(self.algorithm, known, "known"))


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

    def check(self) -> Iterator[Clash]:
        factors = {f"bandwidth.{name}": factor for name, factor in self.bandwidth.items()}
        for name, factor in {**factors, "tree": self.tree, "few": self.few}.items():
            if not factor:
                yield Clash(name, f"a factor `{name}` of 0 leaves no bandwidth", "more than 0")


@dataclass(frozen=True, slots=True)
class Collectives:
    """Calibrated entries that several systems share: the same nodes, the same software."""

    name: str
    collectives: tuple[Calibrated, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """Some nodes of a system: of another kind than the rest, or slower than they should be."""

    name: str
    system: System = field(metadata={"named": True})
    nodes: Count
    # times as long as its devices take by their spec: a clock that is held down, a bad board
    slower: Annotated[float, Between(0.1, 100)] = 1.0
    source: str = ""

    @property
    def devices(self) -> int:
        return self.nodes * self.system.node


@dataclass(frozen=True, slots=True)
class Joint:
    """What joins partitions that have a network each: so many links of each into one switch."""

    bandwidth: BytesPerSecond  # of one link, one direction
    latency: Seconds
    source: str
    ports: Count = 1  # of each partition


@dataclass(frozen=True, eq=False)
class Region:
    """A partition's ranks where several networks are one: the devices that all ranks have there."""

    name: str
    devices: int
    slots: tuple[int, ...]  # of all ranks, as its machine numbers them
    system: System | None  # its machine; nothing of the one that counts all as its own


@dataclass(frozen=True)
class System:
    """A cluster of devices, joined level by level, innermost first.

    They are all alike, but for `partitions`: of these the first says `device` and `levels`, where
    one kind has to stand for all.
    """

    name: str
    device: Device = field(metadata={"named": True, "or": "partitions"})
    levels: tuple[Level, ...] = field(metadata={"or": "partitions"})
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
    # levels with what they were measured to give by nodes, or as their sheets say
    network: Literal["measured", "sheet"] = "measured"
    # the levels that `collectives` were fitted on: those of the file, also of a machine supposed
    calibrated_on: tuple[Level, ...] = field(default=(), repr=False, metadata={"hidden": True})
    nodes: str = ""  # names of its nodes in the order of their numbers: `rack[1-8]-[1-16]`
    partitions: tuple[Partition, ...] = ()  # in the order that ranks fill them if nobody says it
    joint: Joint | None = None  # of partitions of several systems; of one they share its network
    # where a job's ranks sit, and the system without them; else rank r is device r
    seats: Seats | None = field(default=None, repr=False, metadata={"hidden": True})
    whole: System | None = field(default=None, repr=False, metadata={"hidden": True})
    # unlike partitions whose networks are one with this one, among them its own
    regions: tuple[Region, ...] = field(default=(), repr=False, metadata={"hidden": True})

    def __post_init__(self) -> None:
        levels = tuple(linked(self.levels))
        if self.network == "sheet":
            levels = tuple(replace(level, by_nodes=()) for level in levels)
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
        if self.partitions:
            return sum(one.devices for one in self.partitions)
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
        """Names of its nodes in the order of their numbers; nothing where nobody says them.

        Those of the hosts of a graph whose hosts are nodes.
        """
        if self.nodes:
            return hostlist.names(self.nodes)
        for i, level in enumerate(self.levels):
            unit = self.levels[i - 1].devices if i else 1
            if level.graph is not None and unit == self.per_host and level is self.levels[-1]:
                return level.graph.hosts
        return ()

    def changed(self, change: Callable[[System], System]) -> System:
        """The machine with a change made to it, and to the system of each of its partitions."""
        found = change(self)
        if not self.partitions:
            return found
        each = {one.system: change(one.system) for one in self.partitions}
        partitions = tuple(replace(one, system=each[one.system]) for one in self.partitions)
        return replace(found, partitions=partitions)

    def need_alike(self, what: str) -> None:
        """Refuse what is told of devices that are all alike alone."""
        if self.partitions:
            hint = "`oracle estimate` prices it; or name the system of one partition"
            said = f"{what} is not told across partitions of unlike devices"
            raise refusal(self.name, said, hint)

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
        if self.partitions:
            raise refusal("options", f"{what} in its partitions", "more `nodes` of one of them")
        if devices > LARGEST:
            raise refusal("options", what, f"no system grows beyond {LARGEST:,} devices")
        last = self.levels[-1]
        if last.graph is not None:
            what = f"{what}, and `{last.name}` has a graph that says which"
            raise refusal("options", what, f"a graph of {devices} devices")
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
        return replace(self, levels=self.calibrated_on, regions=())

    @property
    def inside(self) -> int:
        """How many levels lie inside a node: those below the first that is a network."""
        links = [level.link for level in self.levels]
        return links.index("network") if "network" in links else len(links)

    @property
    def node(self) -> int:
        """Devices that share a node and its network ports; 1 where each is a node of its own."""
        return self.levels[self.inside - 1].devices if self.inside else 1

    @property
    def per_host(self) -> int:
        """Devices of one host, which a scheduler gives: of a node, unless it has several hosts."""
        inner = self.levels[self.inside - 1] if self.inside else None
        return self.node // (inner.hosts or 1) if inner else self.node

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
        for i, level in enumerate(self.levels):
            if level.reduces in REDUCES and level.link != REDUCES[level.reduces]:
                what = f"`{level.name}` is of {level.link}, where switches reduce otherwise"
                yield Clash(f"levels.{i}.reduces", what, f"for links of {REDUCES[level.reduces]}")
        for i, level in enumerate(self.levels[self.inside :], self.inside):
            if level.link != "network":
                what = f"`{level.name}` lies above a network, so it is one"
                yield Clash(f"levels.{i}.link", what, "network, or nothing")
        for i, level in enumerate(self.levels[: self.inside]):
            if level.by_nodes:
                what = f"`{level.name}` lies inside a node, so no message there spans several"
                yield Clash(f"levels.{i}.by_nodes", what, "at a level between nodes")
        for i, level in enumerate(self.levels[self.inside :], self.inside):
            for j, point in enumerate(level.by_nodes):
                if point.nodes * self.node > level.devices:
                    joined = level.devices // self.node
                    what = f"{point.nodes} nodes, but `{level.name}` joins {joined}"
                    yield Clash(f"levels.{i}.by_nodes.{j}.nodes", what, "as many or fewer")
        if self.nodes and (clash := self._misnamed()):
            yield clash
        yield from self._parted()
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

    def _parted(self) -> Iterator[Clash]:
        """What is wrong with its partitions."""
        several = len({one.system.name for one in self.partitions}) > 1
        if several and self.joint is None:
            yield Clash("partitions", "several systems, and nobody says what joins them",
                        "joint: {bandwidth: …, latency: …, source: …}")  # fmt: skip
        if self.joint is not None and not several:
            yield Clash("joint", "partitions of one system share its network", "leave it out")
        if len(self.partitions) == 1:
            what = f"one partition is all of {self.partitions[0].system.name}"
            yield Clash("partitions", what, "two or more, or the system itself")
        if len(self.partitions) > PARTITIONS:
            yield Clash("partitions", f"{len(self.partitions)} partitions", f"up to {PARTITIONS}")
        names = [one.name for one in self.partitions]
        for i, one in enumerate(self.partitions):
            if one.name in names[:i]:
                what = f"two partitions are called `{one.name}`"
                yield Clash(f"partitions.{i}.name", what, "names tell them apart")
            if one.system.partitions:
                what = f"{one.system.name} has partitions itself"
                yield Clash(f"partitions.{i}.system", what, "list those here")
            alike = [k for k in self.partitions if k.system.name == one.system.name]
            if sum(k.devices for k in alike) > one.system.devices:
                nodes = sum(k.nodes for k in alike)
                what = (
                    f"{nodes} nodes of {one.system.name}, which has "
                    f"{one.system.devices // one.system.node}"
                )
                yield Clash(f"partitions.{i}.nodes", what, "fewer")

    def _misnamed(self) -> Clash | None:
        """What is wrong with the names of its nodes."""
        try:
            known = len(hostlist.names(self.nodes))
        except ValueError as error:
            what, _, hint = str(error).partition("; ")
            return Clash("nodes", what, hint)
        if known != (count := -(-self.devices // self.per_host)):
            return Clash("nodes", f"{known} names for {count} nodes", "one for each, in order")
        return None

"""What a user writes down: data set, device and system, each one YAML file, one frozen object.

A system says what a device is, how devices are joined level by level, and what was calibrated
on it. Datasheet values and calibrated values stand beside each other, each with its source.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from oracle.document import Fault, Node, Place, SpecError, from_data, load, read_text, suggest
from oracle.schema import Between, Clash, Count, Fraction, Ratio, read
from oracle.units import Bytes, BytesPerSecond, Flop, FlopPerSecond, Price, Seconds

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
FAMILIES = ("gemm", "conv", "winograd", "direct", "attention", "stream")
PARTS = ("forward", "data", "weight", "backward")
ORIGINS = ("measured", "fitted", "datasheet", "assumed")
LINKS = ("nvlink", "pcie", "network")  # what joins a level; the first network leaves the node


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set: how many samples, and how large one is."""

    name: str
    samples: Count
    source: str
    sample: tuple[Count, ...] = ()  # channels, then extents
    size: Bytes | None = None  # on disk, all of it
    files: Count | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """How one family of kernels uses a device: a few numbers, their origin and their reach.

    `oracle.compute` has the equation; a fit writes one for each family, precision and part.
    """

    family: str  # "gemm", "conv", "winograd", "direct", "attention", "stream"
    source: str
    precision: str = ""  # "" for any
    part: str = ""  # "" for any; else "forward", "data", "weight", "backward"
    start: Seconds = 3e-6  # on the device, of one kernel
    sustained: Fraction = 0.8  # of the peak, reached by a large kernel
    traffic: Fraction = 0.8  # of the memory bandwidth, likewise
    tile: Ratio = 32.0  # rows and columns that a kernel computes at least
    prologue: Ratio = 64.0  # steps of the inner loop lost to its start and end
    ramp: Ratio = 0.05  # waves of tiles (128² a processor) that any kernel costs beyond its own
    granule: Ratio = 1.0  # channels that a convolution's inner loop takes at least
    zeros: Ratio = 0.0  # taps that a strided data gradient multiplies by zeros
    waves: bool = False  # whole waves of whole tiles show; `tile` is then what a border costs
    origin: str = "fitted"
    reach: tuple[Flop, ...] = ()  # of the smallest and of the largest kernel measured
    uncertainty: Ratio = 0.2  # relative, 1σ, of one kernel

    def check(self) -> Iterator[Clash]:
        for name, known in (("family", FAMILIES), ("origin", ORIGINS), ("part", PARTS)):
            value = getattr(self, name)
            if value and value not in known:
                yield Clash(name, f"unknown {name} `{value}`", suggest(value, known, "known"))


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator: its datasheet, and beside it what was calibrated."""

    name: str
    memory: Bytes
    memory_bandwidth: BytesPerSecond
    peak: dict[str, FlopPerSecond]  # dense, by precision
    source: str
    launch: Seconds = 5e-6  # host-side cost of one kernel
    processors: Count = 100  # SMs, cores: what a kernel's tiles are dealt to
    cache: Bytes = 6e6
    reserve: Bytes = 1.2e9  # context, framework and libraries, before the first tensor
    price: Price | None = None
    title: str = ""
    kernels: tuple[Curve, ...] = ()  # calibrated; beside the datasheet, never over it
    # of the peak rate, what matrix units keep up under the power that training is granted
    loaded: Annotated[float, Between(0.1, 1)] = 1.0
    variation: Annotated[float, Between(0, 0.2)] = 0.0  # 1σ of speed from one device to the next

    def check(self) -> Iterator[Clash]:
        for key in self.peak:
            if key not in PRECISIONS:
                yield Clash("peak", f"unknown precision `{key}`", suggest(key, PRECISIONS, "known"))
        if not self.peak:
            yield Clash("peak", "a device needs a peak for at least one precision", "fp32: …")


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the network: how the units below are joined, and at what α and 1/β."""

    name: str
    devices: Count  # devices joined at this level in all
    bandwidth: BytesPerSecond  # one port, one direction
    latency: Seconds  # α of a message whose route turns here
    source: str
    kind: str = "switch"  # a key of topology.KINDS
    link: str = ""  # of LINKS; by the kind and the place where the file is silent: `linked`
    ports: Ratio | None = None  # of each unit below into this level; None: its inner ports
    duplex: str = "full"
    oversubscription: Annotated[float, Between(1, 1000)] = 1.0
    shape: tuple[Count, ...] = ()  # extents of a torus, arities of a tree, …; meaning by kind
    routing: str | None = None
    interference: tuple[Ratio, ...] = ()  # impact of other jobs: (p50, p99) factors
    # of the datasheet's bandwidth, what collectives were measured to get; None: never measured
    share: Annotated[float, Between(0.01, 1)] | None = None

    def check(self) -> Iterator[Clash]:
        if self.duplex not in ("full", "half"):
            yield Clash("duplex", f"duplex is `full` or `half`, not `{self.duplex}`")
        if self.link and self.link not in LINKS:
            yield Clash("link", f"unknown link `{self.link}`", suggest(self.link, LINKS, "known"))
        if self.ports is not None and self.ports <= 0:
            yield Clash("ports", "a unit without a port cannot be joined", "1 or more")


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
class Collectives:
    """Calibrated entries that several systems share: the same nodes, the same software."""

    name: str
    collectives: tuple[Calibrated, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Storage:
    """Where samples come from: shared file system, and what a node keeps."""

    bandwidth: BytesPerSecond  # of the shared file system, all clients together
    source: str
    local: BytesPerSecond | None = None  # of one node's own disk
    metadata: Ratio | None = None  # file operations per second


@dataclass(frozen=True)
class System:
    """A cluster of equal devices, joined level by level, innermost first."""

    name: str
    device: Device = field(metadata={"named": True})
    levels: tuple[Level, ...]
    source: str
    title: str = ""
    collectives: tuple[Calibrated, ...] = field(default=(), metadata={"named": True})
    storage: Storage | None = None
    software: str = ""  # what the calibration ran under
    dispatch: Seconds = 20e-6  # a framework's own work on the host for each kernel it launches

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(linked(self.levels)))

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def devices(self) -> int:
        return self.levels[-1].devices if self.levels else 1

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
        for i, level in enumerate(self.levels[self.inside :], self.inside):
            if level.link != "network":
                what = f"`{level.name}` lies above a network, so it is one"
                yield Clash(f"levels.{i}.link", what, "network, or nothing")
        names = [level.name for level in self.levels]
        for i, name in enumerate(names):
            if name in names[:i]:
                yield Clash(
                    f"levels.{i}.name", f"two levels are called `{name}`", "names tell them apart"
                )
        for i, entry in enumerate(self.collectives):
            if entry.level not in names:
                yield Clash(f"collectives.{i}.level", f"no level is called `{entry.level}`",
                            suggest(entry.level, names, "levels"))  # fmt: skip


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


S = TypeVar("S")
FOLDERS: dict[type, str] = {Dataset: "datasets", Device: "devices", System: "systems"}


def shelf() -> Path:
    """The folder of shipped specs: inside the wheel, or beside the package in a checkout."""
    inside = Path(__file__).parent / "shipped"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "specs"


def shipped(folder: str) -> dict[str, Path]:
    """Name -> file, of the specs that come with the package."""
    return {path.stem: path for path in sorted((shelf() / folder).glob("*.yaml"))}


def find(name: str, folder: str) -> Path:
    """The file of a shipped name, or of a path; a SpecError with the nearest name otherwise."""
    named = name == "-" or name.endswith((".yaml", ".yml", ".json"))
    if named or os.sep in name or os.path.isfile(name):
        return Path(name)
    known = shelf() / folder / f"{name}.yaml"
    if os.path.basename(name) == name and os.path.isfile(known):
        return known
    names = shipped(folder)
    hint = suggest(name, names, f"shipped {folder}")
    what = f"no shipped {folder[:-1]} is called `{name}`, and there is no such file"
    raise SpecError(name, [Fault("E110", what, Place(), hint)])


def document(
    what: str | os.PathLike[str] | Mapping[str, Any], folder: str
) -> tuple[Node, str, str]:
    """(tree, name for messages, text) of a shipped name, a path, or a dict of the same content."""
    if isinstance(what, Mapping):
        return from_data(what), str(what.get("name", folder[:-1])), ""
    path = find(os.fspath(what), folder)
    text = read_text(path)
    return load(text, str(path)), str(path), text


def _spec(kind: type[S], what: Any) -> S:
    if isinstance(what, kind):
        return what
    if isinstance(what, Mapping):
        return _build(kind, what)
    path = find(os.fspath(what), FOLDERS[kind])
    stamp = path.stat().st_mtime_ns if os.path.isfile(path) else 0
    found: S = _cached(cast(Any, kind), str(path), stamp)
    return found


@lru_cache(maxsize=64)
def _cached(kind: type, path: str, stamp: int) -> Any:
    return _build(kind, path)


def _build(kind: type[S], what: Any) -> S:
    node, name, text = document(what, FOLDERS[kind])
    _open_references(kind, node, name, text)
    return read(kind, node, name, text, label=kind.__name__.lower())


def _open_references(kind: type, node: Node, name: str, text: str) -> None:
    """`device: v100-sxm2-16gb` and `collectives: abci-nccl` stand for shipped files' content."""
    fitted = node.entries.get("collectives") if kind is System else None
    if fitted is not None and not fitted.empty and fitted.kind != "mapping":
        given = [fitted] if fitted.kind == "scalar" else fitted.items
        opened = Node(fitted.place, "sequence")
        for item in given:
            shared = item.kind == "scalar" and not item.empty
            inner = _referred(item, "collectives", name, text) if shared else None
            opened.items += inner.entries["collectives"].items if inner else [item]
        node.entries["collectives"] = opened
    entry = node.entries.get("device") if kind is System else None
    if entry is not None and entry.kind == "scalar" and not entry.empty:
        node.entries["device"] = _referred(entry, "devices", name, text)


def _referred(entry: Node, folder: str, name: str, text: str) -> Node:
    """The tree of the shipped file, or of the path, that a scalar names; sound by itself."""
    if entry.text not in shipped(folder) and not entry.text.endswith((".yaml", ".yml")):
        hint = suggest(entry.text, shipped(folder), f"shipped {folder}")
        what = f"no shipped {folder} file is called `{entry.text}`"
        raise SpecError(name, [Fault("E110", what, entry.place, hint, len(entry.text))], text)
    inner, where, body = document(entry.text, folder)
    read(Device if folder == "devices" else Collectives, inner, where, body, label=folder)
    return inner


def dataset(what: Any) -> Dataset:
    """A data set by shipped name, path, or dict."""
    return _spec(Dataset, what)


def system(what: Any) -> System:
    """A system by shipped name, path, or dict."""
    return _spec(System, what)


def device(what: Any) -> Device:
    """A device by shipped name, path, or dict."""
    return _spec(Device, what)


__all__ = ["Calibrated", "Dataset", "Device", "Fraction", "Level", "Storage", "System"]

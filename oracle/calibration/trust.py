"""Whether logs can be believed of a system: what contradicts it, each other, or themselves.

A concern that refuses says that the numbers are not this machine's, or not those of one run: it
should stop a calibration. One that warns may have an honest reason. Bounds are those of any
algorithm: the bytes that must leave a node or a device, whoever reduces them, against all of its
ports at datasheet speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from oracle.network.topology import KINDS
from oracle.readers.logs import PAIRWISE, Reading, Sample
from oracle.spec.system import Level, System

TOLERANCE = 0.05  # above the datasheet: rounding of the printed times, clocks, coding of lines
LARGE = 64 * 2**20  # bytes from which a library should come near the datasheet
FEW = 0.08  # share of the datasheet: at such sizes less is another machine or a wrong path
# faults that a log itself shows: whether its numbers can be used all the same
KINDS_OF_FAULT = {"truncated": "warn", "wrong results": "refuse", "counts": "refuse"}

_MODEL = re.compile(r"(?:[a-z]{1,2}\d{1,4}[a-z]{0,2}|[1-9]0[5-9]0|6000)")
_NOT_MODEL = re.compile(r"(?:sxm|hbm|ddr|gddr|pcie|gen|nv)\d?[a-z]?|\d+gb|x\d+|e\d")
_FORMS = ("pcie", "sxm")


@dataclass(frozen=True, slots=True)
class Concern:
    """A reason why a log is not to be believed, or not complete."""

    problem: str
    file: str  # the file
    line: int  # 0 where the concern is of the whole file
    severity: str  # "refuse" or "warn"
    advice: str = ""

    @property
    def words(self) -> str:
        """The concern in a sentence."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.problem}" + (f"; {self.advice}" if self.advice else "")


@dataclass(frozen=True, slots=True)
class Reached:
    """The largest share of the datasheet that the samples of a file reach at one level."""

    file: str
    line: int
    level: str
    beyond: bool  # the node
    rate: float  # B/s that must have left a node (or a device)
    capacity: float  # B/s of its ports
    reduced_rate: float  # B/s, if the switches reduce on the way
    largest: float  # bytes of the largest message there
    library: str

    @property
    def share(self) -> float:
        return self.rate / self.capacity


def concerns(readings: Sequence[Reading], system: System) -> list[Concern]:
    """All that contradicts the system, the other files, or the file itself; worst first."""
    concerns_found = [
        Concern(fault.what, reading.path, fault.line, KINDS_OF_FAULT[fault.kind], fault.advice)
        for reading in readings
        for fault in reading.faults
    ]
    for reading in readings:
        concerns_found += _devices(reading, system)
        concerns_found += _placement(reading, system)
    concerns_found += _machines(readings)
    for peak in reached(readings, system):
        concerns_found += _rate(peak, system)
    order = {"refuse": 0, "warn": 1}
    return sorted(dict.fromkeys(concerns_found), key=lambda concern: order[concern.severity])


# which device


def model(name: str) -> str:
    """The model in a device's name, in lower case; empty where none can be told.

    >>> model("NVIDIA A100-SXM4-40GB"), model("AMD Instinct MI250X"), model("NVIDIA GB200")
    ('a100', 'mi250x', 'gb200')
    >>> model("NVIDIA GeForce RTX 3090"), model("NVIDIA Graphics Device")
    ('3090', '')
    """
    words = re.split(r"[^a-z0-9]+", name.lower())
    named = (word for word in words if _MODEL.fullmatch(word) and not _NOT_MODEL.fullmatch(word))
    return next(named, "")


def _named(reading: Reading) -> list[tuple[str, int]]:
    """Names of devices in a reading, and their lines."""
    device = reading.machine.get("device")
    from_machine = [(str(device), 0)] if device and not reading.devices else []
    return [(name, line) for name, line in (*reading.devices, *from_machine) if model(name)]


def _devices(reading: Reading, system: System) -> Iterator[Concern]:
    """Concerns about another device than the system's, or several of them in one log."""
    named = _named(reading)
    expected = system.device.title or system.device.name
    expected_model = model(expected) or model(system.device.name)
    for name, line in named[1:]:
        if model(name) != model(named[0][0]):
            problem = f"{name} and {named[0][0]} in one log: two machines, or two runs"
            yield Concern(problem, reading.path, line, "refuse", "give each machine its own system")
            return
    if not named or not expected_model:
        return
    name, line = named[0]
    if model(name) != expected_model:
        problem = f"its device is {name}, and that of {system.name} is {expected}"
        advice = "name the system that was measured, or another log"
        yield Concern(problem, reading.path, line, "refuse", advice)
        return
    forms = [next((form for form in _FORMS if form in text.lower()), "")
             for text in (name, expected)]  # fmt: skip
    if all(forms) and forms[0] != forms[1]:
        problem = f"its device is {name}, and that of {system.name} is {expected}: other links?"
        yield Concern(problem, reading.path, line, "warn", "name the system that was measured")


def _machines(readings: Sequence[Reading]) -> Iterator[Concern]:
    """Concerns about two machines in one call: other devices, or hosts of other names."""
    named_readings = [(reading, *named[0]) for reading in readings if (named := _named(reading))]
    for reading, name, line in named_readings[1:]:
        first, first_name, _ = named_readings[0]
        if model(name) != model(first_name):
            problem = f"its device is {name}, that of {first.path} is {first_name}: two machines"
            yield Concern(problem, reading.path, line, "refuse", "calibrate each by itself")
    systems = [(reading, str(reading.machine["system"])) for reading in readings
               if reading.machine.get("system")]  # fmt: skip
    for reading, name in systems[1:]:
        if name != systems[0][1]:
            problem = f"it is of {name}, and {systems[0][0].path} is of {systems[0][1]}"
            yield Concern(problem, reading.path, 0, "refuse", "calibrate each by itself")
    families = [(reading, *reading.hosts[0]) for reading in readings if len(reading.hosts) == 1]
    for reading, name, line in families[1:]:
        if name != families[0][1]:
            problem = (f"its hosts are called {name}…, those of {families[0][0].path} "
                       f"{families[0][1]}…: two machines?")  # fmt: skip
            yield Concern(problem, reading.path, line, "warn", "if so, calibrate each by itself")


# how many ranks and nodes


def _placement(reading: Reading, system: System) -> Iterator[Concern]:
    """Concerns about ranks and nodes that the system does not hold, or that idle devices."""
    keys = set[str]()
    for sample in reading.samples:
        for concern in _placed(sample, reading.path, system):
            key = concern.problem
            if key not in keys:
                keys.add(key)
                yield concern


def _placed(sample: Sample, path: str, system: System) -> Iterator[Concern]:
    ranks, nodes, node = sample.ranks, sample.nodes, system.node
    line = _line(sample)
    if not ranks or not nodes or sample.memory == "host":
        return
    groups = sample.groups or 1
    layout = f"{ranks} ranks on {nodes} node{'s' * (nodes > 1)}"
    if ranks > nodes * node:
        problem = f"{layout}, and a node of {system.name} has {node} devices"
        advice = "say how many nodes it ran on (FILE:nodes=N), or name the system that was measured"
        yield Concern(problem, path, line, "refuse", advice)
    elif nodes * node > system.devices:
        problem = f"{layout}, and {system.name} has {system.devices} devices in all"
        yield Concern(problem, path, line, "refuse", "name the system that was measured")
    elif sample.operation in PAIRWISE:
        return
    elif nodes > ranks or ranks % nodes:
        problem = f"{layout}: they are not the same number on each"
        yield Concern(problem, path, line, "refuse", "say FILE:nodes=N,ranks=P as it ran")
    elif nodes > 1 and ranks * groups < nodes * node:
        idle = node - ranks * groups // nodes
        problem = f"{layout} leave {idle} of {node} devices of a node idle"
        advice = "if all were used, say FILE:nodes=N as it ran, or the system that was measured"
        yield Concern(problem, path, line, "warn", advice)


# how fast


def reached(readings: Iterable[Reading], system: System) -> list[Reached]:
    """What share of the datasheet each file's samples reach, inside a node and beyond it."""
    fastest: list[Reached] = []
    for reading in readings:
        best: dict[tuple[bool, str], Reached] = {}
        largest: dict[tuple[bool, str], float] = {}
        for sample in reading.samples:
            rate = _reach(sample, reading.path, system)
            if rate is None:
                continue
            key = rate.beyond, rate.library
            largest[key] = max(largest.get(key, 0.0), sample.nbytes)
            if key not in best or rate.share > best[key].share:
                best[key] = rate
        fastest += [replace(rate, largest=largest[key]) for key, rate in best.items()]
    return fastest


def _reach(sample: Sample, path: str, system: System) -> Reached | None:
    """The rate of a sample over the ports that it must use, where the log tells which."""
    ranks, nodes, inside = sample.ranks, sample.nodes, system.inside
    if not ranks or ranks < 2 or sample.per_rank or sample.nbytes <= 0:
        return None
    if nodes is None:
        if sample.operation in PAIRWISE:
            return _pair(sample, path, system)
        nodes = -(-ranks // system.node)
    beyond = nodes > 1
    if not beyond and (sample.memory == "host" or not inside):
        return None  # not over the devices' links
    if (beyond and inside >= len(system.levels)) or ranks % nodes:
        return None
    levels = system.levels[inside:] if beyond else system.levels[:inside]
    plain, reduced = bound(sample, nodes if beyond else ranks, ranks // nodes if beyond else 1)
    seconds = sample.seconds
    return Reached(path, _line(sample), levels[0].name, beyond, plain / seconds,
                   capacity(levels), reduced / seconds, sample.nbytes, sample.library)  # fmt: skip


def _pair(sample: Sample, path: str, system: System) -> Reached | None:
    """The rate of a pair that may be in one node or in two, over the faster of the two ways."""
    ways = [levels for levels in (system.levels[: system.inside], system.levels[system.inside :])
            if levels]  # fmt: skip
    if sample.memory != "device" and system.inside:
        return None  # within a node it uses no link
    levels = max(ways, key=capacity)
    rate = sample.nbytes / sample.seconds
    return Reached(path, _line(sample), levels[0].name, levels[0].link == "network", rate,
                   capacity(levels), rate, sample.nbytes, sample.library)  # fmt: skip


def bound(sample: Sample, units: int, inner: int) -> tuple[float, float]:
    """Bytes that must leave or enter each of `units` of `inner` ranks, whatever the algorithm.

    The second is what is left if switches reduce on the way [graham2016].
    """
    size, part = sample.nbytes, (units - 1) / units
    concurrent = sample.groups or 1
    groups = concurrent if inner == 1 and (sample.nodes or 1) > 1 else 1
    if sample.operation in PAIRWISE:
        size *= groups if (sample.ranks or 2) == 2 else 1
        return size, size
    if sample.operation == "allreduce":
        return 2 * part * size * groups, size * groups
    if sample.operation == "alltoall":
        exchanged = part * inner * size * groups
        return exchanged, exchanged
    if sample.operation in ("allgather", "reduce_scatter", "gather", "scatter"):
        return part * size * groups, part * size * groups
    if sample.operation in ("broadcast", "reduce", "halo"):
        return size * groups, size * groups
    return 0.0, 0.0


def capacity(levels: Sequence[Level]) -> float:
    """B/s out of one unit of the first of these levels, over all of its ports at once."""
    total, unit = 0.0, 1.0
    for level in levels:
        ports = level.ports or unit
        if level.kind in ("torus", "ring", "grid", "loop"):
            ports = max(ports, 2.0 * len(level.shape or (1,)))
        elif level.kind == "mesh" and level.ports is None:
            ports = max(1.0, level.devices - 1.0)
        elif level.kind == "rail" and level.ports is None:
            ports = max(ports, 1.0)
        total += ports * level.bandwidth
        unit = ports
        if KINDS[level.kind].has_ports:
            break
    return total


def _rate(peak: Reached, system: System) -> Iterator[Concern]:
    """Concerns about rates that ports cannot carry, or that are far too slow for them."""
    unit = "node" if peak.beyond else "device"
    limit = peak.capacity * (1 + TOLERANCE)
    rates = (f"{peak.rate / 1e9:.4g} GB/s left each {unit}, whose ports at `{peak.level}` "
             f"carry {peak.capacity / 1e9:.4g} GB/s")  # fmt: skip
    if peak.reduced_rate > limit:
        advice = "another machine, another number of nodes, or a spec with too few ports"
        yield Concern(f"{rates}: no algorithm does that", peak.file, peak.line, "refuse", advice)
    elif peak.rate > limit and not (_switches_reduce(system) and not peak.beyond):
        advice = "if they do not: another machine, or another number of nodes"
        problem = f"{rates}: only switches that reduce on the way get so far"
        yield Concern(problem, peak.file, peak.line, "warn", advice)
    elif peak.library == "nccl" and peak.largest >= LARGE and peak.share < FEW:
        problem = f"{rates}: {peak.share:.0%} of the datasheet is too little for this machine"
        advice = "another machine, or a path through the host: see NCCL_DEBUG=INFO"
        yield Concern(problem, peak.file, peak.line, "warn", advice)


def _switches_reduce(system: System) -> bool:
    """Whether the switches of a node add up on the way: NVLink SHARP, since Hopper."""
    level = system.levels[0]
    newer = system.device.generation in ("hopper", "blackwell")
    return newer and level.kind == "switch" and level.link == "nvlink"


def _line(sample: Sample) -> int:
    digits = sample.where.rpartition(":")[2]
    return int(digits) if digits.isdecimal() else 0

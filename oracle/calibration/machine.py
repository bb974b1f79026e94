"""Makes a device and a system of what `oracle measure machine` measured.

Peaks and the memory's bandwidth are the fastest that was seen, not a datasheet's: curves are shares
of them. What nobody measured is a default, and the file says that it is assumed.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.calibration import kernels
from oracle.calibration.kernels import KernelFit
from oracle.executor.measure.hardware import host_class
from oracle.readers.kernels import SHAPES, Kernel
from oracle.readers.logs import InputError, Sample, nvidia_smi_topo
from oracle.spec.device import Device
from oracle.spec.schema import to_data
from oracle.spec.units import show

TOOL = "oracle measure machine"
LAUNCH = 5e-6  # the driver's share of a launch; the rest is the framework's
RESERVE = {"cuda": 1.2e9, "cpu": 0.5e9}
STREAMED = 2**20  # bytes from which a stream tells the speed of memory
LATE = 1.1  # factor over the middle rank from which a rank is ill
STILL = 1e-6, 20e9  # α and bandwidth of a level that joins one device: nothing is sent


@dataclass(frozen=True)
class Machine:
    """What the records of all ranks come to."""

    facts: Mapping[str, Any]  # of rank 0
    date: str
    kernels: tuple[Kernel, ...]
    unmeasured: tuple[str, ...]  # kernels that the library refused, and why
    rate: float  # FLOP/s of the fastest rank's square products in 32 bits
    bandwidth: float  # B/s of the memory for one rank, all ranks at once
    dispatch: float  # seconds of the host for a kernel
    disk: Mapping[str, Any]
    slowest: float = 1.0  # how many times the middle rank's time the slowest takes, if above `LATE`

    @property
    def source(self) -> str:
        """The source that every measured number states."""
        facts = self.facts
        threads = f"{facts['threads']} thread" + "s" * (facts["threads"] > 1)
        threads_words = "" if facts["backend"] == "nccl" else f", {threads} a rank"
        late = f"; at the pace of the slowest rank, {self.slowest:.2f} times the middle one's"
        machine_words = f"{host_class(facts['hardware'])}; torch {facts['torch']}{threads_words}"
        return f"measured by {TOOL}, {self.date}, {machine_words}{late if self.slowest > 1 else ''}"

    @property
    def name(self) -> str:
        words = re.findall(r"[a-z0-9]+", host_class(self.facts["hardware"]).lower())
        return "-".join(words)[:48].strip("-")


def machine(records: Iterable[Mapping[str, Any]]) -> Machine:
    """Join the records of all ranks: a kernel takes what the middle rank says.

    Where one rank takes much longer over all kernels, its pace counts: all others wait for it.
    """
    by_key = {record["key"]: record["ranks"] for record in records}
    first = by_key["facts"][0]
    host = host_class(first["facts"]["hardware"])
    timed: list[Kernel] = []
    paces: list[list[float]] = []  # of every rank, by kernel
    refused = []
    for key, ranks in by_key.items():
        if not key.startswith("kernel "):
            continue
        if any(rank["why"] for rank in ranks):
            refused.append(f"{key}: {next(rank['why'] for rank in ranks if rank['why'])}")
            continue
        kernel = ranks[0]
        # what others do meanwhile slows a step as it does a kernel: so the middle, not the fastest
        medians = [statistics.median(rank["each"]) for rank in ranks]
        middle = statistics.median(medians)
        paces.append([seconds / middle for seconds in medians])
        shape, family = tuple(map(float, kernel["shape"])), kernel["family"]
        assert len(shape) == len(SHAPES[family])
        line = f"kernels.csv:{len(timed) + 2}"
        timed.append(Kernel(family, kernel["precision"], shape, middle, kernel["part"], host, line))
    pace = max(map(statistics.median, zip(*paces, strict=True)), default=1.0)
    slowest = pace if pace > LATE else 1.0
    timed = [replace(kernel, seconds=kernel.seconds * slowest) for kernel in timed]
    disk_records = by_key.get("disk", [])
    read = [rank for rank in disk_records if rank["rate"]]
    disk = {"rates": [rank["rate"] for rank in read],
            "written": [rank["written"] for rank in read if rank.get("written")],
            "bytes": min((rank["bytes"] for rank in read), default=0),
            "file_system": read[0]["file_system"] if read else "",
            "why": next((rank["why"] for rank in disk_records if rank["why"]), "")}  # fmt: skip
    probe = by_key.get("probe", [])
    return Machine(
        first["facts"], first["date"], tuple(timed), tuple(refused),
        max((rank["rate"] for rank in probe), default=0.0),
        statistics.median(rank["bandwidth"] for rank in probe) if probe else 0.0,
        statistics.median(rank["seconds"] for rank in by_key["host"]) if "host" in by_key else 0.0,
        disk, slowest,
    )  # fmt: skip


def peaks(timed: Sequence[Kernel]) -> dict[str, float]:
    """The fastest product or convolution of each precision, FLOP/s."""
    fastest: dict[str, float] = {}
    for kernel in timed:
        if kernel.family in ("gemm", "conv", "conv3d"):
            work = float(kernels.size(kernel.family, np.array(kernel.shape)[:, None])[0])
            rate = work / kernel.seconds
            fastest[kernel.precision] = max(fastest.get(kernel.precision, 0.0), rate)
    return fastest


def device(measured: Machine) -> tuple[Device, KernelFit]:
    """The device of one rank with its curves, and how well they do on kernels held out."""
    facts, hardware = measured.facts, measured.facts["hardware"]
    kind = "cuda" if facts["backend"] == "nccl" else "cpu"
    streams = [kernel.shape[0] / kernel.seconds for kernel in measured.kernels
               if kernel.family == "stream" and kernel.shape[0] >= STREAMED]  # fmt: skip
    host = host_class(hardware)
    title = host if kind == "cpu" else hardware["gpu"]
    if kind == "cpu" and facts["ranks_per_node"] > 1:
        title = f"One of {facts['ranks_per_node']} ranks on {host}"
    source = (
        f"{measured.source}: memory_bandwidth by the fastest stream of a megabyte or more, "
        f"peak by the fastest product or convolution, all ranks at work; memory and processors "
        f"as the system says; "
        f"assumed: reserve, and of {show(measured.dispatch, 's')} that the host takes for a "
        f"kernel, launch"
    )
    bare = Device(
        name=measured.name, title=title,
        memory=facts.get("memory") or hardware["memory"] / facts["ranks_per_node"],
        memory_bandwidth=max([measured.bandwidth, *streams]),
        peak=peaks(measured.kernels) or {"fp32": measured.rate}, source=source,
        launch=min(LAUNCH, measured.dispatch) if measured.dispatch else LAUNCH,
        processors=facts.get("processors") or facts["threads"], reserve=RESERVE[kind],
        library=facts.get("library", ""), generation=facts.get("generation", ""),
        host=kind == "cpu",
    )  # fmt: skip
    fit = kernels.fit(measured.kernels, bare, source=measured.source, everything=True)
    return replace(bare, kernels=fit.kernels), fit


def system(measured: Machine, samples: Sequence[Sample], topology: str = "") -> dict[str, Any]:
    """The system as its file says it; `device.yaml` beside it is its device."""
    facts = measured.facts
    title = host_class(facts["hardware"])
    data: dict[str, Any] = {"name": measured.name, "title": title, "device": "device.yaml",
                            "levels": levels(measured, samples, topology)}  # fmt: skip
    if measured.disk["rates"]:
        rates, kind = measured.disk["rates"], measured.disk["file_system"]
        size = show(measured.disk["bytes"], "B")
        data["storage"] = {
            "bandwidth": show(sum(rates), "B/s", 4),
            "local": {"read": show(min(rates), "B/s", 4), **_written(measured)},
            "source": f"{measured.source}: {size} written and read back on {kind}, by one rank of "
                      "every host at once; a shared file system may have more for more of them",
        }  # fmt: skip
    if measured.dispatch:
        data["dispatch"] = show(max(measured.dispatch - LAUNCH, 0.0), "s", 4)
    data["software"] = f"torch {facts['torch']}, {facts['backend']}"
    ports = ", ".join(_port(port) for port in facts["hardware"]["ports"]) or "none was found"
    basis = "levels as far as ranks were started"
    data["source"] = f"{measured.source}: {basis}; network ports that are up: {ports}"
    return data


def _written(measured: Machine) -> dict[str, str]:
    """What a node's own disks write a second, where that was measured."""
    rates = measured.disk.get("written")
    return {"write": show(min(rates), "B/s", 4)} if rates else {}


def _port(port: Mapping[str, Any]) -> str:
    speed = show(port["bandwidth"], "B/s") if "bandwidth" in port else "of unknown speed"
    return f"{port['kind']} {speed}"


def levels(
    measured: Machine, samples: Sequence[Sample], topology: str = ""
) -> list[dict[str, Any]]:
    """The levels of the system by messages to one neighbour: the node, then the network."""
    facts = measured.facts
    inside, ranks, nodes = facts["ranks_per_node"], facts["ranks"], facts["nodes"]
    gpu = facts["backend"] == "nccl"
    levels_found = []
    if inside > 1 or nodes == 1:
        link = "nvlink" if gpu and re.search(r"\bNV\d+\b", topology) else "pcie"
        within = [sample for sample in samples if sample.nodes == 1]
        mesh, links = linked(topology, inside)
        levels_found.append(
            {"name": "node" if inside > 1 else "host", "devices": inside, "link": link}
            | mesh | _speeds(measured, within, inside > 1, links)
        )  # fmt: skip
    if nodes > 1:
        between = [s for s in samples if (s.nodes or 1) > 1 and s.ranks == s.nodes]
        speeds = _speeds(measured, between, True)
        ports = _ports(between, inside)
        levels_found.append({"name": "network", "devices": ranks, "link": "network", "ports": ports}
                            | speeds)  # fmt: skip
    return levels_found


def linked(topology: str, devices: int) -> tuple[dict[str, Any], int]:
    """(kind, ports and wires of a mesh that the driver's matrix shows, links that a message has).

    Every device sends to the next, the last to the first: its links are those of the narrowest of
    these pairs. Where one of them has no link of its own, messages say nothing of a link's speed,
    and where a switch joins the devices they have all that a device has: nothing is said of either.
    """
    if not nvidia_smi_topo.recognises(topology):
        return {}, 1
    with suppress(InputError):
        node = next(iter(nvidia_smi_topo.parse(topology, "").levels), {})
        if (node.get("kind"), node.get("devices")) == ("mesh", devices):
            wires_per_pair = node["ports"] // (devices - 1)
            count = Counter(node.get("wires", ()))
            ring = [f"{k}-{k + 1}" for k in range(devices - 1)] + [f"0-{devices - 1}"]
            narrowest = min(count[pair] for pair in ring) if count else wires_per_pair
            if narrowest:
                wires = {"wires": [*node["wires"]]} if count else {}
                return {"kind": "mesh", "ports": node["ports"], **wires}, narrowest
    return {}, 1


def _speeds(
    measured: Machine, samples: Sequence[Sample], joined: bool, links: int = 1
) -> dict[str, Any]:
    """α and bandwidth of one port, by the smallest message and by the fastest.

    A message to a neighbour that went by several links at once has the rate of all of them.
    """
    alone = [sample for sample in samples if sample.operation == "sendrecv" and sample.groups == 1]
    if not alone:
        latency, rate = STILL
        why = "no message was timed" if joined else "one device: there is nothing to talk to"
        source = f"assumed: {why}"
    else:
        first = min(alone, key=lambda sample: sample.nbytes)
        latency = first.seconds
        rate = max(sample.nbytes / sample.seconds for sample in alone) / links
        source = (f"{measured.source}: latency by {show(first.nbytes, 'B')} to a neighbour, "
                  "bandwidth by the fastest such message")  # fmt: skip
        if links > 1:
            source += f", over {links} links at once by nvidia-smi topo -m"
    return {"bandwidth": show(rate, "B/s", 4), "latency": show(latency, "s", 4), "source": source}


def _ports(samples: Sequence[Sample], inside: int) -> float:
    """How many ports a node has, by how much slower messages of all its ranks are."""
    alone, together = (
        {sample.nbytes: sample.seconds for sample in samples
         if sample.operation == "sendrecv" and (sample.groups or 1) == groups}
        for groups in (1, inside)
    )  # fmt: skip
    sizes = sorted(set(alone) & set(together))
    if inside == 1 or not sizes:
        return 1
    slower = together[sizes[-1]] / alone[sizes[-1]]
    return float(f"{min(max(inside / slower, 1.0), inside):.2g}")


def device_data(built: Device) -> dict[str, Any]:
    """The device as its file says it, curves in four digits."""
    data = to_data(built) | {"kernels": kernels.entries(built.kernels)}
    for key, unit in (("memory_bandwidth", "B/s"), ("launch", "s")):
        if key in data:
            data[key] = show(getattr(built, key), unit, 4)
    data["peak"] = {name: show(value, "FLOP/s", 4) for name, value in built.peak.items()}
    return data

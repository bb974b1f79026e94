"""Figures that FanStore and ParaDL print of reading, beside what `oracle.storage` says.

FanStore's clusters [zhang2018]: 24 nodes of four GTX 1080 Ti with FDR InfiniBand and 60 GB of a
node's disk, and nodes of two Xeon 8160 with Omni-Path and 144 GB. ResNet-50 reads one file a
sample; files a second were read off docs/figures/ResNet-50.png of TACC/FanStore@d03df82 to 3 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import oracle
from benchmarks.table import Table, figure, rounded
from oracle.spec import catalogue
from oracle.spec.storage import Disk, Host, SharedFiles
from oracle.storage import MODES, Machine, Question, Samples, Shuffle, file_system, loader
from oracle.storage.unknown import SHARED

IMAGENET = "imagenet"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One of FanStore's clusters and what was seen on it."""

    name: str
    system: dict[str, Any]  # whose steps say how compute scales
    devices: int  # of a node
    batch: int  # of a device
    ports: float  # B/s of a node, one way
    capacity: float  # bytes of a node's disk
    host: Host
    striped: dict[int, float]  # nodes: files a second
    shared: tuple[int, float]  # the same of the shared file system


GPU = Cluster(
    "GPU",
    {"name": "fanstore-gpu", "title": "Four GTX 1080 Ti a node, FDR", "device": "gtx-1080-ti",
     "source": "assumed", "levels": [
         {"name": "node", "devices": 4, "link": "pcie", "ports": 1, "bandwidth": "12 GB/s",
          "latency": "2.5 us", "source": "assumed"},
         {"name": "system", "devices": 96, "kind": "switch", "ports": 1, "bandwidth": "6.8 GB/s",
          "latency": "4 us", "source": "assumed"}]},
    4, 32, 6.8e9, 60e9, Host(128e9, 16, "assumed", bandwidth=1e11),
    {1: 550, 4: 1900, 8: 4050, 16: 7850}, (4, 1080),
)  # fmt: skip
CPU = Cluster(
    "CPU", {}, 1, 32, 12.5e9, 144e9, Host(192e9, 48, "assumed", bandwidth=1e11),
    {64: 1950, 128: 3950, 256: 7700, 512: 15150}, (64, 1700),
)  # fmt: skip


def machine(cluster: Cluster, shared: SharedFiles) -> Machine:
    """Its storage: a SATA disk a node, 0.5 GB/s."""
    disk = Disk(0.5e9, 0.4e9, cluster.capacity, 1e-4)
    return Machine(shared, disk, cluster.host, cluster.ports, 2e-6)


def files() -> SharedFiles:
    """A shared file system of which nothing is known but that it is one."""
    known = {name: value for name, (value, _) in SHARED.items()}
    return SharedFiles(100e9, 100e9, per_node=known["per_node"], streams=int(known["streams"]),
                       open=known["open"], metadata=known["metadata"])  # fmt: skip


def question(cluster: Cluster, nodes: int, shared: SharedFiles) -> Question:
    data = Samples.of(catalogue.dataset(IMAGENET))
    assert data is not None
    batch = float(nodes * cluster.devices * cluster.batch)
    return Question(machine(cluster, shared), data, batch, float(nodes), float(nodes),
                    shuffle=Shuffle(False))  # fmt: skip


def scaled(cluster: Cluster, quick: bool) -> dict[int, float]:
    """Files a second of compute, from its smallest scale: as steps grow by their exchange."""
    first, *_ = cluster.striped
    rates = {}
    for nodes in cluster.striped:
        rates[nodes] = float(nodes)
        if cluster.system and not quick:
            devices = nodes * cluster.devices
            step = oracle.estimate("resnet50", cluster.system, f"data:{devices}",
                                   batch=devices * cluster.batch, precision="fp32",
                                   reading="none")  # fmt: skip
            rates[nodes] = devices * cluster.batch / float(np.ravel(step.seconds)[0])
    return {nodes: cluster.striped[first] * rate / rates[first] for nodes, rate in rates.items()}


def saturates(cluster: Cluster, shared: SharedFiles) -> float:
    """Nodes from which on the shared file system holds compute up, as where both were seen."""
    seen, _ = cluster.shared
    each = cluster.striped[seen] / seen
    nodes = np.geomspace(1, 4096, 8193)
    one = question(cluster, 1, shared)
    asked = replace(one, batch=one.batch * nodes, nodes=nodes, groups=nodes)
    slow = asked.batch / MODES["shared"](asked).load < each * nodes
    return float(nodes[int(np.argmax(slow))]) if np.any(slow) else float("inf")


def fanstore(quick: bool = False) -> Table:
    """Files a second of both clusters, striped and from the shared file system."""
    lines, errors, bound = [], [], []
    for cluster in (GPU, CPU):
        first, *_ = cluster.striped
        for nodes, rate in scaled(cluster, quick).items():
            read = MODES["striped"](question(cluster, nodes, files()))
            batch = nodes * cluster.devices * cluster.batch
            step = loader.step(batch / rate, read.load)
            found, measured = batch / float(np.ravel(step)[0]), cluster.striped[nodes]
            bound.append(float(np.ravel(read.load)[0]) <= batch / rate)
            if nodes != first:
                errors.append(100 * (found / measured - 1))
            lines.append({
                "cluster": cluster.name, "nodes": nodes, "from": "striped",
                "files/s": measured, "predicted": rounded(found),
                "error %": rounded(100 * (found / measured - 1)) if nodes != first else "fitted",
                "could be read": rounded(batch / float(np.ravel(read.load)[0])),
                "fits": "yes" if np.all(read.possible) else "no",
            })  # fmt: skip
    nodes, rate = GPU.shared
    own = replace(files(), metadata=rate * file_system.OPERATIONS["files"])
    crossing, thumb = saturates(GPU, own), saturates(GPU, files())
    lines.append({"cluster": "GPU", "nodes": nodes, "from": "shared", "files/s": rate,
                  "predicted": "", "error %": "fitted"})  # fmt: skip
    return {
        "title": "FanStore: files a second of ResNet-50",
        "rows": lines,
        "figures": {
            "largest error, striped": figure(max(map(abs, errors)), "%", "≤ 15"),
            "compute-bound, striped": figure(100 * np.mean(bound), "% of scales", "100"),
            "shared saturates from": figure(crossing, "GPU nodes", "2 to 4"),
            "the same by rule of thumb": figure(thumb, "GPU nodes", "2 to 4"),
        },
        "notes": [
            "compute is fitted at the smallest scale of each cluster, its growth is that of steps"
            + (" without their exchange (--quick)" if quick else ""),
            "the shared file system's operations a second are fitted to its one figure on four "
            "nodes: by rule of thumb (45 k/s) nobody would have foreseen that it saturates",
            "140 GB do not fit on one node of 60 GB: what was read there was a part",
        ],
    }


def seeds(quick: bool = False) -> Table:
    """Figures that the papers print."""
    lines: list[dict[str, Any]] = []
    figures = {}

    def say(what: str, printed: Any, found: float, unit: str) -> None:
        lines.append({"what": what, "printed": printed, "found": rounded(found), "unit": unit})

    data = catalogue.dataset(IMAGENET)
    asked = question(CPU, 512, files())
    read = MODES["striped"](asked)
    assert data.size
    say("ImageNet on 512 nodes: a node's part", "", data.size / 512 / 1e6, "MB")
    say("  copied there once", "", float(np.ravel(read.once)[0]), "s")
    say("  files a second that could be read", "> 15,150",
        float(asked.batch) / float(np.ravel(read.load)[0]), "files/s")  # fmt: skip
    four = MODES["striped"](question(GPU, 16, files()))
    peak = 16 * GPU.devices * GPU.batch / float(np.ravel(four.load)[0])
    say("ResNet-50's share of what 16 GPU nodes could read", "7.8-9.5",
        100 * GPU.striped[16] / peak, "%")  # fmt: skip
    # listing 2,002 directories by 64 processes: 128 thousand stat and readdir
    storm = float(np.ravel(file_system.listing(files(), 64, data.files or 0, 2002))[0])
    operations = storm * (files().metadata or 0)
    say("a job of 64 processes lists ImageNet", "128 k", operations / 1e3, "k operations")
    figures["listing storm"] = figure(operations / 128e3, "of 128 k", "1")
    many = float(np.ravel(file_system.listing(files(), 2048, data.files or 0, 2002, look=True))[0])
    say("  2,048 processes that look at every file too", "", many / 3600, "h")
    # each of FanStore's 455 GB sets needs 8 nodes of 60 GB
    say("455 GB on nodes of 60 GB", 8, float(np.ceil(455 / 60)), "nodes")
    ratio, own = leader()
    say("ParaDL, CosmoFlow: a leader's reading by computation and exchange", 4, ratio, "times")
    if not quick:
        say("  with computation as predicted here", 4, own(), "times")
    figures["CosmoFlow, leader reads"] = figure(ratio, "times compute and exchange", "4")
    return {
        "title": "Figures of papers on reading",
        "rows": lines,
        "figures": figures,
        "notes": [
            "ParaDL's computation is its own profile, 2.108 s a sample on one V100, over four; "
            "what one read gets (0.4 GB/s) is a rule of thumb, good to a factor of two",
        ],
    }


def leader(profile: float = 2.108, parts: int = 4) -> tuple[float, Any]:
    """Reading by leaders over computation and exchange of CosmoFlow, on ABCI: ParaDL's runs."""
    nodes = 16.0
    system, data = catalogue.system("abci"), Samples.of(catalogue.dataset("cosmoflow"))
    assert data is not None
    host = Machine.of(system, 25e9, 4e-6)
    asked = Question(host, data, nodes, nodes, nodes, parts=float(parts), scatter=25e9)
    read = MODES["shared"](asked)
    seconds = float(np.ravel(np.asarray(read.load) + read.alone)[0])

    def by_steps() -> float:
        plan = f"data:{nodes:.0f} spatial:{parts}"
        step = oracle.estimate("cosmoflow-512", "abci", plan, batch=int(nodes), precision="fp32",
                               reading="none")  # fmt: skip
        return seconds / float(np.ravel(step.seconds)[0])

    return seconds / (profile / parts), by_steps

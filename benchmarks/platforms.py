"""The simulated platforms and collectives of a SimGrid reference table, in our own terms."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from oracle.network import topology
from oracle.network.collectives import Steps, named
from oracle.network.collectives.schedule import AllPairs, Pairs
from oracle.network.contention import Cost, RankGroups, schedule_cost
from oracle.network.contention.counting.asynchronous import played
from oracle.network.topology import Topology

ENVELOPE = 16  # bytes that SimGrid adds to every message
FULL = Path(__file__).parent / "data" / "simgrid" / "full.csv"  # run again: no lazy update
PLAYED = 20_000  # flows of a case that are played one by one

# (collective, algorithm) there -> the schedules here, one after the other
SCHEDULES: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("ring", "own"): (("allreduce", "ring"),),
    ("hd", "own"): (("allreduce", "halving_doubling"),),
    ("hdr", "own"): (("allreduce", "rabenseifner"),),
    ("shd", "own"): (("allreduce", "shifted_halving_doubling"),),
    ("ps", "own"): (("allreduce", "parameter_server"),),
    ("allreduce", "lr"): (("allreduce", "ring"),),
    ("allreduce", "ompi_ring_segmented"): (("allreduce", "ring"),),
    ("allreduce", "rab_rdb"): (("allreduce", "halving_doubling"),),
    ("allreduce", "rab"): (("allreduce", "halving_doubling"),),
    ("allreduce", "rab1+allgather:rdb"): (("allreduce", "rabenseifner"),),
    ("allreduce", "rdb"): (("allreduce", "recursive_doubling"),),
    ("allreduce", "redbcast+reduce:binomial+bcast:binomial_tree"): (("allreduce", "binomial"),),
    ("allgather", "ring"): (("allgather", "rotation"),),
    ("allgather", "rdb"): (("allgather", "recursive_doubling"),),
    ("allgather", "bruck"): (("allgather", "bruck"),),
    ("alltoall", "pair"): (("alltoall", "exchange"),),
    ("alltoall", "ring"): (("alltoall", "pairwise"),),
    ("alltoall", "bruck"): (("alltoall", "bruck"),),
    ("alltoall", "basic_linear"): (("alltoall", "scattered"),),
    ("bcast", "binomial_tree"): (("broadcast", "binomial"),),
    ("bcast", "scatter_LR_allgather"): (("broadcast", "scatter_ring"),),
    ("bcast", "scatter_rdb_allgather"): (("broadcast", "scatter_doubling"),),
    ("reduce", "binomial"): (("reduce", "binomial"),),
    ("reduce_scatter", "ompi_ring"): (("reduce_scatter", "ring"),),
    ("reduce_scatter", "ompi_basic_recursivehalving"): (
        ("reduce_scatter", "recursive_halving_far"),
    ),
}


@dataclass(frozen=True)
class Row:
    """One simulated case, and what we say of it."""

    platform: str
    collective: str
    algorithm: str
    layout: str
    groups: int
    ranks: int
    nbytes: int
    simulated: float
    predicted: float
    line: float  # start + per byte × bytes, as plans are priced

    @property
    def error(self) -> float:
        return self.predicted / self.simulated - 1

    @property
    def line_error(self) -> float:
        return self.line / self.simulated - 1


@dataclass(frozen=True)
class EnvelopedCost:
    """Cost of a schedule's data, and of as many bytes as it has messages."""

    data: Cost
    messages: Cost

    @classmethod
    def of(cls, net: Topology, groups: RankGroups, steps: list[Steps]) -> EnvelopedCost:
        one_byte_each = [replace(step, share=np.sign(step.share)) for step in steps]
        return cls(schedule_cost(net, groups, steps), schedule_cost(net, groups, one_byte_each))

    def seconds(self, nbytes: float) -> float:
        """Return the seconds by the line over sizes that plans are priced by."""
        line = self.data.start + self.data.per_byte * nbytes
        return line + self.messages.per_byte * ENVELOPE


@cache
def platform(name: str, description: str, bandwidth: float, latency: float) -> Topology:
    """The topology of a platform: its shape by name (`flat_*`) or by description."""
    family, kind, rest = name.split("_", 2)
    numbers = [int(n) for n in re.findall(r"\d+", rest)]
    if family == "builtin":
        return _builtin(kind, numbers, description, bandwidth, latency)
    if kind == "xbar":
        return topology.crossbar(numbers[0], bandwidth, latency)
    if kind == "ft2":
        leaves, hosts, spines = numbers
        return topology.fat_tree((hosts, leaves), (1, spines), bandwidth, latency)
    if kind == "torus":
        return topology.torus(numbers, bandwidth, latency)
    if kind == "dfly":
        return topology.dragonfly(*numbers, bandwidth, latency)
    if kind == "dln":
        q, hosts, *longest = numbers
        return topology.loop(1 << q, hosts, bandwidth, latency, *longest)
    if kind == "gpu":
        count, devices, ports, leaf, spines = numbers
        return topology.nodes(count, devices, ports, 150e9, bandwidth, leaf, spines, latency)
    raise ValueError(f"no platform is called {name!r}")


def _builtin(
    kind: str, numbers: list[int], description: str, bandwidth: float, latency: float
) -> Topology:
    """SimGrid's own clusters: so many seconds a link, shares by round-trip time."""
    net = _cluster(kind, numbers, description, bandwidth, latency)
    net.round_trip = True
    return net


def _cluster(
    kind: str, numbers: list[int], description: str, bandwidth: float, latency: float
) -> Topology:
    words = [[int(n) for n in part.split(",")] for part in
             re.findall(r"\d+(?:,\d+)*", description.split("every link")[0])]  # fmt: skip
    if kind == "xbar":
        return topology.crossbar(numbers[0], bandwidth, 0.0, hop=latency)
    if kind.startswith("ft"):
        _, down, up, *parallel = words
        links = [u * k for u, k in zip(up, (parallel or [[1] * len(up)])[0], strict=True)]
        return topology.fat_tree(down, links, bandwidth, 0.0, hop=latency)
    if kind == "torus":
        return topology.torus(words[0], bandwidth, 0.0, hop=latency)
    if kind == "dfly":
        (groups, trunk), _, (routers, _), (hosts,) = words
        return topology.dragonfly(groups, routers, hosts, bandwidth, 0.0, hop=latency,
                                  routing="matched", trunk=trunk)  # fmt: skip
    raise ValueError(f"no cluster is called {kind!r}")


def schedule(collective: str, algorithm: str, p: int) -> list[Steps] | None:
    """The steps of a case among p ranks; None where the algorithm has no such p."""
    inner = 1
    if match := re.fullmatch(r"hier(par)?(\d+)", collective):
        inner = int(match[2])
        parts: Any = (("allreduce", "hierarchical" if match[1] else "leader"),)
    else:
        parts = SCHEDULES.get((collective, algorithm))
    if parts is None:
        return None
    runs = [named(op, name) for op, name in parts]
    if not all(run.fits(p, inner) for run in runs):
        return None
    return [steps for run in runs for steps in run.schedule(p, inner)]


@cache
def compared(path: Path, most_played: int = PLAYED) -> tuple[Row, ...]:
    """Return a prediction for every case of a table that we have a schedule for, worked out once.

    Where routes start unlike and share by round-trip time, messages are played at their size, if
    a case has no more than `most_played`.
    """
    return tuple(_rows(path, most_played))


def _rows(path: Path, most_played: int) -> Iterator[Row]:
    costs_by_case: dict[Any, Any] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ranks, count = int(row["ranks"]), int(row["groups"])
            p = ranks // count
            pattern = ((p, count if row["layout"] == "stride" else 1),)
            key = row["platform"], row["collective"], row["algorithm"], pattern
            steps = schedule(row["collective"], row["algorithm"], p)
            if steps is None:
                continue
            net = platform(row["platform"], row["platform_desc"],
                           float(row["link_bw_Bps"]), _alpha(row))  # fmt: skip
            groups, nbytes = RankGroups(pattern, ranks), int(row["bytes"])
            if key not in costs_by_case:
                costs_by_case[key] = EnvelopedCost.of(net, groups, steps)
            predicted = line = costs_by_case[key].seconds(nbytes)
            if net.round_trip and count * sum(_flows(step, p) for step in steps) <= most_played:
                predicted = played(net, groups, steps, nbytes=nbytes, envelope=ENVELOPE)
            case = row["platform"], row["collective"], row["algorithm"], row["layout"]
            real = _rerun_seconds().get(
                (*case, row["groups"], row["bytes"]), row["seconds_simulated"]
            )
            yield Row(*case, count, ranks, nbytes, float(real), predicted, line)


def _flows(steps: Steps, p: int) -> float:
    """Messages of one group."""
    if isinstance(steps, Pairs):
        return len(steps.share) * float(steps.times[0])
    return p * (p - 1 if isinstance(steps, AllPairs) else 1) * float(steps.times.sum())


@cache
def _rerun_seconds() -> dict[tuple[str, ...], str]:
    """Seconds of the cases that were run again."""
    with FULL.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    return {tuple(row[:-1]): row[-1] for row in rows}


def _alpha(row: dict[str, str]) -> float:
    text = row["latency_s"]
    return float(text) if text and math.isfinite(float(text)) else 1e-6

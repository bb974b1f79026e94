"""New kinds of network against an exact max-min simulation of every message."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.fluid import Sent, simulate
from benchmarks.table import Table, figure, rounded
from oracle.network.collectives import Steps, named
from oracle.network.collectives.schedule import flows
from oracle.network.contention import RankGroups, schedule_cost
from oracle.network.topology import Topology
from oracle.spec.graphs import Graph
from oracle.spec.level import Level

BANDWIDTH = 12.5e9
OPERATIONS = (("allreduce", "ring"), ("allreduce", "halving_doubling"), ("alltoall", "pairwise"),
              ("alltoall", "scattered"), ("allgather", "ring"))  # fmt: skip
MESSAGE = 64e6
SIZES = (16_384, 262_144, 4_194_304)  # bytes that SimGrid is asked for
ALL_AT_ONCE = 4096  # messages in one step that SimGrid is asked for at most


class Case(NamedTuple):
    """One operation of so many groups side by side, each rank's message of so many bytes."""

    platform: str
    op: str
    algorithm: str
    groups: int
    nbytes: float

    def groups_of(self, devices: int) -> RankGroups:
        """Return the groups, dealt round the ranks."""
        return RankGroups(((devices // self.groups, self.groups),), devices)

    def steps(self, devices: int) -> list[Steps]:
        return named(self.op, self.algorithm).schedule(devices // self.groups)


def level(name: str, devices: int, kind: str, **more: object) -> Level:
    """One level of made-up bandwidth."""
    return Level(name, devices, BANDWIDTH, 1e-6, "made up", kind, **more)  # type: ignore[arg-type]


def irregular(hosts: int, seed: int) -> Graph:
    """Leaves of unlike sizes with unlike links up, and some between leaves."""
    dice, lines, left, leaf = random.Random(seed), [f"hosts n[0-{hosts - 1}]"], hosts, 0
    while left:
        size = min(left, dice.randrange(2, 7))
        lines += [f"n{hosts - left + k} leaf{leaf}" for k in range(size)]
        lines += [f"leaf{leaf} spine{s} {dice.choice([12.5, 25, 50])} GB/s"
                  for s in sorted(dice.sample(range(4), dice.randrange(1, 4)))]  # fmt: skip
        lines += [f"leaf{leaf} leaf{leaf - 1} 12.5 GB/s"] if leaf and dice.random() < 0.5 else []
        left, leaf = left - size, leaf + 1
    return Graph.of([*lines, *(f"spine{s} spine{s + 1} 50 GB/s" for s in range(3))])


def platforms() -> Iterator[tuple[str, list[Level]]]:
    """Yield twelve platforms that no other table has."""
    yield "three levels, 3:1 at the top", [
        level("leaf", 8, "switch"), level("pod", 32, "fat-tree", ports=8),
        level("core", 64, "fat-tree", ports=10.6667),
    ]  # fmt: skip
    yield "three levels, odd sizes", [
        level("leaf", 6, "switch"), level("pod", 30, "fat-tree", ports=3, routing="d-mod-k"),
        level("core", 60, "fat-tree", ports=7, routing="d-mod-k"),
    ]  # fmt: skip
    inner = level("node", 4, "switch", ports=8)
    yield "rail only", [inner, level("rails", 48, "rail-only", ports=4)]
    yield "two planes of leaf and spine", [
        inner, level("planes", 64, "multi-plane", ports=2, shape=(4,), oversubscription=2),
    ]  # fmt: skip
    yield "72 in a domain, scaled out", [
        level("domain", 72, "switch", ports=16),
        level("out", 144, "fat-tree", ports=72, link="network", routing="striped"),
    ]  # fmt: skip
    yield "HyperX 4 x 4, 4 hosts", [level("net", 64, "hyperx", shape=(4, 4, 4))]
    yield (
        "HyperX 3 x 3 x 3, adaptive",
        [level("net", 54, "hyperx", shape=(3, 3, 3, 2), routing="adaptive")],
    )
    yield "dragonfly+", [level("net", 64, "dragonfly+", shape=(4, 4, 4))]
    yield "Slim Fly, q = 5", [level("net", 50, "slim-fly", shape=(2, 5, 5, 1))]
    yield "twisted torus 4 x 8", [level("net", 32, "twisted-torus", shape=(4, 8))]
    yield "irregular, static", [level("net", 40, "graph", graph=irregular(40, 1))]
    yield (
        "irregular, adaptive",
        [level("net", 40, "graph", graph=irregular(40, 2), routing="adaptive")],
    )


def simulated() -> Iterator[tuple[str, Topology]]:
    """Yield the platforms whose flows take one way each, as SimGrid's do, and four more."""
    more = (
        ("irregular, by target", [level("net", 36, "graph", graph=irregular(36, 3),
                                        routing="d-mod-k")]),
        ("dragonfly+, ECMP", [level("net", 54, "dragonfly+", shape=(3, 3, 6), routing="ecmp")]),
        ("HyperX 3 x 3 x 3", [level("net", 54, "hyperx", shape=(3, 3, 3, 2))]),
        ("twisted torus 4 x 8, minimal", [level("net", 32, "twisted-torus", shape=(4, 8),
                                                routing="minimal")]),
    )  # fmt: skip
    for name, levels in (*platforms(), *more):
        net = Topology(levels, levels[-1].devices)
        if not net.spreads:
            yield name, net


def cases(name: str, net: Topology) -> Iterator[Case]:
    """Yield the cases of a platform that SimGrid simulates."""
    for op, algorithm in OPERATIONS:
        for groups in (1, 2):
            p = net.devices // groups
            if net.devices % groups or not named(op, algorithm).fits(p):
                continue
            if algorithm == "scattered" and net.devices * (p - 1) > ALL_AT_ONCE:
                continue
            for size in SIZES:
                yield Case(name, op, algorithm, groups, float(size))


def messages(net: Topology, case: Case) -> list[list[Sent]]:
    """Return every message of every group, step by step, round by round."""
    rounds: list[list[Sent]] = []
    groups = case.groups_of(net.devices)
    for source, target, share, times in flows(case.steps(net.devices), groups.p):
        ends = [groups.members(ranks, groups.bases()) for ranks in (source, target)]
        share = np.repeat(np.broadcast_to(share, source.shape), len(groups.bases()))
        route, _, part = net.spread_route(*ends)
        step = []
        for flow, (a, b) in enumerate(zip(*ends, strict=True)):
            links: dict[int, float] = {}
            for link, carried in zip(route[:, flow].tolist(), part.tolist(), strict=True):
                if link < net.links:
                    links[link] = links.get(link, 0.0) + carried
            step.append(Sent(int(a), int(b), float(share[flow]) * case.nbytes, links))
        rounds += [step] * max(1, round(times))
    return rounds


def compared(levels: list[Level], quick: bool) -> Iterator[tuple[str, int, float]]:
    """Yield (operation, groups, error) of each case on a platform."""
    devices = levels[-1].devices
    net = Topology(levels, devices)
    capacity = net.capacity[:-1]
    for op, name in OPERATIONS[: 3 if quick else None]:
        for groups in (1,) if quick else (1, 2):
            case = Case("", op, name, groups, MESSAGE)
            if not named(op, name).fits(devices // groups):
                continue
            cost = schedule_cost(net, case.groups_of(devices), case.steps(devices))
            real = simulate(capacity, messages(net, case))
            yield f"{op} {name}", groups, cost.per_byte * MESSAGE / real - 1


def table(quick: bool) -> Table:
    """Errors by platform."""
    rows, every = [], []
    for name, levels in platforms():
        cases = list(compared(levels, quick))
        errors = np.array([abs(error) for _, _, error in cases])
        op, groups, worst = max(cases, key=lambda case: abs(case[2]))
        every.append(errors)
        rows.append({
            "platform": name, "ranks": levels[-1].devices, "cases": len(cases),
            "median": rounded(np.median(errors)), "worst": rounded(errors.max()),
            "where": f"{op}, {groups} groups: {worst:+.2%}" if errors.max() > 1e-3 else "",
        })  # fmt: skip
    errors = np.concatenate(every)
    figures = {
        "median": figure(np.median(errors), "", "0"),
        "p99": figure(np.quantile(errors, 0.99), "", "≤ 0.01"),
        "worst": figure(errors.max(), "", "≤ 0.05"),
        "within_1_percent": figure((errors <= 0.01).mean(), "share", "0.99"),
    }
    return {"title": "New platforms against an exact max-min simulation, 64 MB", "rows": rows,
            "figures": figures}  # fmt: skip

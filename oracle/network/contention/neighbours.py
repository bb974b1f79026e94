"""Links that the exchanges of several jobs share, and how much slower each makes the others.

While two exchanges run at once, a link that both cross is shared by flow, max-min: an exchange
of n flows beside N others gets n/(n + N) of it, and more where the others leave more over:

    room = max(1 − Σ busy of the others, n / (n + N))
    slower = max over links of  own busy / room, 1 at least

`busy` is the part of an exchange's own time that it keeps a link at work. Others come and go:
with π the part of the time that they are in each state, an exchange takes 1 / Σ (π / slower).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from oracle.network.arrays import Floats
from oracle.network.contention.counting.flows import add_to_links, flows_of
from oracle.network.contention.counting.ring_sets import steps_of_line
from oracle.network.contention.groups import Pattern, closest_devices, seated
from oracle.network.topology import Topology, network_of
from oracle.spec.system import System

STATES = 4096  # of all other jobs together that are looked at


@dataclass(frozen=True, eq=False)
class Traffic:
    """What one exchange puts on each link: part of its time, and flows at a time."""

    busy: Floats
    flows: Floats


@dataclass(frozen=True, eq=False)
class Neighbour:
    """Another job: its exchanges, and the part of its time that each takes."""

    name: str
    active: tuple[float, ...]
    traffic: tuple[Traffic, ...]


@dataclass(frozen=True)
class Slowdown:
    """How many times as long an exchange takes beside others."""

    mean: float
    worst: float
    link: str = ""  # that they share, in words


def traffic(
    system: System, op: str, pattern: Pattern, devices: int, algorithm: str, reach: int
) -> Traffic:
    """Return the loads of an exchange by an algorithm on the network below `reach` devices."""
    network, groups = seated(system, pattern, devices, op)
    graph = network_of(network, max(reach, groups.reach))
    inner = groups.inner(closest_devices(network))
    sent, sent_by_flow, seconds = np.zeros(graph.links + 1), 0.0, 0.0
    for steps in steps_of_line(algorithm, op, graph, groups, inner):
        for flows in flows_of(graph, groups, steps):
            share = flows.share * np.repeat(flows.times, flows.per_step)
            load = np.zeros_like(sent)
            add_to_links(load, graph, flows, share)
            sent += load
            sent_by_flow += float(share.reshape(len(flows.times), -1).max(axis=1).sum())
            seconds += float((load * graph.seconds_per_byte).max())
    busy = sent * graph.seconds_per_byte / max(seconds, 1e-300)
    return Traffic(busy[:-1], sent[:-1] / max(sent_by_flow, 1e-300))


def slowdown(exchange: Traffic, jobs: Sequence[Neighbour], graph: Topology) -> Slowdown:
    """Return the mean and the worst slowdown over all states that other jobs may be in."""
    rate, worst, worst_link = 0.0, 1.0, -1
    for state in product(*(_states(exchange, job) for job in jobs)):
        chance = float(np.prod([part for part, _ in state]))
        slower, link = _slower(exchange, [running for _, running in state if running is not None])
        rate += chance / slower
        if slower > worst * (1 + 1e-12):
            worst, worst_link = slower, link
    return Slowdown(1 / rate, worst, graph.label(worst_link) if worst_link >= 0 else "")


def _states(exchange: Traffic, job: Neighbour) -> list[tuple[float, Traffic | None]]:
    """(part of the time, traffic on shared links) of a job; None for the rest of its time."""
    shared = [(part, traffic) for part, traffic in zip(job.active, job.traffic, strict=True)
              if bool(((exchange.busy > 0) & (traffic.busy > 0)).any())]  # fmt: skip
    total = sum(part for part, _ in shared)
    scale = min(1.0, 1 / total) if total else 1.0
    return [*((part * scale, traffic) for part, traffic in shared),
            (max(0.0, 1 - total * scale), None)]  # fmt: skip


def _slower(exchange: Traffic, running: Sequence[Traffic]) -> tuple[float, int]:
    """How many times as long an exchange takes while these run, and the link that sets it."""
    if not running:
        return 1.0, -1
    busy: Floats = np.sum([traffic.busy for traffic in running], axis=0)
    flows: Floats = np.sum([traffic.flows for traffic in running], axis=0)
    total = exchange.flows + flows
    fair = np.divide(exchange.flows, total, out=np.ones_like(total), where=total > 0)
    times = exchange.busy / np.maximum(np.maximum(1 - busy, fair), 1e-12)
    link = int(times.argmax())
    return max(1.0, float(times[link])), link

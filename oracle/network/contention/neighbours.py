"""Links that the exchanges of several jobs share, and how much slower each makes the others.

While two exchanges run at once, a link that both cross is shared by flow, max-min: an exchange
of n flows beside N others gets n/(n + N) of it, and more where the others leave more over:

    room = max(1 − Σ busy of the others, n / (n + N))
    slower = max over links of  own busy / room, 1 at least

`busy` is the part of an exchange's own time that it keeps a link at work. Others come and go:
with π the part of the time that they are in each state, an exchange takes 1 / Σ (π / slower).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from oracle.network.arrays import Floats
from oracle.network.collectives import menu, named
from oracle.network.contention.counting import PART
from oracle.network.contention.flows import flows_of
from oracle.network.contention.groups import Pattern, closest_devices, seated
from oracle.network.contention.ring_sets import laid_out
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
    """The loads of an exchange by an algorithm on the network below `reach` devices."""
    where, groups = seated(system, pattern, devices, op)
    graph = network_of(where, max(reach, groups.reach))
    sent, each = np.zeros(graph.links + 1), 0.0
    inner = groups.inner(closest_devices(where))
    name = algorithm.split("/")[0].split(" ")[0]
    fitting = {by.name: by for by in menu(op, groups.p, inner)}
    by = fitting.get(name) or named(op, name)
    by = by if by.fits(groups.p, inner) else named(op, "ring")
    longest = 0.0
    for steps in laid_out(by, graph, groups, inner):
        for flows in flows_of(graph, groups, steps):
            share = flows.share * np.repeat(flows.times, flows.per_step)
            once = np.zeros_like(sent)
            for begin in range(0, len(flows.source), PART):
                at = slice(begin, begin + PART)
                route, _, part = graph.spread_route(flows.source[at], flows.target[at])
                np.add.at(once, route.ravel(), (share[at] * part[:, None]).ravel())
            sent += once
            each += float(share.reshape(len(flows.times), -1).max(axis=1).sum())
            longest += float((once * graph.seconds_per_byte).max())
    busy = sent * graph.seconds_per_byte / max(longest, 1e-300)
    return Traffic(busy[:-1], sent[:-1] / max(each, 1e-300))


def slowdown(mine: Traffic, others: Sequence[Neighbour], graph: Topology) -> Slowdown:
    """The mean and the worst over what all others may be doing meanwhile."""
    met = [_met(mine, other) for other in others]
    rate, worst, where = 0.0, 1.0, -1
    for state in product(*met):
        chance = float(np.prod([part for part, _ in state]))
        slower, link = _slower(mine, [each for _, each in state if each is not None])
        rate += chance / slower
        if slower > worst * (1 + 1e-12):
            worst, where = slower, link
    return Slowdown(1 / rate, worst, graph.label(where) if where >= 0 else "")


def _met(mine: Traffic, other: Neighbour) -> list[tuple[float, Traffic | None]]:
    """(part of the time, exchange) of those that share a link, and the rest of a job's time."""
    shared = [(part, each) for part, each in zip(other.active, other.traffic, strict=True)
              if bool(((mine.busy > 0) & (each.busy > 0)).any())]  # fmt: skip
    total = sum(part for part, _ in shared)
    scale = min(1.0, 1 / total) if total else 1.0
    found: list[tuple[float, Traffic | None]] = [(part * scale, each) for part, each in shared]
    return [*found, (max(0.0, 1 - total * scale), None)]


def _slower(mine: Traffic, others: Iterable[Traffic]) -> tuple[float, int]:
    """How many times as long an exchange takes beside these, and the link that sets it."""
    others = list(others)
    if not others:
        return 1.0, -1
    taken: Floats = np.sum([each.busy for each in others], axis=0)
    many: Floats = np.sum([each.flows for each in others], axis=0)
    total = mine.flows + many
    fair = np.divide(mine.flows, total, out=np.ones_like(total), where=total > 0)
    times = mine.busy / np.maximum(np.maximum(1 - taken, fair), 1e-12)
    link = int(times.argmax())
    return max(1.0, float(times[link])), link

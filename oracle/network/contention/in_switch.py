"""Cost lines of collectives that switches help with, and where they are on offer.

Levels say by `reduces` what their switches can. NCCL takes NVLink SHARP by itself, from 2.17 on
inside a node and from 2.18 on with trees between nodes; SHARP of the network only where a plugin
is loaded and NCCL_COLLNET_ENABLE is 1, so never unless it is named. Other libraries take none
unless it is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS, Algorithm
from oracle.network.collectives.switches import InSwitch
from oracle.network.contention.cached import algorithm_costs
from oracle.network.contention.groups import RankGroups, spanning_level
from oracle.network.contention.line import CostLine
from oracle.network.topology import network_of
from oracle.spec.doubt import DATASHEET, LIBRARY
from oracle.spec.level import REDUCES
from oracle.spec.system import System

NAMES = tuple(dict.fromkeys(
    name for table in ALGORITHMS.values() for name, by in table.items() if isinstance(by, InSwitch)
))  # fmt: skip


@dataclass(frozen=True)
class Way:
    """The way that groups take: which levels they cross inside their nodes and between them."""

    system: System
    groups: RankGroups
    inner: int  # ranks of a group that share a node

    @property
    def last(self) -> int:
        return spanning_level(self.system, self.groups)

    @property
    def out(self) -> bool:
        """Whether groups leave their nodes."""
        return self.last >= self.system.inside

    def said(self, beyond: bool) -> set[str]:
        """What the levels between nodes, or inside them, say that their switches reduce by."""
        inside = self.system.inside
        part = self.system.levels[inside : self.last + 1] if beyond else self.system.levels[
            : min(inside, self.last + 1)]  # fmt: skip
        return {level.reduces for level in part}

    def has(self, by: InSwitch) -> bool:
        """Whether all switches on the way can do what an algorithm needs of them."""
        alone = self.inner == 1 or not by.inner_word or self.said(False) == {by.inner_word}
        if not by.across:
            return not self.out and alone
        return self.out and alone and (not by.word or self.said(True) == {by.word})


def lacking(system: System, name: str) -> str:
    """Why a system can do nothing by that name; empty where it can."""
    every = [(by.word, by.inner_word) for table in ALGORITHMS.values() for by in table.values()
             if isinstance(by, InSwitch) and by.name == name]  # fmt: skip
    has = {level.reduces for level in system.levels}
    for word in dict.fromkeys(word for both in every for word in both if word):
        needed = not (name == "sharp" and word == "nvls")  # nodes may swap pieces instead
        if needed and word not in has:
            return (f"no level of {system.name} says that its switches can: "
                    f"`reduces: {word}`, of {REDUCES[word]} links")  # fmt: skip
    if name == "nvlstree" and system.inside >= len(system.levels):
        return f"{system.name} is one node, and trees are between nodes"
    return ""


def named_for(op: str, name: str, way: Way) -> Algorithm | None:
    """The algorithm of switches of that name, if these groups' can; SHARP without NVLink's too."""
    for each in (name, "collnet") if name == "sharp" else (name,):
        by = ALGORITHMS.get(op, {}).get(each)
        if isinstance(by, InSwitch) and by.fits(way.groups.p, way.inner) and way.has(by):
            return by
    return None


def by_itself(op: str, way: Way, version: nccl.Version) -> list[Algorithm]:
    """What NCCL takes on its own account, at a version."""
    found = []
    for name, since in nccl.SINCE.items():
        by = named_for(op, name, way)
        heads = way.inner <= nccl.HEADS or not way.out  # each rank of a node has a way of its own
        if by is not None and version >= since and op in nccl.IN_SWITCH[name] and heads:
            found.append(by)
    return found


def switch_lines(
    op: str, way: Way, offer: list[Algorithm], version: nccl.Version, short: float
) -> Iterator[CostLine]:
    """What each costs: links at what switches get of them, and NCCL's seconds to start."""
    system, groups = way.system, way.groups
    served = nccl.serves(system)
    shares = nccl.bandwidth_shares(system) if served else tuple(
        level.share or 1.0 for level in system.levels)  # fmt: skip
    for by in offer:
        generation = system.device.generation
        reach = tuple(
            share * (nccl.switch_share(by.name, level.reduces, generation) if served else 1.0)
            for share, level in zip(shares, system.levels, strict=True)
        )
        graph = network_of(system, groups.reach, reach)
        (cost,) = algorithm_costs(system, graph, groups, way.inner, [by], reach)
        if served:
            crossed = system.levels[: way.last + 1]
            nodes = max(1, groups.p // way.inner) if way.out else 1
            start = nccl.switch_start(by.name, crossed, way.inner, nodes, version)
            yield CostLine(f"{by.name}/Simple", start, cost.per_byte, cost.phi, cost.full,
                           "assumed", LIBRARY, short)  # fmt: skip
        else:
            start = cost.start if graph.hop else cost.start_at(np.asarray(graph.latency), False)
            yield CostLine(by.name, start, cost.per_byte, cost.phi, cost.full, "datasheet",
                           DATASHEET, short)  # fmt: skip

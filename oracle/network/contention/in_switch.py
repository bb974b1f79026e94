"""Cost lines of collectives that switches help with, and where they are on offer.

Levels say by `reduces` what their switches can. NCCL takes NVLink SHARP by itself, from 2.17 on
inside a node and from 2.18 on with trees between nodes; SHARP of the network only where a plugin
is loaded and NCCL_COLLNET_ENABLE is 1, so never unless it is named. Other libraries take none
unless it is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

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


@dataclass(frozen=True, eq=False)
class Way:
    """Which levels groups cross, inside their nodes and between them."""

    system: System
    groups: RankGroups
    inner: int  # ranks of a group that share a node

    @cached_property
    def last(self) -> int:
        """The level that spans the groups."""
        return spanning_level(self.system, self.groups)

    @property
    def leaves(self) -> bool:
        """Whether groups leave their nodes."""
        return self.last >= self.system.inside

    def can_run(self, by: InSwitch) -> bool:
        """Whether all switches on the way can do what an algorithm needs of them."""
        crossed, inside = self.system.levels[: self.last + 1], self.system.inside
        inner_words, outer_words = (
            {level.reduces for level in part} for part in (crossed[:inside], crossed[inside:])
        )
        able_inside = self.inner == 1 or not by.inner_word or inner_words == {by.inner_word}
        if not by.across:
            return not self.leaves and able_inside
        return self.leaves and able_inside and (not by.word or outer_words == {by.word})


def bandwidth_shares(system: System, served: bool) -> tuple[float, ...]:
    """Part of each level's bandwidth that messages get: by a library, or as measured there."""
    if served:
        return nccl.bandwidth_shares(system)
    return tuple(level.share or 1.0 for level in system.levels)


def lacking(system: System, name: str) -> str:
    """Return why a system's switches cannot run the named algorithm; empty where they can."""
    every = [(by.word, by.inner_word) for table in ALGORITHMS.values() for by in table.values()
             if isinstance(by, InSwitch) and by.name == name]  # fmt: skip
    reductions = {level.reduces for level in system.levels}
    for word in dict.fromkeys(word for pair in every for word in pair if word):
        needed = not (name == "sharp" and word == "nvls")  # nodes may swap pieces instead
        if needed and word not in reductions:
            return (f"no level of {system.name} says that its switches can: "
                    f"`reduces: {word}`, of {REDUCES[word]} links")  # fmt: skip
    if name == "nvlstree" and system.inside >= len(system.levels):
        return f"{system.name} is one node, and trees are between nodes"
    return ""


def named_for(op: str, name: str, way: Way) -> Algorithm | None:
    """Return the named algorithm if the switches of these groups can run it.

    For SHARP, it may be the one that does without switches inside nodes.
    """
    for candidate in (name, "collnet") if name == "sharp" else (name,):
        by = ALGORITHMS.get(op, {}).get(candidate)
        if isinstance(by, InSwitch) and by.fits(way.groups.p, way.inner) and way.can_run(by):
            return by
    return None


def switch_menu(op: str, way: Way, version: nccl.Version) -> list[Algorithm]:
    """Return the algorithms that a version of NCCL takes without being told to."""
    algorithms = []
    for name, since in nccl.SINCE.items():
        by = named_for(op, name, way)
        heads = way.inner <= nccl.HEADS or not way.leaves  # each rank of a node has its own
        if by is not None and version >= since and op in nccl.IN_SWITCH[name] and heads:
            algorithms.append(by)
    return algorithms


def switch_lines(
    op: str, way: Way, offer: list[Algorithm], version: nccl.Version, short: float
) -> Iterator[CostLine]:
    """Yield each algorithm's line: what switches get of links, and NCCL's seconds to start."""
    system, groups = way.system, way.groups
    served = nccl.serves(system)
    shares = bandwidth_shares(system, served)
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
            nodes = max(1, groups.p // way.inner) if way.leaves else 1
            start = nccl.switch_start(by.name, crossed, way.inner, nodes, version)
            yield CostLine(f"{by.name}/Simple", start, cost.per_byte, cost.phi, cost.full,
                           "assumed", LIBRARY, short)  # fmt: skip
        else:
            start = cost.start if graph.hop else cost.start_at(np.asarray(graph.latency), False)
            yield CostLine(by.name, start, cost.per_byte, cost.phi, cost.full, "datasheet",
                           DATASHEET, short)  # fmt: skip

"""How much slower groups are together than one alone, as measured and as predicted (φ).

A log that has both (our own, or OSU's pairs) shows the true contention; the φ that is counted on
the system's links is not fitted to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from oracle.network.collectives import ALGORITHMS
from oracle.network.contention import lines
from oracle.readers.logs import Reading
from oracle.spec.system import System

LARGE = 65536  # bytes from which links, not latencies, set the pace


@dataclass(frozen=True, slots=True)
class ConcurrentGroups:
    """Seconds of several groups at once over those of one alone, measured and predicted."""

    op: str
    ranks: int
    nodes: int
    groups: int
    memory: str
    measured: float  # median over sizes
    low: float
    high: float
    sizes: int
    counted: float  # φ of the line that is the fastest for large messages

    @property
    def words(self) -> str:
        """The comparison in a sentence."""
        place = f"{self.nodes} node" + ("s" if self.nodes > 1 else "")
        place += f", {self.memory} buffers" if self.memory else ""
        return (f"{self.op}, {self.ranks} ranks on {place}, {self.groups} at once: "
                f"{self.measured:.3g} × one alone [{self.low:.3g}, {self.high:.3g}], "
                f"counted φ = {self.counted:.3g}")  # fmt: skip


# operation, ranks, nodes, library, memory, window, in place
Configuration: TypeAlias = tuple[str, int, int, str, str, int, bool | None]


def concurrent(readings: Iterable[Reading], system: System) -> list[ConcurrentGroups]:
    """Every shape of group that was measured alone and several at once, at 64 KiB or more."""
    seconds: dict[Configuration, dict[int, dict[float, list[float]]]] = {}
    for reading in readings:
        for s in reading.samples:
            if s.groups and s.ranks and s.nodes and s.nbytes >= LARGE:
                shape = s.operation, s.ranks, s.nodes, s.library, s.memory, s.window, s.in_place
                sizes = seconds.setdefault(shape, {}).setdefault(s.groups, {})
                sizes.setdefault(s.nbytes, []).append(s.seconds)
    crowds = []
    for shape in sorted(seconds, key=str):
        op, ranks, nodes, _, memory, *_ = shape
        alone = seconds[shape].get(1, {})
        for groups, sizes in sorted(seconds[shape].items()):
            common = sorted(set(sizes) & set(alone)) if groups > 1 else []
            counted = _counted(system, op, ranks, nodes, groups) if common else None
            if counted is not None:
                ratio = [float(np.median(sizes[m]) / np.median(alone[m])) for m in common]
                middle = float(np.median(ratio))
                crowds.append(ConcurrentGroups(
                    op, ranks, nodes, groups, memory, middle, min(ratio), max(ratio),
                    len(common), counted,
                ))  # fmt: skip
    return crowds


def _counted(system: System, op: str, ranks: int, nodes: int, groups: int) -> float | None:
    """φ of groups side by side in nodes, or of one rank a node each; None for other shapes."""
    stride = 1 if nodes == 1 else groups
    devices = ranks * groups
    if op not in ALGORITHMS or devices > system.devices or nodes not in (1, ranks):
        return None
    if ranks < 2 or (stride > 1 and stride > system.node):
        return None
    best = min(lines(system, op, ((ranks, stride),), devices), key=lambda line: line.per_byte)
    return best.phi

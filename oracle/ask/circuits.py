"""Optical circuits shared by what a plan sends: how many each pattern gets, and when to set them.

Every unit has so many circuits a side beside its packet switch. What ranks of several units send
goes round those units on the circuits that its pattern is given, or over the packet switch. To set
circuits for one message pays from a size on [nguyen2019optical], the setting counted with its α:

    m* = (α_c − α_e) / (β_e − β_c)

Circuits that stay set serve all patterns of a step, dealt so that most is saved. They are set anew
after the passes, for what is sent once a step, where that saves more than setting them twice
takes; what would have hidden under the passes then shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias

import numpy as np

from oracle.network import contention
from oracle.network.contention.groups import Pattern
from oracle.network.contention.line import CostLine
from oracle.predict.estimate import Estimate, estimate
from oracle.spec.level import Level
from oracle.spec.system import System

FASTER = 4  # times all circuits: a network on which hardly anything shows
PASSES = ("passes", "step")  # forward and backward of all micro-batches, and what comes after
Dealt: TypeAlias = dict[Pattern, int]  # circuits a side of each pattern


@dataclass(frozen=True, eq=False)
class Flow:
    """What a plan sends between units: where, how much, and what it takes on c circuits."""

    what: str
    op: str
    when: str  # of PASSES
    pattern: Pattern  # of ranks
    nbytes: float
    sent: float  # seconds over packets
    hidden: float  # of these
    seconds: tuple[float, ...]  # what shows of it on 0, 1, … circuits a side
    alone: tuple[float, ...]  # likewise, with nothing to hide under
    threshold: float  # bytes of a call that all circuits are worth setting for; infinite if none

    def saved(self, count: int, anew: bool) -> float:
        """Seconds of a step that so many circuits save; `anew`: set after the passes."""
        late = anew and self.when == "step"
        return self.seconds[0] - (self.alone if late else self.seconds)[count]


@dataclass(frozen=True, eq=False)
class Circuits:
    """How circuits are dealt to patterns, and what that saves of a step."""

    level: str
    circuits: int  # a side of each unit
    setting: float  # seconds it takes to set them
    packets: float  # seconds of a step without them
    flows: tuple[Flow, ...]
    dealt: tuple[tuple[str, Dealt], ...]  # (passes that share a setting, circuits of patterns)

    @property
    def changes(self) -> int:
        """How often they are set anew in a step."""
        return len(self.dealt) if len(self.dealt) > 1 else 0

    @cached_property
    def seconds(self) -> float:
        """Of a step with them."""
        anew = len(self.dealt) > 1
        saved = sum(_saved(self.flows, passes.split(), dealt, anew)
                    for passes, dealt in self.dealt)  # fmt: skip
        return self.packets - saved + self.changes * self.setting

    def of(self, flow: Flow) -> int:
        """Circuits a side that a flow has."""
        return next(dealt.get(flow.pattern, 0) for passes, dealt in self.dealt
                    if flow.when in passes.split())  # fmt: skip

    def shows(self, flow: Flow) -> float:
        """Seconds of a flow that nothing hides."""
        return flow.seconds[0] - flow.saved(self.of(flow), len(self.dealt) > 1)

    def to_dict(self) -> dict[str, Any]:
        """As data, SI."""
        return {
            "level": self.level, "circuits": self.circuits, "setting": self.setting,
            "seconds": self.seconds, "packets": self.packets, "changes": self.changes,
            "flows": [
                {"what": one.what, "op": one.op, "when": one.when, "bytes": one.nbytes,
                 "circuits": self.of(one), "seconds": self.shows(one),
                 "packets": one.seconds[0],
                 "threshold": None if one.threshold == inf else one.threshold}
                for one in self.flows
            ],
        }  # fmt: skip


def circuits(shown: Estimate) -> Circuits | None:
    """How the circuits of a system are best dealt to a plan; nothing where it has none."""
    system = shown.system
    depth = next((k for k, one in enumerate(system.levels) if one.kind == "optical"), None)
    if depth is None or shown.options.ideal or shown.broken[0]:
        return None
    level = system.levels[depth]
    count = int(level.shape[0]) if level.shape else 1
    setting = level.shape[1] * 1e-6 if len(level.shape) > 1 else 0.0
    plain = replace(level, kind="switch", shape=())
    fast = replace(plain, bandwidth=level.bandwidth * FASTER * (count + 1))
    dark, light = (
        estimate(
            shown.model,
            _with(system, depth, each),
            shown.plans,
            float(shown.batch[0]),
            shown.options,
        )
        for each in (plain, fast)
    )
    flows = tuple(_flows(dark, light, system, depth, count, setting))
    return Circuits(level.name, count, setting, float(dark.seconds[0]), flows,
                    best_settings(flows, count, setting))  # fmt: skip


def best_settings(
    flows: Sequence[Flow], count: int, setting: float
) -> tuple[tuple[str, Dealt], ...]:
    """Passes that share a setting, and how each deals its circuits: what takes least of a step."""
    used = [when for when in PASSES if any(flow.when == when for flow in flows)] or [PASSES[-1]]
    best: tuple[float, tuple[tuple[str, Dealt], ...]] = inf, ()
    for cuts in range(1 << (len(used) - 1)):
        ends = [0, *(k + 1 for k in range(len(used) - 1) if cuts >> k & 1), len(used)]
        parts = [used[a:b] for a, b in pairwise(ends)]
        anew = len(parts) > 1
        dealt = tuple((" ".join(part), deal(flows, part, count, anew)) for part in parts)
        saved = sum(_saved(flows, part, each, anew)
                    for part, (_, each) in zip(parts, dealt, strict=True))  # fmt: skip
        cost = (len(parts) * setting if len(parts) > 1 else 0.0) - saved
        if cost < best[0] - 1e-12:
            best = cost, dealt
    return best[1]


def deal(flows: Sequence[Flow], passes: Sequence[str], count: int, anew: bool = False) -> Dealt:
    """Circuits of each pattern that together save most: a knapsack over the patterns."""
    mine: dict[Pattern, list[Flow]] = {}
    for flow in flows:
        if flow.when in passes:
            mine.setdefault(flow.pattern, []).append(flow)
    # of so many circuits in all: (what they save, how they are dealt)
    found: list[tuple[float, Dealt]] = [(0.0, {})] * (count + 1)
    for pattern, some in mine.items():
        gain = [sum(one.saved(c, anew) for one in some) for c in range(count + 1)]
        found = [
            max(((found[left - c][0] + gain[c], {**found[left - c][1], pattern: c})
                 for c in range(left + 1)), key=lambda one: one[0])
            for left in range(count + 1)
        ]  # fmt: skip
    return {pattern: c for pattern, c in found[count][1].items() if c}


def _saved(flows: Iterable[Flow], passes: Sequence[str], dealt: Dealt, anew: bool) -> float:
    return sum(flow.saved(dealt.get(flow.pattern, 0), anew)
               for flow in flows if flow.when in passes)  # fmt: skip


def _flows(
    dark: Estimate, light: Estimate, system: System, depth: int, count: int, setting: float
) -> Iterator[Flow]:
    """What crosses the optical level, each on any number of circuits.

    What shows of it lies between what does over packets and what does on a network that is far
    faster; it never grows slower than the seconds that it takes do.
    """
    work, other = dark.work[0], light.work[0]
    unit = system.levels[depth - 1].devices if depth else 1
    known: dict[tuple[str, Pattern], list[list[CostLine]]] = {}
    for (priced, whole), (_, quick) in zip(work.messages, other.messages, strict=True):
        pattern, devices = priced.pattern(work.at)
        line = priced.line(work.at)
        if not priced.meshed or line is None or _units(pattern, unit) < 2:
            continue
        nbytes = float(whole.nbytes[work.row])
        sent, exposed = float(whole.seconds[work.row]), float(whole.exposed[work.row])
        calls = sent / max(line.start + line.per_byte * nbytes, 1e-30)
        each = known.setdefault((priced.op, pattern), [])
        each = each or [_lines(system, depth, priced.op, pattern, devices, c,
                               dark.options.algorithm) for c in range(count + 1)]  # fmt: skip
        known[priced.op, pattern] = each
        took = [min((calls * (one.start + one.per_byte * nbytes) for one in some), default=inf)
                for some in each]  # fmt: skip
        took = list(np.minimum.accumulate(took))  # circuits may be left dark
        least = float(quick.seconds[other.row]), float(quick.exposed[other.row])
        show = [_showing(one, least, (sent, exposed)) for one in took]
        when = "step" if priced.when == "step" else "passes"
        yield Flow(priced.what, priced.op, when, pattern, nbytes, took[0], sent - exposed,
                   tuple(show), tuple(took), threshold(each[0], each[-1], nbytes, setting)
                   )  # fmt: skip


def _showing(took: float, least: tuple[float, float], most: tuple[float, float]) -> float:
    """What shows of seconds between two that were priced with what shows of them, in a line."""
    (sent, shows), (longest, all_shows) = least, most
    if took >= longest or longest <= sent:
        return max(0.0, all_shows + took - longest) if took >= longest else all_shows
    if took <= sent:
        return shows * took / max(sent, 1e-30)
    return shows + (all_shows - shows) * (took - sent) / (longest - sent)


def threshold(
    packets: Sequence[CostLine], lit: Sequence[CostLine], nbytes: float, setting: float
) -> float:
    """m*: bytes from which the best line on circuits, set for it, beats the best over packets."""

    def best(lines: Sequence[CostLine]) -> CostLine:
        return min(lines, key=lambda line: line.start + line.per_byte * nbytes)

    if not packets or not lit:
        return inf
    dark, light = best(packets), best(lit)
    if light.per_byte >= dark.per_byte:
        return inf
    return max(0.0, (light.start + setting - dark.start) / (dark.per_byte - light.per_byte))


def _units(pattern: Pattern, unit: int) -> int:
    """Units that a group lies on."""
    found = 1
    for size, stride in pattern:
        found *= size if stride >= unit else max(1, size * stride // unit)
    return found


def _lines(
    system: System, depth: int, op: str, pattern: Pattern, devices: int, count: int,
    algorithm: str | None,
) -> list[CostLine]:  # fmt: skip
    """Lines of groups that have so many circuits a side round the units of each; 0: of packets."""
    level = system.levels[depth]
    if not count:
        plain = replace(level, kind="switch", shape=())
        where = _with(system, depth, plain)
        return list(contention.lines(where, op, pattern, devices, algorithm))
    unit = system.levels[depth - 1].devices if depth else 1
    wide = _units(pattern, unit)
    ring = replace(level, name=f"{level.name} ring", devices=unit * wide, shape=(count, 0))
    outer = replace(level, kind="switch", shape=())
    where = _with(system, depth, ring, *([outer] if wide * unit < level.devices else []))
    moved = beside(pattern, unit)
    found = contention.lines(where, op, moved, unit * wide, algorithm)
    return [line for line in found if line.algorithm.endswith("on circuits")]


def beside(pattern: Pattern, unit: int) -> Pattern:
    """The groups with the units of each side by side."""
    inside: list[tuple[int, int]] = []
    for size, stride in pattern:
        if stride >= unit:
            continue
        near = min(size, max(1, unit // stride))
        if near > 1:
            inside.append((near, stride))
    wide = _units(pattern, unit)
    return ((wide, unit), *inside)


def _with(system: System, depth: int, *levels: Level) -> System:
    """The system with other levels in place of the optical one."""
    every = (*system.levels[:depth], *levels, *system.levels[depth + 1 :])
    names = {level.name for level in every}
    first = levels[0].name
    return replace(
        system.bare, levels=every, seats=None, whole=None, nodes="",
        collectives=tuple(one for one in system.collectives if one.level in names),
        library=tuple(one if one.level in names else replace(one, level=first)
                      for one in system.library),
    )  # fmt: skip

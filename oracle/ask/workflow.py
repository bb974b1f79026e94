"""Many trainings on so many nodes: how many at once, how large each, when the last one ends.

T(n) = Σ stages  times · M(R, c) · share · T_run(n),      c = ⌊N/n⌋, or g/d a node of g devices

Sizes that are tried: parts of a node, whole nodes by every divisor of N, every power of two, and as
many as ⌈R/w⌉ trials at once leave each, for every number w of waves. A size is passed over where
it would not be faster if it scaled as well as can be from the next smaller one that was tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from oracle.ask.trials import Trial, Trials
from oracle.run.costs import Costs, costs
from oracle.run.power import Load, load_of
from oracle.run.searches import Stage
from oracle.run.waves import at_once, makespan, waves
from oracle.run.workflow import Workflow
from oracle.spec.tabular import Tabular
from oracle.spec.units import show

BETTER = 0.98  # of the time of a perfect speed-up: less memory a device may make it better


@dataclass(frozen=True)
class Part:
    """A stage of a workflow, with the trials that it is dealt out to."""

    stage: Stage
    at_once: int
    waves: int
    trial: Trial
    seconds: float

    @property
    def used(self) -> float:
        """Device-seconds in which a trial runs."""
        one = self.stage
        each = self.trial.training.seconds * self.trial.devices
        return one.trials * one.times * one.share * each


@dataclass(frozen=True, eq=False, repr=False)
class Campaign(Tabular):
    """The fastest way to run a workflow on so many nodes."""

    asked: Workflow
    trials: Trials = field(repr=False)
    nodes: int
    parts: tuple[Part, ...]  # none where nothing fits
    tried: tuple[tuple[int, int, float], ...]  # devices of a trial, how many at once, seconds
    one_node: float | None = None  # seconds there; None where nothing fits

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    def says(self) -> str:
        """How many at once, how large each, how long."""
        what = f"{self.trials.model.name} on {self.nodes} nodes of {self.trials.system.name}"
        if not self.parts:
            return f"{what}: nothing fits"
        return (f"{what}: {self.widest.at_once} at once, {self.main.trial.devices} devices each, "
                f"{show(self.seconds, 's')}")  # fmt: skip

    @property
    def low(self) -> float:
        """The end of the 90 % interval: all trials are as much faster as one may be."""
        return sum(part.seconds * part.trial.training.low / part.trial.training.seconds
                   for part in self.parts)  # fmt: skip

    @property
    def high(self) -> float:
        return sum(part.seconds * part.trial.training.high / part.trial.training.seconds
                   for part in self.parts)  # fmt: skip

    @property
    def main(self) -> Part:
        """The stage that takes longest."""
        return max(self.parts, key=lambda part: part.seconds)

    @property
    def widest(self) -> Part:
        """The stage with most trials at once, of those that are as large as the longest's."""
        size = self.main.trial.devices
        same = (part for part in self.parts if part.trial.devices == size)
        return max(same, key=lambda part: part.at_once)

    @property
    def devices(self) -> int:
        return self.nodes * self.trials.system.node

    @property
    def speedup(self) -> float | None:
        """Against one node."""
        return None if self.one_node is None else self.one_node / self.seconds

    @property
    def device_hours(self) -> float:
        """Of all nodes, from the first trial to the end of the last."""
        return self.seconds * self.devices / 3600

    @property
    def busy(self) -> float:
        """The share of them in which a trial runs."""
        return min(sum(part.used for part in self.parts) / (self.seconds * self.devices), 1.0)

    @property
    def idle(self) -> float:
        """Nodes that the longest stage has no trial for."""
        main = self.main
        return self.nodes - main.at_once * main.trial.devices / self.trials.system.node

    @cached_property
    def costs(self) -> Costs:
        shown = self.main.trial.estimate
        load = load_of(shown, 0)
        each = (self.busy * share for share in (load.share, load.low, load.high))
        return costs(self.trials.system, self.devices, self.seconds, Load(*each))

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a stage."""
        return [
            {
                "stage": part.stage.name, "times": part.stage.times, "trials": part.stage.trials,
                "share": part.stage.share, "at_once": part.at_once, "waves": part.waves,
                "devices": part.trial.devices,
                "nodes": part.trial.devices / self.trials.system.node,
                "plan": part.trial.plan, "batch": part.trial.batch,
                "trial_seconds": part.stage.share * part.trial.training.seconds,
                "seconds": part.seconds,
            }
            for part in self.parts
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The published JSON form."""
        asked, main = self.asked, self.main if self.parts else None
        found = main.trial.training if main else None
        return {
            "model": self.trials.model.name, "system": self.trials.system.name,
            "search": {"kind": asked.search.search.kind(), **asked.search.search.settings()},
            "trials": asked.trials, "nodes": self.nodes, "devices": self.devices,
            "feasible": bool(self.parts),
            "seconds": self.seconds if main else None, "low": self.low if main else None,
            "high": self.high if main else None,
            "at_once": self.widest.at_once if main else None,
            "nodes_each": main.trial.devices / self.trials.system.node if main else None,
            "idle_nodes": self.idle if main else None, "busy": self.busy if main else None,
            "device_hours": self.device_hours if main else None,
            **{name: getattr(self.costs, name) if main else None
               for name in ("money", "energy", "carbon")},
            "unknown": self.unknown, "one_node": self.one_node,
            "speedup": self.speedup if main else None, "spread": asked.spread,
            "training": found.to_dict() if found else None, "stages": self.rows(),
            "tried": [{"devices": devices, "at_once": count, "seconds": seconds}
                      for devices, count, seconds in self.tried],
        }  # fmt: skip

    @property
    def unknown(self) -> list[str]:
        """What would have to be said to tell the rest."""
        said = [] if self.asked.spread is not None else ["spread"]
        return said + (list(self.costs.unknown) if self.parts else [])


def campaign(trials: Trials, nodes: int, alone: bool = True) -> Campaign:
    """The fastest way; with `alone` beside what one node would take."""
    asked, node = trials.asked, trials.system.node
    best: dict[int, tuple[float, tuple[Part, ...]]] = {}
    seen: dict[int, float] = {}  # devices -> seconds of one whole training
    tried: list[tuple[int, int, float]] = []
    left = sizes(trials, nodes)
    while left:
        devices = _next(trials, left, nodes, seen, best)
        if devices is None:
            break
        left.remove(devices)
        count = room(devices, nodes, node)
        stages = asked.search.search.stages(asked.trials, count)
        found = trials.beside(devices, min(count, max(one.trials for one in stages)))
        if found is None:
            continue
        seen[devices] = found.training.seconds
        each = [_part(stage, count, found, asked.spread or 0.0) for stage in stages]
        tried.append((devices, max(part.at_once for part in each),
                      sum(part.seconds for part in each)))  # fmt: skip
        for number, group in enumerate(_groups(asked, each)):
            total = sum(part.seconds for part in group)
            if number not in best or total < best[number][0]:
                best[number] = total, tuple(group)
    parts = tuple(part for number in sorted(best) for part in best[number][1])
    one = None
    if alone and parts:
        first = campaign(trials, 1, alone=False).parts if nodes > 1 else parts
        one = sum(part.seconds for part in first) or None
    return Campaign(asked, trials, nodes, parts, tuple(sorted(tried)), one)


def sizes(trials: Trials, nodes: int) -> list[int]:
    """Devices of a trial that are worth a look, from the fewest on."""
    node, asked = trials.system.node, trials.asked
    if asked.plan is not None:
        from oracle.plan.plan import parse

        wanted = int(parse(asked.plan, 1.0).devices[0, 0])
        return [wanted] if room(wanted, nodes, node) else []
    widths = asked.search.search.widths(asked.trials, nodes)
    whole = {n for n in range(1, nodes + 1) if nodes % n == 0 or n & (n - 1) == 0}
    whole |= {nodes // width for width in widths}
    parts = {d for d in range(1, node) if node % d == 0}
    return sorted(parts | {n * node for n in whole})


def _part(stage: Stage, count: int, trial: Trial, spread: float) -> Part:
    each = makespan(stage.trials, count, spread) * stage.share * trial.training.seconds
    several = waves(stage.trials, count)
    return Part(stage, at_once(stage.trials, several) if spread == 0 else min(count, stage.trials),
                several, trial, stage.times * each)  # fmt: skip


def _groups(asked: Workflow, parts: Sequence[Any]) -> list[Sequence[Any]]:
    """Stages that share a size of trial."""
    return [[part] for part in parts] if asked.search.search.resized else [parts]


def room(devices: int, nodes: int, node: int) -> int:
    """How many trials of so many devices have room on nodes of `node` devices, none across two."""
    if devices < node:
        return nodes * (node // devices)
    return nodes // -(-devices // node)


def _next(
    trials: Trials, left: list[int], nodes: int, seen: dict[int, float],
    best: dict[int, tuple[float, tuple[Part, ...]]],
) -> int | None:  # fmt: skip
    """The size that could be the fastest by most; None where none could be faster."""
    asked = trials.asked
    if not seen:
        return left[0]
    hopeful: list[tuple[float, int]] = []
    for size in left:
        under = [each for each in seen if each < size]
        if not under:
            return size
        base = max(under)
        least = BETTER * seen[base] * base / size
        count = room(size, nodes, trials.system.node)
        stages = asked.search.search.stages(asked.trials, count)
        bounds = [
            sum(one.times * makespan(one.trials, count, asked.spread or 0.0)
                * one.share * least for one in group)
            for group in _groups(asked, stages)
        ]  # fmt: skip
        ratio = min(bound / best[at][0] for at, bound in enumerate(bounds))
        if ratio < 1:
            hopeful.append((ratio, size))
    return min(hopeful)[1] if hopeful else None

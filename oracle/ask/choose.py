"""Which machine, how many of its devices, which software, plan and batch: one answer first.

1. Every machine and number of devices is searched briefly, at each batch worth a look.
2. What may be best, or is on the frontier of time against what it takes, is searched in full.
3. What keeps to the limits comes first, best first; the rest by how far it is over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oracle.ask.progress import counted
from oracle.ask.setups import AXES, Asked, Setup, Skipped, along, ask, full_nodes
from oracle.ask.turning import Change, changes
from oracle.run.limits import amount
from oracle.spec.options import Options
from oracle.spec.system import System
from oracle.spec.tabular import Tabular
from oracle.spec.units import show

REFINED = 3  # setups at most that are searched in full
NEAR = 1.35  # times the best: what a full search may bring to the top


@dataclass(frozen=True, eq=False, repr=False)
class Choice(Tabular):
    """What keeps to the limits, best first; what does not; and what would change the first."""

    brief = ("rank", "system", "devices", "batch", "plan", "seconds", "device_hours", "money",
             "energy", "carbon", "front")  # fmt: skip

    asked: Asked
    setups: tuple[Setup, ...]
    misses: tuple[Setup, ...]  # over a limit, the nearest first
    unknown: tuple[Setup, ...]  # the objective is not known of their machine
    skipped: tuple[Skipped, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()  # how machines are compared

    def __len__(self) -> int:
        return len(self.setups)

    @property
    def best(self) -> Setup:
        """The answer."""
        if not self.setups:
            raise LookupError("nothing keeps to the limits: see `misses`")
        return self.setups[0]

    def says(self) -> str:
        """The answer of how many, or that nothing keeps to the limits."""
        what = f"{self.asked.model.name}, {len(self.setups)} setups keep to the limits"
        if not self.setups:
            return what
        one = self.best
        return (f"{what}; {one.devices} devices of {one.system.name}, {one.plan}: "
                f"{show(one.training.seconds, 's')}")  # fmt: skip

    @property
    def front(self) -> tuple[Setup, ...]:
        """What no other setup beats both in time and in what it takes, the fastest first."""
        return frontier(self.setups, self.asked.objective)

    def to_dict(self) -> dict[str, Any]:
        """The published JSON form."""
        limits = self.asked.limits
        front = {id(one) for one in self.front}
        return {
            "model": self.asked.model.name, "objective": self.asked.objective,
            "limits": {name: getattr(limits, name) for name in limits.__slots__},
            "setups": [{"rank": rank, "front": id(one) in front, **one.to_dict()}
                       for rank, one in enumerate(self.setups, 1)],
            "front": [one.to_dict() for one in self.front],
            "misses": [one.to_dict() for one in self.misses],
            "unpriced": [one.to_dict() for one in self.unknown],
            "skipped": [one.to_dict() for one in self.skipped],
            "changes": [one.to_dict() for one in self.changes], "notes": list(self.notes),
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each setup; those that cannot be the answer have no rank."""
        front = {id(one) for one in self.front}
        some = [*enumerate(self.setups, 1), *((None, one) for one in (*self.misses, *self.unknown))]
        return [
            {"rank": rank, "front": id(one) in front, **_flat(one)} for rank, one in some
        ]  # fmt: skip


def _flat(one: Setup) -> dict[str, Any]:
    said = one.to_dict()
    price = said.pop("price")
    over = said.pop("over")
    said.pop("unknown")
    return {**said, "over": "; ".join(over), "usd_per_hour": price and price["usd_per_hour"]}


def frontier(setups: Sequence[Setup], objective: str = "money") -> tuple[Setup, ...]:
    """What none beats both in time and in the other amount: money if known, else device-hours."""
    axis = AXES[objective]
    if axis == "time":
        known = all(one.training.costs.money is not None for one in setups)
        axis = "money" if known else "device_hours"
    found: list[Setup] = []
    least = math.inf

    def both(one: Setup) -> tuple[float, float]:
        value = amount(one.training, axis)
        return one.training.seconds, math.inf if value is None else value

    for one in sorted(setups, key=both):
        if both(one)[1] < least:
            least = both(one)[1]
            found.append(one)
    return tuple(found)


def choose(
    asked: Asked, places: Sequence[tuple[System, Options]], counts: Sequence[int], *,
    turned: bool = True, notes: tuple[str, ...] = (),
) -> Choice:  # fmt: skip
    """The best of all machines, numbers of devices, software, plans and batches."""
    found: list[Setup] = []
    skipped: list[Skipped] = []
    for system, options in counted(places):
        mine = full_nodes(system, counts)
        some, none = along(asked, system, options, mine)
        found, skipped = found + some, skipped + none
        if beyond := [p for p in counts if p > system.devices]:
            why = f"it has {system.devices}" + (", and others are larger" * (not mine))
            skipped.append(Skipped(system.name, options.software.label, beyond[0], why))
    found = refined(asked, _best_batches(asked, found))
    within = [one for one in found if not one.over and math.isfinite(asked.value(one.training))]
    within.sort(key=lambda one: asked.value(one.training))
    unknown = [one for one in found if not math.isfinite(asked.value(one.training))]
    misses = [one for one in found if one.over and one not in unknown]
    misses.sort(key=distance)
    turns = changes(asked, within) if turned and within else []
    return Choice(asked, tuple(within), tuple(misses), tuple(unknown), tuple(skipped),
                  tuple(turns), notes)  # fmt: skip


def _best_batches(asked: Asked, found: Sequence[Setup]) -> list[Setup]:
    """Of each place the batch with which the training is the shortest."""
    best: dict[tuple[str, str, int], Setup] = {}
    for one in found:
        held = best.get(one.place)
        if held is None or one.training.seconds < held.training.seconds:
            best[one.place] = one
    return list(best.values())


def distance(one: Setup) -> tuple[float, float]:
    """How far it is over the limits: the worst of them, what nobody knows last."""
    known = [ratio for ratio in one.over.values() if ratio is not None]
    return float(len(known) < len(one.over)), max(known, default=math.inf)


def refined(asked: Asked, found: Sequence[Setup]) -> list[Setup]:
    """The setups, those that may be the answer or on the frontier searched in full."""
    setups = list(found)
    for _ in counted(range(REFINED)):
        within = [one for one in setups if not one.over]
        best = min((asked.value(one.training) for one in within), default=math.inf)
        near = [
            one for one in setups
            if not one.refined and asked.value(one.training) <= NEAR * best
            and distance(one)[1] * bool(one.over) <= NEAR
        ]  # fmt: skip
        near += [one for one in frontier(within, asked.objective) if not one.refined]
        if not within and not near:
            near = sorted((one for one in setups if not one.refined), key=distance)[:1]
        if not near:
            break
        one = min(near, key=lambda one: (bool(one.over), asked.value(one.training)))
        whole = ask(asked, one.system, one.shown.options, one.devices, one.batch, brief=False)
        better = whole is not None and whole.training.seconds < one.training.seconds
        setups[setups.index(one)] = whole if whole and better else replace(one, refined=True)
    return setups

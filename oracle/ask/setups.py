"""A machine, a number of its devices, software, a batch and the best plan: what one may choose."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.ask import search
from oracle.ask.batches import batches
from oracle.ask.progress import counted
from oracle.ask.ranking import Ranking
from oracle.models.model import Model
from oracle.predict.estimate import Estimate
from oracle.predict.rates import tokens as tokens_of
from oracle.run.costs import price_of, price_source
from oracle.run.limits import Limits, amount
from oracle.run.target import Training, length, training
from oracle.spec.document import SpecError, refusal
from oracle.spec.options import Options
from oracle.spec.system import System

# tokens of a batch where nobody says it, as of trainings of 2 T: Llama 2 (arXiv 2307.09288, Table 1
# and §2.1: 4 M), BLOOM (arXiv 2211.05100: 2,048 sequences of 2,048)
USUAL_TOKENS = 2**22
SAMPLES = 64  # of a device: where the search for a batch begins
AXES = {"time": "time", "cost": "device_hours", "money": "money", "energy": "energy",
        "carbon": "carbon"}  # fmt: skip

ANYTHING = Limits()


class Refused(Exception):
    """Why one machine, number of devices or software cannot be asked about."""


@dataclass(frozen=True)
class Asked:
    """What is to be trained, for how long, and what it may take."""

    model: Model
    ends: dict[str, Any]  # keyword arguments of `length`
    batch: int | None = None
    batch_per_device: float | None = None
    limits: Limits = ANYTHING
    objective: str = "time"
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    risk: float = 0.05

    def value(self, one: Training) -> float:
        """What a training counts for: the less the better; infinite where nobody knows."""
        found = amount(one, AXES[self.objective])
        return math.inf if found is None else found

    def of(self, shown: Estimate) -> Training:
        """The training under the first plan of an estimate."""
        end = length(shown, 0, **self.ends)
        if end is None:
            hint = "--to-target, --tokens, --epochs or --steps"
            raise refusal("choose", "nobody says how long the training is", hint)
        return training(shown, 0, end)


@dataclass(frozen=True, eq=False)
class Setup:
    """What one may choose, and the whole training on it."""

    system: System
    software: str
    devices: int
    batch: int
    shown: Estimate  # of the plan alone
    training: Training
    over: dict[str, float | None]  # limit -> times what it allows
    sure: float  # probability of keeping to all limits
    refined: bool = False  # by a full search

    @property
    def plan(self) -> str:
        return self.shown.plans[0]

    @property
    def place(self) -> tuple[str, str, int]:
        return self.system.name, self.software, self.devices

    def to_dict(self) -> dict[str, Any]:
        """As data, SI."""
        return {
            "system": self.system.name, "software": self.software, "devices": self.devices,
            "batch": self.batch, "plan": self.plan, "step": float(self.shown.seconds[0]),
            "memory": float(self.shown.memory[0]), "within_limits": not self.over,
            "over": dict(self.over), "probability_within": self.sure,
            "price": self._price, **self.training.to_dict(),
        }  # fmt: skip

    @property
    def _price(self) -> dict[str, Any] | None:
        price = price_of(self.system)
        return None if price is None else {"usd_per_hour": price * 3600,
                                           "source": price_source(self.system)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Skipped:
    """What cannot be chosen, and why."""

    system: str
    software: str
    devices: int
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"system": self.system, "software": self.software, "devices": self.devices,
                "why": self.why}  # fmt: skip


def alike(places: Sequence[System], objective: str) -> tuple[list[System], tuple[str, ...]]:
    """The machines, of the energy of each what is known of all of them; and what is left out.

    They go by their names without changes, where these tell them apart.
    """
    some, notes = list(places), []
    if objective in ("energy", "carbon"):
        for key, what in (("node_power", "nodes beside their devices"), ("pue", "PUE")):
            lacking = [one.name.partition(",")[0] for one in some if getattr(one, key) is None]
            unsaid: dict[str, Any] = {key: None}
            if 0 < len(lacking) < len(some):
                some = [replace(one, **unsaid) for one in some]
                notes.append(f"without {what}: not known of {', '.join(lacking)}")
    bare = [one.name.partition(",")[0] for one in some]
    if len(set(bare)) == len(bare):
        some = [one if one.name == name else replace(one, name=name)
                for one, name in zip(some, bare, strict=True)]  # fmt: skip
    return some, tuple(notes)


def full_nodes(system: System, counts: Iterable[int]) -> list[int]:
    """The counts that a machine has; beyond one node, in whole nodes."""
    node = system.node
    found = (p if p <= node else -(-p // node) * node for p in counts)
    return sorted({p for p in found if p <= system.devices})


def setup(asked: Asked, ranking: Ranking, system: System, refined: bool = False) -> Setup:
    """What the best plan of a ranking comes to."""
    shown = ranking.estimate.take([0])
    whole = asked.of(shown)
    return Setup(
        system, shown.options.software.label, int(shown.devices[0]), ranking.batch, shown, whole,
        asked.limits.over(whole), asked.limits.probability(whole), refined,
    )  # fmt: skip


def ask(
    asked: Asked, system: System, options: Options, devices: int, batch: int, brief: bool
) -> Setup | None:
    """The best plan of so many devices at a batch; None where none fits."""
    try:
        ranking = search.recommend(
            asked.model, system, devices, batch, options, only=asked.only, without=asked.without,
            top=1, risk=asked.risk, brief=brief,
        )  # fmt: skip
    except SpecError as error:
        raise Refused(error.faults[0].what) from None
    return setup(asked, ranking, system, not brief) if len(ranking) else None


def along(
    asked: Asked, system: System, options: Options, counts: Sequence[int]
) -> tuple[list[Setup], list[Skipped]]:
    """The best of each number of devices, at each batch that is worth a look."""
    sizes = free_batches(asked, options)
    found: list[Setup] = []
    skipped: list[Skipped] = []
    lacking: list[int] = []
    at: int | None = None
    for devices in counted(counts):
        try:
            if sizes is None:
                one = ask(asked, system, options, devices, batch_of(asked, devices), brief=True)
                some = [] if one is None else [one]
            else:
                start = _nearest(sizes, SAMPLES * devices) if at is None else at
                some, at = climbed(asked, system, options, devices, sizes, start)
        except Refused as error:
            skipped.append(_skipped(system, options, devices, str(error)))
            continue
        if not some:
            lacking.append(devices)
        found += some
    more, none = searched_again(asked, system, options, lacking, sizes)
    return [*found, *more], [*skipped, *none]


def searched_again(
    asked: Asked, system: System, options: Options, lacking: Sequence[int],
    sizes: Sequence[int] | None,
) -> tuple[list[Setup], list[Skipped]]:  # fmt: skip
    """In full, where a brief search found nothing that fits: most devices first, until none does.

    Fewer devices have less memory in all.
    """
    found: list[Setup] = []
    for number, devices in enumerate(reversed(lacking)):
        batch = batch_of(asked, devices) if sizes is None else sizes[0]
        one = ask(asked, system, options, devices, batch, brief=False)
        if one is None:
            none = list(lacking)[: len(lacking) - number]
            why = "no plan fits its memory"
            return found, [_skipped(system, options, each, why) for each in none]
        found.append(one)
    return found, []


def _skipped(system: System, options: Options, devices: int, why: str) -> Skipped:
    return Skipped(system.name, options.software.label, devices, why)


def climbed(
    asked: Asked, system: System, options: Options, devices: int, sizes: Sequence[int], start: int
) -> tuple[list[Setup], int]:
    """Batches from one on, up and down, as long as the training is the shorter for it.

    On a fixed number of devices whatever a training costs grows with its time. The plan of the
    first batch is carried along; the best is searched for a plan of its own where one of the two
    has fewer samples than devices, so that samples must be split.
    """
    tried: dict[int, Setup | None] = {}

    def seconds(at: int) -> float:
        if at not in tried:
            held = tried.get(start)
            one = None if held is None else carried(asked, held, sizes[at])
            tried[at] = one or ask(asked, system, options, devices, sizes[at], brief=True)
        found = tried[at]
        return math.inf if found is None else found.training.seconds

    at = start
    seconds(start)
    for step in (1, -1):
        while 0 <= at + step < len(sizes) and (
            seconds(at + step) < seconds(at) or math.isinf(seconds(at))
        ):
            at += step
    if sizes[at] != sizes[start] and min(sizes[at], sizes[start]) < devices:
        own = ask(asked, system, options, devices, sizes[at], brief=True)
        if own is not None and own.training.seconds < seconds(at):
            tried[at] = own
    return [one for one in tried.values() if one is not None], at


def carried(asked: Asked, one: Setup, batch: int) -> Setup | None:
    """The same plan at another batch, cut into as many micro-batches or as large ones."""
    from oracle.predict.estimate import estimate

    def cut(by: float) -> str:
        return re.sub(
            r"(accumulate|segments)=(\d+)",
            lambda found: f"{found[1]}={max(1, round(int(found[2]) * by))}", one.plan,
        )  # fmt: skip

    plans = list(dict.fromkeys([one.plan, cut(batch / one.batch)]))
    shown = estimate(asked.model, one.system, plans, batch, one.shown.options)
    fits = [row for row in range(len(plans)) if not shown.broken[row]]
    if not fits:
        return None
    shown = shown.take([min(fits, key=lambda row: float(shown.seconds[row]))])
    whole = asked.of(shown)
    return replace(one, batch=batch, shown=shown, training=whole, over=asked.limits.over(whole),
                   sure=asked.limits.probability(whole), refined=False)  # fmt: skip


def _nearest(sizes: Sequence[int], batch: float) -> int:
    return int(np.argmin(np.abs(np.log(np.array(sizes, float) / batch))))


def free_batches(asked: Asked, options: Options) -> list[int] | None:
    """Batches to choose from; None where there is one for each number of devices."""
    said = asked.batch is not None or asked.batch_per_device is not None
    if said or not asked.ends.get("target"):
        return None
    return list(batches(asked.model, options.optimizer))


def batch_of(asked: Asked, devices: int) -> int:
    """The batch that was said, or one of as many tokens as is usual."""
    if asked.batch is not None:
        return asked.batch
    if asked.batch_per_device is not None:
        return max(1, round(asked.batch_per_device * devices))
    each = tokens_of(asked.model)
    if not each:
        what = f"a batch of {asked.model.name} is not said"
        raise refusal("choose", what, "--batch, --batch-per-device, or --to-target")
    return max(1, round(USUAL_TOKENS / each))


def again(asked: Asked, one: Setup, system: System) -> Setup | None:
    """The same plan and batch on a machine that is supposed; None where it does not fit."""
    from oracle.predict.estimate import estimate

    options = one.shown.options
    shown = estimate(asked.model, system, [one.plan], one.batch, options)
    if shown.broken[0]:
        return None
    whole = asked.of(shown)
    return replace(one, system=system, shown=shown, training=whole, over=asked.limits.over(whole))

"""Combined scalability: a search, data and model parallelism on more and more nodes.

    product   S_search(c) · S_data(p) · S_model(m), each of them alone
    honest    T(1)/T(N), of the fastest way there is

The product is what is often printed of such combinations [heye2018]. It takes trials for
divisible, lets the batch grow with the devices that share it, b a device, without more epochs, and
each factor for as good with the others as it is alone. By how much it says too much is told by
waves (⌈R/c⌉ against R/c), epochs (those of the batch) and steps (samples a second).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oracle.ask import search
from oracle.ask.largest import largest_batch
from oracle.ask.progress import counted
from oracle.ask.trials import Trial, Trials
from oracle.ask.workflow import Campaign, Part, campaign
from oracle.plan.plan import parse
from oracle.predict.estimate import estimate
from oracle.spec.document import SpecError
from oracle.spec.tabular import Tabular

TOLD = 1.02  # times that the product says too much, from which on it is told why


@dataclass(frozen=True)
class Row:
    """So many nodes: the fastest way, and what the product of its factors would promise."""

    campaign: Campaign
    factors: dict[str, float]  # search, data, model; none where they cannot be told
    degrees: tuple[int, int]  # of data parallelism, of all else
    product: float | None  # speed-up against one node
    losses: dict[str, float]  # waves, epochs, steps: times that each makes it longer

    @property
    def honest(self) -> float | None:
        return self.campaign.speedup

    @property
    def overstated(self) -> float | None:
        """How many times the product is what is true."""
        return self.product / self.honest if self.product and self.honest else None

    @property
    def cause(self) -> str:
        """What the product leaves out by most; nothing where it is about right."""
        most = max(self.losses, key=lambda name: self.losses[name], default="")
        return most if most and self.losses[most] > TOLD else ""


@dataclass(frozen=True, eq=False, repr=False)
class Combined(Tabular):
    """The table, from few nodes to many."""

    trials: Trials
    lines: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.lines)

    def says(self) -> str:
        """Over which numbers of nodes."""
        nodes = [one.campaign.nodes for one in self.lines]
        return f"{self.trials.model.name}, {min(nodes)} to {max(nodes)} nodes"

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a number of nodes."""
        return [
            {
                "nodes": one.campaign.nodes, "status": "ok" if one.campaign.parts else "infeasible",
                "seconds": one.campaign.seconds if one.campaign.parts else None,
                **_each(one),
                **{f"{name}_speedup": one.factors.get(name)
                   for name in ("search", "data", "model")},
                "product": one.product, "honest": one.honest if one.campaign.parts else None,
                "overstated": one.overstated if one.campaign.parts else None,
                **{f"{name}_loss": one.losses.get(name) for name in ("waves", "epochs", "steps")},
            }
            for one in self.lines
        ]  # fmt: skip


def _each(one: Row) -> dict[str, Any]:
    names = ("at_once", "devices_each", "data", "model", "batch", "plan")
    if not one.campaign.parts:
        return dict.fromkeys(names)
    main = one.campaign.main
    values = (
        one.campaign.widest.at_once,
        main.trial.devices,
        *one.degrees,
        main.trial.batch,
        main.trial.plan,
    )
    return dict(zip(names, values, strict=True))


def combined(trials: Trials, nodes: Sequence[int]) -> Combined:
    """The table over numbers of nodes."""
    alone = Alone(trials)
    return Combined(trials, tuple(alone.row(campaign(trials, count)) for count in counted(nodes)))


class Alone:
    """Each factor by itself: one device, data parallelism, any other."""

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self.unit = trials.of(1)
        self.each = 1 if self.unit is None else self._batch()
        self._rates: dict[tuple[str, int], float | None] = {}

    def _batch(self) -> int:
        """b: the largest batch of one device that fits, a power of two."""
        trials, options = self.trials, self.trials.options
        most = largest_batch(trials.model, trials.system, ["data:1"], options)
        return int(2 ** math.floor(math.log2(max(1.0, min(float(most[0]), trials.most)))))

    def rate(self, what: str, degree: int) -> float | None:
        """Samples a second of data parallelism at b a device, or of anything else at b in all."""
        if (what, degree) not in self._rates:
            data = what == "data"
            batch = self.each * (degree if data else 1)
            self._rates[what, degree] = self._fastest(degree, batch, data)
        return self._rates[what, degree]

    def _fastest(self, degree: int, batch: int, data: bool) -> float | None:
        trials = self.trials
        if degree == 1:
            one = estimate(trials.model, trials.system, ["data:1"], float(batch), trials.options)
            return batch / float(one.seconds[0])
        chosen: dict[str, Any] = {"only": ("data",)} if data else {"without": ("data",)}
        try:
            found = search.recommend(trials.model, trials.system, degree, batch, trials.options,
                                     top=1, **chosen)  # fmt: skip
        except SpecError:
            return None
        return batch / float(found.estimate.seconds[0]) if len(found) else None

    def row(self, found: Campaign) -> Row:
        """One line of the table."""
        if not found.parts or self.unit is None:
            return Row(found, {}, (1, 1), None, {})
        main, one = found.main, self.rate("data", 1)
        faster: list[tuple[float, float]] = []  # data, model: of each stage
        for part in found.parts:
            data, model = degrees(part.trial)
            rates = self.rate("data", data), self.rate("model", model)
            if one is None or rates[0] is None or rates[1] is None:
                return Row(found, {}, degrees(main.trial), None, {})
            faster.append((rates[0] / one, rates[1] / one))
        even = [self._even(found, part) for part in found.parts]
        alone = self.unit.training.seconds
        promised = sum(
            count * alone / math.prod(times) for count, times in zip(even, faster, strict=True)
        )
        at = found.parts.index(main)
        factors = {"search": self._work() / sum(even), "data": faster[at][0],
                   "model": faster[at][1]}  # fmt: skip
        product = (found.one_node or found.seconds) / promised
        dealt = sum(count * part.trial.training.seconds
                    for count, part in zip(even, found.parts, strict=True))  # fmt: skip
        epochs = main.trial.samples / self.unit.samples
        losses = {"waves": found.seconds / dealt, "epochs": epochs,
                  "steps": dealt / promised / epochs}  # fmt: skip
        return Row(found, factors, degrees(main.trial), product, losses)

    def _even(self, found: Campaign, part: Part) -> float:
        """Whole trainings one after the other, if a stage's could be dealt out evenly."""
        resized = self.trials.asked.search.search.resized
        width = part.at_once if resized else found.widest.at_once
        return part.stage.trials * part.stage.share * part.stage.times / width

    def _work(self) -> float:
        """Whole trainings of a search that runs one at a time."""
        asked = self.trials.asked
        stages = asked.search.search.stages(asked.trials, 1)
        return sum(one.trials * one.share * one.times for one in stages)


def degrees(trial: Trial) -> tuple[int, int]:
    """How wide a plan is in data parallelism, and in all else."""
    plan = parse(trial.plan, float(trial.batch))
    wide = [int(axis.degree[0, 0]) for axis in plan.axes if axis.deals_batch and axis.multiplies]
    data = math.prod(wide)
    return data, trial.devices // data

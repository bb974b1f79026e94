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
from oracle.ask.trials import Trial, Trials
from oracle.ask.workflow import Campaign, Part, campaign
from oracle.plan.plan import parse
from oracle.predict.estimate import estimate
from oracle.run.searches import Stage
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


@dataclass(frozen=True, eq=False)
class Combined(Tabular):
    """The table, from few nodes to many."""

    trials: Trials
    lines: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.lines)

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
    values = (main.at_once, main.trial.devices, *one.degrees, main.trial.batch, main.trial.plan)
    return dict(zip(names, values, strict=True))


def combined(trials: Trials, nodes: Sequence[int]) -> Combined:
    """The table over numbers of nodes."""
    alone = Alone(trials)
    return Combined(trials, tuple(alone.row(campaign(trials, count)) for count in nodes))


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
        main = found.main
        data, model = degrees(main.trial)
        rates = [self.rate(*each) for each in (("data", 1), ("data", data), ("model", model))]
        if None in rates:
            return Row(found, {}, (data, model), None, {})
        one, with_data, with_model = (float(rate or 0.0) for rate in rates)
        factors = {"search": self._search(main.at_once), "data": with_data / one,
                   "model": with_model / one}  # fmt: skip
        single = self._one_by_one()
        base = found.one_node or found.seconds
        product = base * math.prod(factors.values()) / single
        return Row(found, factors, (data, model), product, self._losses(main, factors, one))

    def _stages(self, count: int) -> list[Stage]:
        asked = self.trials.asked
        return asked.search.search.stages(asked.trials, count)

    def _work(self, count: int) -> float:
        """Whole trainings that the search takes."""
        return sum(one.trials * one.share * one.times for one in self._stages(count))

    def _search(self, count: int) -> float:
        """Speed-up of so many trials at once, if they could be dealt out evenly."""
        return self._work(1) / self._work(count) * count

    def _one_by_one(self) -> float:
        """Seconds of the search on one device."""
        unit = self.unit
        assert unit is not None
        return self._work(1) * unit.training.seconds

    def _losses(self, main: Part, factors: dict[str, float], one: float) -> dict[str, float]:
        unit, trial = self.unit, main.trial
        assert unit is not None
        units = main.seconds / trial.training.seconds  # of a training's time
        stage = main.stage
        even = stage.trials * stage.share * stage.times / main.at_once
        rate = trial.samples / trial.training.seconds
        alone = unit.samples / unit.training.seconds
        return {"waves": units / even, "epochs": trial.samples / unit.samples,
                "steps": factors["data"] * factors["model"] * alone / rate}  # fmt: skip


def degrees(trial: Trial) -> tuple[int, int]:
    """How wide a plan is in data parallelism, and in all else."""
    plan = parse(trial.plan, float(trial.batch))
    wide = [int(axis.degree[0, 0]) for axis in plan.axes if axis.deals_batch and axis.multiplies]
    data = math.prod(wide)
    return data, trial.devices // data

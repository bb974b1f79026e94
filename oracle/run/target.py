"""Seconds until a training ends: at a target, or after so many epochs, steps or tokens.

T = S T_step / goodput,      S = e(B) D/B to a target, tokens/(B n) for text of n tokens a sample

Where nobody says how often the machine fails, the goodput is 1, and the answer says so. It names
`data`, whose gradients may be sent whole in the first steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.plan.plan import Plan
from oracle.predict.estimate import Estimate, estimate
from oracle.predict.rates import tokens as tokens_of
from oracle.run.convergence import Law
from oracle.run.costs import Costs
from oracle.run.critical import critical_batch, worth
from oracle.run.evaluation import evaluated
from oracle.run.failures import Goodput, goodput_of
from oracle.run.lossy import lossy
from oracle.run.spent import costs_of
from oracle.spec.convergence import Convergence
from oracle.spec.document import refusal
from oracle.spec.doubt import NINETY
from oracle.spec.units import show

ELSEWHERE = math.log(2) / NINETY  # 1σ of what one optimizer's runs say of another: a factor of 2


@dataclass(frozen=True, slots=True)
class Length:
    """How long a training is, at one batch."""

    steps: float
    deviation: float  # relative, 1σ
    words: str  # what ends it
    origin: str  # fitted, stated, assumed; `given` where the user said so
    epochs: float | None = None
    critical_batch: float | None = None
    beyond: float | None = None  # the largest batch with which a run met the target, if below
    worth: float | None = None  # of tokens above the critical batch: those of a small one


@dataclass(frozen=True, slots=True)
class Training:
    """A whole training under one plan, with its 90 % interval."""

    length: Length
    seconds: float
    low: float
    high: float
    device_hours: float
    costs: Costs
    goodput: Goodput
    evaluation: float | None = None  # seconds of it; None: nobody says how it is evaluated

    def to_dict(self) -> dict[str, Any]:
        """As data, SI."""
        one = self.length
        unevaluated = ["dataset.evaluation"] * (self.evaluation is None and one.epochs is not None)
        return {
            "ends": one.words, "origin": one.origin, "steps": one.steps, "epochs": one.epochs,
            "seconds": self.seconds, "low": self.low, "high": self.high,
            "device_hours": self.device_hours, "critical_batch": one.critical_batch,
            "largest_batch": one.beyond, "worth": one.worth,
            **{name: getattr(self.costs, name) for name in ("money", "energy", "carbon")},
            "evaluation": self.evaluation,
            "energy_low": self.costs.energy_low, "energy_high": self.costs.energy_high,
            "unknown": [*self.costs.unknown, *unevaluated], "goodput": self.goodput.to_dict(),
        }  # fmt: skip


def law_of(one: Convergence, samples: float) -> Law:
    """The law of an entry of a model, in epochs of so many samples."""
    epochs = one.epochs if one.epochs is not None else (one.samples or 0.0) / samples
    critical = math.inf if one.critical_batch is None else one.critical_batch
    return Law(epochs, critical, one.scatter, one.smallest, one.largest)


def to_target(shown: Estimate, row: int = 0) -> Length:
    """Steps until the model's target is met, as runs of the same optimizer needed."""
    model, optimizer = shown.model, shown.options.optimizer
    known, data = model.convergence, model.dataset
    if not known or data is None:
        what = f"nobody says how long {model.name} trains to any target"
        hint = "--epochs, --tokens or --steps; or `convergence:` in its spec"
        raise refusal("to-target", what, hint)
    same = [one for one in known if one.optimizer == optimizer]
    one = (same or list(known))[0]
    batch, law = float(shown.batch[row]), law_of(one, data.samples)
    less = lossy(shown.work[row].plan)
    epochs = float(law.at(batch)) * less.factor
    deviation = float(np.hypot(law.deviation(batch), less.deviation))
    words, origin = one.target, one.origin
    if not same:
        words += f", as with {one.optimizer}"
        deviation, origin = float(np.hypot(deviation, ELSEWHERE)), "assumed"
    if less.why:
        words, origin = f"{words}, {less.words}", "assumed"
    return Length(
        math.ceil(epochs * data.samples / batch), deviation, words, origin, epochs,
        one.critical_batch, law.largest if batch > law.largest else None,
    )  # fmt: skip


def given(
    shown: Estimate, row: int = 0, *, epochs: float | None = None, tokens: float | None = None,
    steps: float | None = None,
) -> Length:  # fmt: skip
    """A training as long as somebody said: in epochs, tokens or steps."""
    batch, data = float(shown.batch[row]), shown.model.dataset
    if steps is not None:
        return Length(float(steps), 0.0, f"{steps:,.0f} steps", "given")
    if tokens is not None:
        each = tokens_of(shown.model)
        if not each:
            hint = "--epochs or --steps"
            raise refusal("tokens", f"{shown.model.name} is not trained on text", hint)
        most, words = critical_batch(tokens) / each, f"{show(tokens, '', 4).strip()} tokens"
        less = worth(tokens, batch * each) if batch > most else None
        return Length(math.ceil(tokens / (batch * each)), 0.0, words, "given",
                      critical_batch=most, worth=less)  # fmt: skip
    if epochs is None:
        raise ValueError("how long it is must be said")
    if data is None:
        raise refusal("epochs", f"{shown.model.name} has no data set", "--dataset, or --steps")
    words = f"{epochs:g} epochs of {data.name}"
    return Length(math.ceil(epochs * data.samples / batch), 0.0, words, "given", float(epochs))


def length(
    shown: Estimate, row: int = 0, *, target: bool = False, epochs: float | None = None,
    tokens: float | None = None, steps: float | None = None,
) -> Length | None:  # fmt: skip
    """How long a training was asked to be; None where nobody asked."""
    if target:
        return to_target(shown, row)
    if (epochs, tokens, steps) == (None, None, None):
        return None
    return given(shown, row, epochs=epochs, tokens=tokens, steps=steps)


def training(shown: Estimate, row: int, length: Length) -> Training:
    """So many steps of one plan, with what reading takes once and what failures take on the way."""
    mid, read, found = float(shown.seconds[row]), shown.reading[row], goodput_of(shown, row)
    seconds = length.steps * mid * found.times * whole_first(shown, row)
    if read is not None:
        seconds += read["once"]
    tested = evaluated(shown, row, length.epochs)
    seconds += tested or 0.0
    low, high = (
        math.log(max(end, 1e-300) / mid)
        for end in (float(shown.seconds_low[row]), float(shown.seconds_high[row]))
    )
    own, (shorter, longer) = NINETY * length.deviation, found.spread(seconds)
    down, up = math.hypot(low, own, shorter), math.hypot(high, own, longer)
    devices = float(shown.devices[row])
    return Training(
        length, seconds, seconds * math.exp(-down), seconds * math.exp(min(up, 50.0)),
        seconds * devices / 3600,
        costs_of(shown, row, seconds, found.working), found, tested,
    )  # fmt: skip


def whole_first(shown: Estimate, row: int) -> float:
    """What steps take more on average where the first of them send gradients whole.

    w T_dense/T + 1 − w
    """
    plan = shown.work[row].plan
    share = lossy(plan).warm_up
    if not share:
        return 1.0
    data = plan.axis("data")
    whole = replace(data, compress=0 * data.degree)
    dense = Plan(plan.batch, tuple(whole if axis is data else axis for axis in plan.axes))
    first = estimate(shown.model, shown.system, dense, float(shown.batch[row]), shown.options)
    return float(share * first.seconds[0] / shown.seconds[row] + 1 - share)

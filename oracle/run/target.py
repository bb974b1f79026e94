"""Seconds until a training ends: at a target, or after a number of epochs, steps or tokens.

T = S T_step / goodput,      S = e(B) D/B to a target, tokens/(B n) for text of n tokens a sample

Where the machine's failures are unknown, the goodput is 1, and the answer says so. It names `data`,
whose gradients may be sent whole in the first steps.
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

ELSEWHERE = math.log(2) / NINETY  # 1σ of epochs taken from another optimizer's runs: a factor of 2


@dataclass(frozen=True, slots=True)
class Length:
    """The length of a training, at one batch."""

    steps: float
    deviation: float  # relative, 1σ
    words: str  # what ends it
    origin: str  # fitted, stated, assumed; `given` where the user said so
    epochs: float | None = None
    critical_batch: float | None = None
    beyond: float | None = None  # the largest batch of a run that met the target, if below
    worth: float | None = None  # of tokens above the critical batch, in tokens of a small one


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
    evaluation: float | None = None  # seconds of all evaluations; None where the data set has none

    def to_dict(self) -> dict[str, Any]:
        """Return data in SI."""
        length = self.length
        unevaluated = ["dataset.evaluation"] * (
            self.evaluation is None and length.epochs is not None
        )
        return {
            "ends": length.words, "origin": length.origin, "steps": length.steps,
            "epochs": length.epochs, "seconds": self.seconds, "low": self.low, "high": self.high,
            "device_hours": self.device_hours, "critical_batch": length.critical_batch,
            "largest_batch": length.beyond, "worth": length.worth,
            **{name: getattr(self.costs, name) for name in ("money", "energy", "carbon")},
            "evaluation": self.evaluation, "energy_low": self.costs.energy_low,
            "energy_high": self.costs.energy_high, "unknown": [*self.costs.unknown, *unevaluated],
            "goodput": self.goodput.to_dict(),
        }  # fmt: skip


def law_of(entry: Convergence, samples: float) -> Law:
    """Return the law of a model's entry, in epochs of a number of samples."""
    epochs = entry.epochs if entry.epochs is not None else (entry.samples or 0.0) / samples
    critical = math.inf if entry.critical_batch is None else entry.critical_batch
    return Law(epochs, critical, entry.scatter, entry.smallest, entry.largest)


def to_target(predicted: Estimate, row: int = 0) -> Length:
    """Return the steps until the model's target is met, by runs of the same optimizer."""
    model, optimizer = predicted.model, predicted.options.optimizer
    entries, data = model.convergence, model.dataset
    if not entries or data is None:
        complaint = f"nobody says how long {model.name} trains to any target"
        hint = "--epochs, --tokens or --steps; or `convergence:` in its spec"
        raise refusal("to-target", complaint, hint)
    same = [entry for entry in entries if entry.optimizer == optimizer]
    entry = (same or list(entries))[0]
    batch, law = float(predicted.batch[row]), law_of(entry, data.samples)
    less = lossy(predicted.work[row].plan)
    epochs = float(law.epochs_at(batch)) * less.factor
    deviation = float(np.hypot(law.deviation(batch), less.deviation))
    words, origin = entry.target, entry.origin
    if not same:
        words += f", as with {entry.optimizer}"
        deviation, origin = float(np.hypot(deviation, ELSEWHERE)), "assumed"
    if less.why:
        words, origin = f"{words}, {less.words}", "assumed"
    return Length(
        math.ceil(epochs * data.samples / batch), deviation, words, origin, epochs,
        entry.critical_batch, law.largest if batch > law.largest else None,
    )  # fmt: skip


def given(
    predicted: Estimate, row: int = 0, *, epochs: float | None = None, tokens: float | None = None,
    steps: float | None = None,
) -> Length:  # fmt: skip
    """Return the length that the user states in epochs, tokens or steps."""
    batch, data = float(predicted.batch[row]), predicted.model.dataset
    if steps is not None:
        return Length(float(steps), 0.0, f"{steps:,.0f} steps", "given")
    if tokens is not None:
        tokens_a_sample = tokens_of(predicted.model)
        if not tokens_a_sample:
            hint = "--epochs or --steps"
            raise refusal("tokens", f"{predicted.model.name} is not trained on text", hint)
        critical, words = (
            critical_batch(tokens) / tokens_a_sample,
            f"{show(tokens, '', 4).strip()} tokens",
        )
        less = worth(tokens, batch * tokens_a_sample) if batch > critical else None
        return Length(math.ceil(tokens / (batch * tokens_a_sample)), 0.0, words, "given",
                      critical_batch=critical, worth=less)  # fmt: skip
    if epochs is None:
        raise ValueError("how long it is must be said")
    if data is None:
        raise refusal("epochs", f"{predicted.model.name} has no data set", "--dataset, or --steps")
    words = f"{epochs:g} epochs of {data.name}"
    return Length(math.ceil(epochs * data.samples / batch), 0.0, words, "given", float(epochs))


def length(
    predicted: Estimate, row: int = 0, *, target: bool = False, epochs: float | None = None,
    tokens: float | None = None, steps: float | None = None,
) -> Length | None:  # fmt: skip
    """Return the length of a training, or None where the user states none."""
    if target:
        return to_target(predicted, row)
    if (epochs, tokens, steps) == (None, None, None):
        return None
    return given(predicted, row, epochs=epochs, tokens=tokens, steps=steps)


def training(predicted: Estimate, row: int, length: Length) -> Training:
    """Return a training of one plan, with reading that occurs once and with failures."""
    mid, read, goodput = (
        float(predicted.seconds[row]),
        predicted.reading[row],
        goodput_of(predicted, row),
    )
    seconds = length.steps * mid * goodput.times * whole_first(predicted, row)
    if read is not None:
        seconds += read["once"]
    tested = evaluated(predicted, row, length.epochs)
    seconds += tested or 0.0
    low, high = (
        math.log(max(end, 1e-300) / mid)
        for end in (float(predicted.seconds_low[row]), float(predicted.seconds_high[row]))
    )
    of_length, (shorter, longer) = NINETY * length.deviation, goodput.spread(seconds)
    down, up = math.hypot(low, of_length, shorter), math.hypot(high, of_length, longer)
    devices = float(predicted.devices[row])
    return Training(
        length, seconds, seconds * math.exp(-down), seconds * math.exp(min(up, 50.0)),
        seconds * devices / 3600,
        costs_of(predicted, row, seconds, goodput.working), goodput, tested,
    )  # fmt: skip


def whole_first(predicted: Estimate, row: int) -> float:
    """Return the mean factor of a step's time if the first steps send gradients whole.

    w T_dense/T + 1 − w
    """
    plan = predicted.work[row].plan
    share = lossy(plan).warm_up
    if not share:
        return 1.0
    data = plan.axis("data")
    uncompressed = replace(data, compress=0 * data.degree)
    dense = Plan(plan.batch, tuple(uncompressed if axis is data else axis for axis in plan.axes))
    first = estimate(
        predicted.model, predicted.system, dense, float(predicted.batch[row]), predicted.options
    )
    return float(share * first.seconds[0] / predicted.seconds[row] + 1 - share)

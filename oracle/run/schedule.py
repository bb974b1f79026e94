"""A batch that grows while a training runs, phase by phase [smith2018; mccandlish2018, §2.3].

    T = Σ_k Δe_k D/B_k T_step(B_k)          epochs Δe_k in phase k, D/B_k steps each
    Σ_k Δe_k / e(B_k) = 1                   to a target: an epoch at B makes 1/e(B) of the way

A small batch needs fewer epochs, a large one fewer steps; each phase may have its own plan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from oracle.predict.estimate import Estimate
from oracle.run.target import Length, Training, given, to_target, training
from oracle.spec.document import refusal

SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
LARGEST = 64  # number of phases


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a batch, in epochs, tokens or steps, the unit of the end."""

    at: float
    batch: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a training at one batch, under one plan."""

    start: float
    end: float
    unit: str  # epochs, tokens, steps
    batch: int
    plan: str
    devices: int
    training: Training

    def to_dict(self) -> dict[str, Any]:
        training = self.training
        return {
            "start": self.start, "end": self.end, "unit": self.unit, "batch": self.batch,
            "plan": self.plan, "devices": self.devices, "steps": training.length.steps,
            "seconds": training.seconds, "low": training.low, "high": training.high,
            "device_hours": training.device_hours,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A whole training in phases, with their sums."""

    phases: tuple[Phase, ...]
    words: str  # what ends it
    origin: str

    def total(self, name: str) -> float:
        """Return the seconds, an end of their interval, or the device-hours of all phases.

        All phases share their unknowns, so the ends add up.
        """
        return float(sum(getattr(phase.training, name) for phase in self.phases))

    def to_dict(self) -> dict[str, Any]:
        costs = {}
        for name in ("money", "energy", "carbon"):
            amounts = [getattr(phase.training.costs, name) for phase in self.phases]
            costs[name] = None if None in amounts else sum(amounts)
        beyond = max((phase.training.length.beyond or 0 for phase in self.phases), default=0)
        return {
            "ends": self.words, "origin": self.origin,
            "steps": sum(phase.training.length.steps for phase in self.phases),
            **{name: self.total(name) for name in ("seconds", "low", "high", "device_hours")},
            "largest_batch": beyond or None, **costs,
        }  # fmt: skip


def parsed(text: str) -> tuple[Start, ...]:
    """Return the phases of `0:8192 30:16384`; starts may be `252M` or `2.87T` of tokens."""
    words, starts = text.replace(",", " ").split(), []
    hint = "0:8192 30:16384: from when on, and the batch"
    for word in words:
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([kKMGBT]?):([0-9]{1,15})", word)
        if not match or not int(match[3]) >= 1:
            raise refusal("schedule", f"`{word[:40]}` is no phase", hint)
        starts.append(Start(float(match[1]) * SCALES[match[2]], int(match[3])))
    if not 1 <= len(starts) <= LARGEST:
        raise refusal("schedule", f"{len(starts)} phases", f"from 1 to {LARGEST}")
    if starts[0].at:
        raise refusal("schedule", "nothing says the batch at the beginning", "0:8192 …")
    if any(earlier.at >= later.at for earlier, later in pairwise(starts)):
        raise refusal("schedule", "a phase begins before the one before it does", hint)
    return tuple(starts)


def scheduled(
    starts: Sequence[Start], predictions: Sequence[Estimate], *, target: bool = False,
    epochs: float | None = None, tokens: float | None = None, steps: float | None = None,
) -> Scheduled:  # fmt: skip
    """Return the training of these phases, each under the first plan of its estimate.

    Costs that occur once, as staging, occur before the first; a target may be met before the last.
    """
    ends = [begin.at for begin in starts[1:]]
    if target:
        lengths = [to_target(predicted) for predicted in predictions]
        spans, unit = _until_met(starts, [met.epochs or 0.0 for met in lengths]), "epochs"
        words, origin = lengths[0].words, lengths[0].origin
    else:
        unit, total = _stated_end(epochs, tokens, steps)
        if ends and total <= ends[-1]:
            complaint = (
                f"the last phase begins at {ends[-1]:g} {unit}, the training ends at {total:g}"
            )
            raise refusal("schedule", complaint, "a longer training, or fewer phases")
        spans = list(zip([0.0, *ends], [*ends, total], strict=True))
        lengths = [
            given(predicted, epochs=epochs, tokens=tokens, steps=steps) for predicted in predictions
        ]
        words, origin = lengths[0].words, "given"
    phases = []
    for number, ((start, end), begin, predicted, length) in enumerate(
        zip(spans, starts, predictions, lengths, strict=False)
    ):
        part = _part(predicted, length, unit, end - start)
        of_phase = training(predicted, 0, part)
        if number and (read := predicted.reading[0]) is not None:
            once = read["once"]
            of_phase = replace(of_phase, seconds=of_phase.seconds - once, low=of_phase.low - once,
                               high=of_phase.high - once)  # fmt: skip
        phases.append(
            Phase(
                start, end, unit, begin.batch, predicted.plans[0], int(predicted.devices[0]),
                of_phase,
            )
        )  # fmt: skip
    return Scheduled(tuple(phases), words, origin)


def _stated_end(
    epochs: float | None, tokens: float | None, steps: float | None
) -> tuple[str, float]:  # fmt: skip
    for unit, value in (("epochs", epochs), ("tokens", tokens), ("steps", steps)):
        if value is not None:
            return unit, value
    raise refusal("schedule", "nothing says when the training ends",
                  "--epochs, --tokens, --steps or --to-target")  # fmt: skip


def _until_met(starts: Sequence[Start], needed: Sequence[float]) -> list[tuple[float, float]]:
    """Return the epochs of each phase until the target is met, without later phases."""
    spans, left = [], 1.0
    for number, (start, epochs) in enumerate(zip(starts, needed, strict=True)):
        last = number + 1 == len(starts)
        end = math.inf if last else starts[number + 1].at
        met = start.at + left * epochs
        spans.append((start.at, min(end, met)))
        left -= (end - start.at) / epochs
        if met <= end:
            break
    return spans


def _part(predicted: Estimate, of_training: Length, unit: str, span: float) -> Length:
    """Return the length of a phase: epochs, tokens or steps at its own batch."""
    ends: dict[str, Any] = {unit: span}
    of_phase = given(predicted, **ends)
    return replace(
        of_phase, deviation=of_training.deviation, beyond=of_training.beyond,
        origin=of_training.origin, words=of_training.words,
    )  # fmt: skip

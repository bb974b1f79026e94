"""A batch that grows while a training runs, phase by phase [smith2018; mccandlish2018, §2.3].

    T = Σ_k Δe_k D/B_k T_step(B_k)          epochs Δe_k in phase k, D/B_k steps each
    Σ_k Δe_k / e(B_k) = 1                   to a target: an epoch at B makes 1/e(B) of the way

A small batch needs fewer epochs, a large one fewer steps; each phase may have a plan of its own.
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
MOST = 64  # phases


@dataclass(frozen=True, slots=True)
class Start:
    """From when on which batch is trained with: in epochs, tokens or steps, as the end is."""

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
        one = self.training
        return {
            "start": self.start, "end": self.end, "unit": self.unit, "batch": self.batch,
            "plan": self.plan, "devices": self.devices, "steps": one.length.steps,
            "seconds": one.seconds, "low": one.low, "high": one.high,
            "device_hours": one.device_hours,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A whole training in phases: the phases, and what they come to."""

    phases: tuple[Phase, ...]
    words: str  # what ends it
    origin: str

    def total(self, name: str) -> float:
        """Seconds, an end of their interval, or device-hours of all phases.

        What is not known of one phase is not known of the others: ends add up.
        """
        return float(sum(getattr(phase.training, name) for phase in self.phases))

    def to_dict(self) -> dict[str, Any]:
        known = {}
        for name in ("money", "energy", "carbon"):
            each = [getattr(phase.training.costs, name) for phase in self.phases]
            known[name] = None if None in each else sum(each)
        beyond = max((phase.training.length.beyond or 0 for phase in self.phases), default=0)
        return {
            "ends": self.words, "origin": self.origin,
            "steps": sum(phase.training.length.steps for phase in self.phases),
            **{name: self.total(name) for name in ("seconds", "low", "high", "device_hours")},
            "largest_batch": beyond or None, **known,
        }  # fmt: skip


def parsed(text: str) -> tuple[Start, ...]:
    """The phases of `0:8192 30:16384 60:32768`; starts may be `252M` or `2.87T`, of tokens."""
    words, found = text.replace(",", " ").split(), []
    hint = "0:8192 30:16384: from when on, and the batch"
    for word in words:
        said = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([kKMGBT]?):([0-9]{1,15})", word)
        if not said or not int(said[3]) >= 1:
            raise refusal("schedule", f"`{word[:40]}` is no phase", hint)
        found.append(Start(float(said[1]) * SCALES[said[2]], int(said[3])))
    if not 1 <= len(found) <= MOST:
        raise refusal("schedule", f"{len(found)} phases", f"from 1 to {MOST}")
    if found[0].at:
        raise refusal("schedule", "nothing says the batch at the beginning", "0:8192 …")
    if any(one.at >= other.at for one, other in pairwise(found)):
        raise refusal("schedule", "a phase begins before the one before it does", hint)
    return tuple(found)


def scheduled(
    starts: Sequence[Start], shown: Sequence[Estimate], *, target: bool = False,
    epochs: float | None = None, tokens: float | None = None, steps: float | None = None,
) -> Scheduled:  # fmt: skip
    """The training of these phases, each under the first plan of its estimate.

    What is done once, as staging, is done before the first; a target may be met before the last.
    """
    ends = [one.at for one in starts[1:]]
    if target:
        lengths = [to_target(each) for each in shown]
        spans, unit = _until_met(starts, [one.epochs or 0.0 for one in lengths]), "epochs"
        words, origin = lengths[0].words, lengths[0].origin
    else:
        unit, whole = _whole(epochs, tokens, steps)
        if ends and whole <= ends[-1]:
            what = f"the last phase begins at {ends[-1]:g} {unit}, the training ends at {whole:g}"
            raise refusal("schedule", what, "a longer training, or fewer phases")
        spans = list(zip([0.0, *ends], [*ends, whole], strict=True))
        lengths = [given(each, epochs=epochs, tokens=tokens, steps=steps) for each in shown]
        words, origin = lengths[0].words, "given"
    phases = []
    for number, ((start, end), one, each, length) in enumerate(
        zip(spans, starts, shown, lengths, strict=False)
    ):
        part = _part(each, length, unit, end - start)
        found = training(each, 0, part)
        if number and (read := each.reading[0]) is not None:
            once = read["once"]
            found = replace(found, seconds=found.seconds - once, low=found.low - once,
                            high=found.high - once)  # fmt: skip
        phases.append(
            Phase(start, end, unit, one.batch, each.plans[0], int(each.devices[0]), found)
        )
    return Scheduled(tuple(phases), words, origin)


def _whole(
    epochs: float | None, tokens: float | None, steps: float | None
) -> tuple[str, float]:  # fmt: skip
    for unit, value in (("epochs", epochs), ("tokens", tokens), ("steps", steps)):
        if value is not None:
            return unit, value
    raise refusal("schedule", "nothing says when the training ends",
                  "--epochs, --tokens, --steps or --to-target")  # fmt: skip


def _until_met(starts: Sequence[Start], needed: Sequence[float]) -> list[tuple[float, float]]:
    """Epochs of each phase until all of the way is made; phases that come later are left out."""
    found, left = [], 1.0
    for number, (one, epochs) in enumerate(zip(starts, needed, strict=True)):
        last = number + 1 == len(starts)
        end = math.inf if last else starts[number + 1].at
        met = one.at + left * epochs
        found.append((one.at, min(end, met)))
        left -= (end - one.at) / epochs
        if met <= end:
            break
    return found


def _part(shown: Estimate, whole: Length, unit: str, span: float) -> Length:
    """The length of a phase: so many epochs, tokens or steps at its own batch."""
    said: dict[str, Any] = {unit: span}
    own = given(shown, **said)
    return replace(own, deviation=whole.deviation, beyond=whole.beyond, origin=whole.origin,
                   words=whole.words)  # fmt: skip

"""Optimizers whose runs met a model's target, against each other: which is done first, and where.

Under data parallelism alone, at every number of devices and the best batch of each: a second-order
optimizer needs fewer epochs of longer steps, so that it wins where steps are bound by what they
exchange, or batches are large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.ask.batches import batches
from oracle.models.model import Model
from oracle.predict.estimate import estimate
from oracle.run.target import Training, to_target, training
from oracle.spec.optimizer import parted
from oracle.spec.options import SLOTS, Options
from oracle.spec.system import System

SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)  # of the replicas that precondition a layer


@dataclass(frozen=True, slots=True)
class Best:
    """The batch with which an optimizer ends first on so many devices."""

    optimizer: str  # with its knobs
    devices: int
    batch: int
    training: Training


def rivals(model: Model) -> list[str]:
    """Optimizers that are said to have met the first one's target."""
    known = model.convergence
    return list(dict.fromkeys(one.optimizer for one in known if one.target == known[0].target))


def best(
    model: Model, system: System, options: Options, optimizer: str, devices: int
) -> Best | None:
    """The best batch of one optimizer, and of its knobs who holds what; None where none fits."""
    found: list[Best] = []
    for tried in _knobs(optimizer):
        name, kfac = parted(tried, SLOTS)
        sizes = [size for size in batches(model, name) if size >= devices]
        if not sizes:
            continue
        own = replace(options, optimizer=name, kfac=kfac)
        shown = estimate(model, system, [f"data:{devices}"] * len(sizes), sizes, own)
        lengths = {row: to_target(shown, row) for row in np.flatnonzero(shown.feasible).tolist()}
        if lengths:  # the fewest seconds in steps: what comes to that is alike at all batches
            row = min(lengths, key=lambda row: lengths[row].steps * float(shown.seconds[row]))
            one = training(shown, row, lengths[row])
            found.append(Best(tried, devices, sizes[row], one))
    return min(found, key=lambda each: each.training.seconds, default=None)


@dataclass(frozen=True, slots=True)
class Rival:
    """Another optimizer beside the one that was asked for."""

    best: Best  # on as many devices
    ahead_from: int | None  # devices from which on it is done first, data parallelism alone
    most: int  # devices that were looked at

    def to_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self.best.optimizer, "batch": self.best.batch,
            "ahead_from": self.ahead_from, **self.best.training.to_dict(),
        }  # fmt: skip


def against(model: Model, system: System, options: Options, devices: int) -> list[Rival]:
    """The other optimizers of a model's target beside that of the options."""
    own: list[Best] | None = None
    found = []
    for name in rivals(model):
        one = None if name == options.optimizer else best(model, system, options, name, devices)
        if one is not None and options.optimizer in rivals(model):
            own = scaling(model, system, options, options.optimizer_text) if own is None else own
            other = scaling(model, system, options, name)
            most = max((each.devices for each in own), default=devices)
            found.append(Rival(one, ahead_from(other, own), most))
    return found


def _knobs(optimizer: str) -> Iterator[str]:
    """An optimizer as it was said; with what shares it may be, where they were not."""
    if optimizer != "kfac":
        yield optimizer
        return
    for share in SHARES:
        yield str(replace(parted(optimizer, SLOTS)[1], workers=share))


def scaling(model: Model, system: System, options: Options, optimizer: str) -> list[Best]:
    """The best of an optimizer on 1, 2, 4, … devices of the system, reading left out."""
    options = replace(options, reading="none")
    counts = (2**k for k in range(int(system.devices).bit_length()))
    found = (best(model, system, options, optimizer, count) for count in counts)
    return [each for each in found if each is not None]


def ahead_from(one: list[Best], other: list[Best]) -> int | None:
    """The devices from which on the one is always done before the other; None: on no number."""
    mine = {each.devices: each.training.seconds for each in one}
    theirs = {each.devices: each.training.seconds for each in other}
    both = sorted(mine.keys() & theirs.keys(), reverse=True)
    found = None
    for count in both:
        if mine[count] >= theirs[count]:
            break
        found = count
    return found

"""The hours of a training under one plan, with failures, checkpoints and slow devices.

A job fails as often as all of its devices or nodes do; it starts again once the failure is noticed,
a spare is ready and the checkpoint is loaded. Preempted with enough notice for a checkpoint, it
loses no work. An elastic job goes on without the failed replicas, and stops once more to take each
back. Where a number is unknown, the hours are those without failures.

A share q of the devices is slow and works f times as long: of p devices at least one is slow with a
probability of 1 - (1-q)^p, and all others wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from oracle.predict.estimate import Estimate
from oracle.run.checkpoints import Saving, saving
from oracle.run.goodput import Away, Job, Shares, slowest
from oracle.spec.doubt import NINETY
from oracle.spec.running import Reliability

# the parts of a run's time
TIME = ("progress", "checkpoints", "lost", "restarts", "waiting", "away")
RARE = 0.05  # a chance that an interval of 90 % leaves out
AT_WORK = ("forward", "backward", "recompute", "update", "bubble")  # parts that a slow device sets


@dataclass(frozen=True)
class Goodput:
    """The use of the time of one training; `shares` is None where it is unknown."""

    saving: Saving | None
    reliability: Reliability | None
    replicas: int = 1
    step: float = 0.0  # seconds of one
    slow: float = 1.0  # mean factor of a step's time by slow devices
    slow_ends: tuple[float, float] = (1.0, 1.0)  # the factor without any, and with one, if likely

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Missing keys of the system; empty where all is known."""
        reliability, keys = self.reliability, []
        if self.saving is None:
            return ()
        if reliability is None or (self.rate is None and reliability.preempted is None):
            keys.append("reliability.mtbf")
        if reliability is None or reliability.restart is None:
            keys.append("reliability.restart")
        return (*keys, *self.saving.unknown)

    @property
    def impossible(self) -> str:
        """Why checkpoints cannot be made that way, in words."""
        return "" if self.saving is None else self.saving.lacks

    @property
    def known(self) -> bool:
        return self.saving is not None and not self.unknown and not self.impossible

    @cached_property
    def rate(self) -> float | None:
        """Failures a second of all devices of the job."""
        if self.reliability is None or self.saving is None:
            return None
        return self.reliability.rate(self.saving.state.devices, self.saving.system.per_host)

    @property
    def elastic(self) -> bool:
        """Whether the job goes on without failed nodes, having replicas to spare."""
        return self.reliability is not None and self.reliability.elastic and self.replicas > 1

    @cached_property
    def job(self) -> Job | None:
        """The interruptions of the job; None where they are unknown."""
        reliability, save, restart = self.reliability, self.saving, self.restart
        if reliability is None or save is None or restart is None:
            return None
        spares = math.floor(reliability.spares * save.nodes + 1e-9)
        preempted = reliability.preempted or 0.0
        announced = reliability.notice >= save.seconds + save.safe_after  # enough for a checkpoint
        return Job(
            self.rate or 0.0, restart, reliability.repair, spares,
            self.replicas if self.elastic else 0, 0.0 if announced else preempted,
            preempted if announced else 0.0,
        )  # fmt: skip

    @cached_property
    def gone(self) -> Away:
        """The time and the speed that nodes under repair leave."""
        return Away(0.0, 1.0, 0.0) if self.job is None else self.job.gone

    @property
    def restart(self) -> float | None:
        """Seconds from a failure until the first step."""
        reliability = self.reliability
        if (
            reliability is None
            or reliability.restart is None
            or self.saving is None
            or self.saving.unknown
        ):
            return None
        return (reliability.detect or 0.0) + reliability.restart + self.saving.load

    @cached_property
    def shares(self) -> Shares | None:
        """The shares of the time in which the job does not wait for spares."""
        if not self.known or self.saving is None:
            return None
        return self._shares(self.saving.way.every)

    def _shares(self, every: float | None) -> Shares:
        assert self.job is not None
        assert self.saving is not None
        save = self.saving
        return self.job.shares(save.seconds, every, save.safe_after, self.step)

    @cached_property
    def time(self) -> dict[str, float]:
        """The shares of a run's time, by use; empty where unknown."""
        shares, gone = self.shares, self.gone
        if shares is None:
            return {}
        done, on = float(shares.progress), 1 - gone.waiting
        rest = (done, shares.checkpoints, shares.lost, shares.restarts)
        progress, *interruptions = (on * float(share) for share in rest)
        all_shares = (
            progress * gone.speed, *interruptions, gone.waiting, progress * (1 - gone.speed),
        )  # fmt: skip
        return {name: max(share, 0.0) for name, share in zip(TIME, all_shares, strict=True)}

    @property
    def progress(self) -> float:
        """The share of a run's time in which it trains at full speed; 1 where unknown."""
        return self.time.get("progress", 1.0)

    @property
    def working(self) -> float:
        """The share of a run's time in which devices work, on lost steps as well."""
        return min(self.progress + self.time.get("lost", 0.0), 1.0)

    @property
    def times(self) -> float:
        """The time of a training over the time of its steps."""
        return self.slow / max(self.progress, 1e-300)

    def spread(self, seconds: float) -> tuple[float, float]:
        """Return ln of how much shorter and longer a training may be, at 90 %."""
        down, up = (abs(math.log(end / self.slow)) for end in self.slow_ends)
        if self.shares is None:
            return down, up
        for variant in self._otherwise():
            change = math.log(variant._progress(float(self.shares.interval)) / self.progress)
            down, up = (
                (math.hypot(down, change), up) if change > 0 else (down, math.hypot(up, change))
            )
        count = max(seconds * float(self.shares.failures) / 3600, 1.0)  # that come by chance
        chance = float(self.shares.lost) + float(self.shares.restarts)
        random_part = NINETY * chance / math.sqrt(count)
        return math.hypot(down, random_part), math.hypot(up, random_part)

    def _progress(self, every: float) -> float:
        progress = float(self._shares(every).progress)
        return max(progress * (1 - self.gone.waiting) * self.gone.speed, 1e-300)

    def _otherwise(self) -> Iterator[Goodput]:
        """Yield the goodput with each uncertain number at either end of its range."""
        reliability = self.reliability
        assert reliability is not None
        assert self.saving is not None
        for factor in (reliability.factor, 1 / reliability.factor):
            rates = {name: factor * value for name in ("mtbf", "per_1000_node_days")
                     if (value := getattr(reliability, name)) is not None}  # fmt: skip
            yield replace(self, reliability=replace(reliability, **rates))
            delays = {name: factor * value for name in ("detect", "restart")
                      if (value := getattr(reliability, name)) is not None}  # fmt: skip
            yield replace(self, reliability=replace(reliability, **delays))
        for better, worse in self.saving.turned():
            yield from (replace(self, saving=changed) for changed in (better, worse))

    def to_dict(self) -> dict[str, Any]:
        """Return data in SI: shares of the time, and their causes; None where unknown."""
        shares, save = self.shares, self.saving
        has_seconds = save is not None and not save.unknown
        return {
            **(self.time or dict.fromkeys(TIME)),
            "interval": None if shares is None else float(shares.interval),
            "failures_per_hour": None if self.rate is None else 3600 * self.rate,
            "how": None if save is None else save.way.how,
            "to": None if save is None else save.way.to,
            "checkpoint_seconds": save.seconds if save is not None and has_seconds else None,
            "safe_after": save.safe_after if save is not None and has_seconds else None,
            "checkpoint_bytes": None if save is None else save.state.whole,
            "restart_seconds": self.restart,
            "slow": self.slow,
            "of": "" if self.reliability is None else self.reliability.of,
            "assumed": list(save.assumed) if save is not None and has_seconds else [],
            "unknown": list(self.unknown), "impossible": self.impossible,
        }  # fmt: skip


def goodput_of(predicted: Estimate, row: int = 0) -> Goodput:
    """Return the use of the time of a training under one plan of a system."""
    reliability, options = predicted.system.reliability, predicted.options
    if options.ideal or predicted.model.training.forward or not predicted.work:
        return Goodput(None, None)  # nothing is trained, or nothing goes wrong
    save = saving(predicted, row)
    slow, ends = _slow(predicted, row)
    plan = predicted.work[row].plan
    replicas = math.prod(float(np.max(axis.degree)) for axis in plan.axes if axis.deals_batch)
    shared = math.prod(float(np.max(axis.degree)) for axis in plan.axes
                       if axis.degrees and not axis.multiplies)  # fmt: skip
    step = slow * float(predicted.seconds[row])
    return Goodput(save, reliability, max(1, int(replicas // shared)), step, slow, ends)


def _slow(predicted: Estimate, row: int) -> tuple[float, tuple[float, float]]:
    """Return the factor of a step's time by slow devices: the mean, and either end."""
    reliability = predicted.system.reliability
    if reliability is None or reliability.slow is None:
        return 1.0, (1.0, 1.0)
    devices, slow = float(predicted.devices[row]), reliability.slow
    work = sum(float(predicted.compute[part][row]) for part in AT_WORK) / float(
        predicted.seconds[row]
    )
    likely = float(slowest(devices, slow.share, slow.factor))
    mean, worst = (1 + min(work, 1.0) * (by - 1) for by in (likely, slow.factor))
    none = (1 - slow.share) ** devices
    return mean, (1.0 if none > RARE else mean, worst if 1 - none > RARE else mean)

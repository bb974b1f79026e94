"""What failures, checkpoints and slow devices make of the hours of a training under one plan.

A job fails as often as all of its devices or nodes do; it starts again once somebody has noticed,
a spare is there and the checkpoint is loaded. Preempted with notice enough for a checkpoint, it
loses no work. Elastic, it goes on without the replicas that have failed, and stops once more to
take each back. What nobody says is unknown: the hours are then those without failures.

Slow devices, a share q of them, f times as long at work: of p devices one at least is slow with a
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

# what becomes of a run's time
TIME = ("progress", "checkpoints", "lost", "restarts", "waiting", "away")
RARE = 0.05  # a chance that an interval of 90 % leaves out
AT_WORK = ("forward", "backward", "recompute", "update", "bubble")  # parts that a slow device sets


@dataclass(frozen=True)
class Goodput:
    """What becomes of the time of one training; `shares` is None where that is unknown."""

    saving: Saving | None
    reliability: Reliability | None
    replicas: int = 1
    step: float = 0.0  # seconds of one
    slow: float = 1.0  # times as long a step is, by devices that are slow, on average
    slow_ends: tuple[float, float] = (1.0, 1.0)  # with none of them, and with one, if likely

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Keys of the system that would tell; empty where all is known."""
        said, found = self.reliability, []
        if self.saving is None:
            return ()
        if said is None or (self.rate is None and said.preempted is None):
            found.append("reliability.mtbf")
        if said is None or said.restart is None:
            found.append("reliability.restart")
        return (*found, *self.saving.unknown)

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
        """Whether the job goes on without what failed: it has replicas to spare."""
        return self.reliability is not None and self.reliability.elastic and self.replicas > 1

    @cached_property
    def job(self) -> Job | None:
        """What interrupts it; None where that is unknown."""
        said, save, restart = self.reliability, self.saving, self.restart
        if said is None or save is None or restart is None:
            return None
        spares = math.floor(said.spares * save.nodes + 1e-9)
        often = said.preempted or 0.0
        told = said.notice >= save.seconds + save.safe_after  # enough for a checkpoint
        return Job(
            self.rate or 0.0, restart, said.repair, spares, self.replicas if self.elastic else 0,
            0.0 if told else often, often if told else 0.0,
        )  # fmt: skip

    @cached_property
    def gone(self) -> Away:
        """What nodes that are being repaired leave of its time and speed."""
        return Away(0.0, 1.0, 0.0) if self.job is None else self.job.gone

    @property
    def restart(self) -> float | None:
        """Seconds from a failure until the first step."""
        said = self.reliability
        if said is None or said.restart is None or self.saving is None or self.saving.unknown:
            return None
        return (said.detect or 0.0) + said.restart + self.saving.load

    @cached_property
    def shares(self) -> Shares | None:
        """Of the time in which it does not wait for spares."""
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
        """What becomes of a run's time, shares of it; empty where nobody knows."""
        shares, gone = self.shares, self.gone
        if shares is None:
            return {}
        done, on = float(shares.progress), 1 - gone.waiting
        rest = (done, shares.checkpoints, shares.lost, shares.restarts)
        progress, *others = (on * float(share) for share in rest)
        whole = progress * gone.speed, *others, gone.waiting, progress * (1 - gone.speed)
        return {name: max(share, 0.0) for name, share in zip(TIME, whole, strict=True)}

    @property
    def progress(self) -> float:
        """The share of a run's time in which it trains at full speed; 1 where nobody knows."""
        return self.time.get("progress", 1.0)

    @property
    def working(self) -> float:
        """The share of a run's time in which devices are at work, on what is lost as well."""
        return min(self.progress + self.time.get("lost", 0.0), 1.0)

    @property
    def times(self) -> float:
        """How many times as long a training takes as its steps do."""
        return self.slow / max(self.progress, 1e-300)

    def spread(self, seconds: float) -> tuple[float, float]:
        """ln of how much shorter and longer so long a training may be, 90 % of the time."""
        down, up = (abs(math.log(end / self.slow)) for end in self.slow_ends)
        if self.shares is None:
            return down, up
        for one in self._otherwise():
            by = math.log(one._progress(float(self.shares.interval)) / self.progress)
            down, up = (math.hypot(down, by), up) if by > 0 else (down, math.hypot(up, by))
        count = max(seconds * float(self.shares.failures) / 3600, 1.0)  # that come by chance
        chance = float(self.shares.lost) + float(self.shares.restarts)
        own = NINETY * chance / math.sqrt(count)
        return math.hypot(down, own), math.hypot(up, own)

    def _progress(self, every: float) -> float:
        found = float(self._shares(every).progress)
        return max(found * (1 - self.gone.waiting) * self.gone.speed, 1e-300)

    def _otherwise(self) -> Iterator[Goodput]:
        """The same with each number that is not known for sure at either end of its range."""
        said = self.reliability
        assert said is not None
        assert self.saving is not None
        for by in (said.factor, 1 / said.factor):
            often = {name: by * value for name in ("mtbf", "per_1000_node_days")
                     if (value := getattr(said, name)) is not None}  # fmt: skip
            yield replace(self, reliability=replace(said, **often))
            later = {name: by * value for name in ("detect", "restart")
                     if (value := getattr(said, name)) is not None}  # fmt: skip
            yield replace(self, reliability=replace(said, **later))
        for better, worse in self.saving.turned():
            yield from (replace(self, saving=one) for one in (better, worse))

    def to_dict(self) -> dict[str, Any]:
        """As data, SI: shares of the time, and what they come from; None where unknown."""
        shares, save = self.shares, self.saving
        told = save is not None and not save.unknown
        return {
            **(self.time or dict.fromkeys(TIME)),
            "interval": None if shares is None else float(shares.interval),
            "failures_per_hour": None if self.rate is None else 3600 * self.rate,
            "how": None if save is None else save.way.how,
            "to": None if save is None else save.way.to,
            "checkpoint_seconds": save.seconds if save is not None and told else None,
            "safe_after": save.safe_after if save is not None and told else None,
            "checkpoint_bytes": None if save is None else save.state.whole,
            "restart_seconds": self.restart,
            "slow": self.slow,
            "of": "" if self.reliability is None else self.reliability.of,
            "assumed": list(save.assumed) if save is not None and told else [],
            "unknown": list(self.unknown), "impossible": self.impossible,
        }  # fmt: skip


def goodput_of(shown: Estimate, row: int = 0) -> Goodput:
    """What failures make of a training under one plan, as its system says."""
    said, options = shown.system.reliability, shown.options
    if options.ideal or shown.model.training.forward or not shown.work:
        return Goodput(None, None)  # nothing is trained, or nothing goes wrong
    save = saving(shown, row)
    slow, ends = _slow(shown, row)
    plan = shown.work[row].plan
    many = math.prod(float(np.max(axis.degree)) for axis in plan.axes if axis.deals_batch)
    shared = math.prod(float(np.max(axis.degree)) for axis in plan.axes
                       if axis.degrees and not axis.multiplies)  # fmt: skip
    step = slow * float(shown.seconds[row])
    return Goodput(save, said, max(1, int(many // shared)), step, slow, ends)


def _slow(shown: Estimate, row: int) -> tuple[float, tuple[float, float]]:
    """How many times as long steps are by devices that are slow: the mean, and either end."""
    said = shown.system.reliability
    if said is None or said.slow is None:
        return 1.0, (1.0, 1.0)
    devices, one = float(shown.devices[row]), said.slow
    work = sum(float(shown.compute[part][row]) for part in AT_WORK) / float(shown.seconds[row])
    likely = float(slowest(devices, one.share, one.factor))
    mean, worst = (1 + min(work, 1.0) * (by - 1) for by in (likely, one.factor))
    none = (1 - one.share) ** devices
    return mean, (1.0 if none > RARE else mean, worst if 1 - none > RARE else mean)

"""Failures, restarts and checkpoints: the share of a long run's time that is progress.

Failures come at random, one in M seconds on average, also while a checkpoint is written or a job
starts anew. After τ seconds of progress a checkpoint takes C; after a failure a restart takes R,
and what was done since the last checkpoint is done again [daly2006, §2]:

    T(τ) = M e^(R/M) (e^((τ+C)/M) - 1)      seconds until τ of progress is made and kept
    τ*   = M (1 + W(-e^(-1 - C/M)))         the interval with the largest τ/T; W is Lambert's
         ≈ √(2 C M)                         as long as C is far below M [young1974]

A checkpoint that is copied aside in C, and safe only W ≤ τ seconds later, costs τ more in the
W/(τ+C) of all failures that come before: on average it is as a restart that takes so much longer.

An interruption that is announced, μ a second, finds its work saved: a checkpoint is made at once
in S seconds. Of a turn of L = τ+C that begins with work saved, with λ = 1/M and s = λ+μ,

    progress  τ e^(-sL) + μ ∫₀^τ t e^(-st) dt e^(-λS) + μ τ ∫_τ^L e^(-st) dt
    time      (1 - e^(-sL))/s + what is saved on the way + (1 - e^(-sL)) (e^(sR) - 1)/s

and goodput is one by the other, as of every process that begins anew.

A job that needs all of its nodes waits where its spares are used up: of those away for repair,
each D seconds on average, j are away with a probability of a^j/j! by the sum of them up to one
more than there are spares, a = λD, and that last one is the share of time it waits [erlang1917].
Elastic, it goes on with the replicas that are left, at their share of its speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Number: TypeAlias = float | Floats
LONGEST = 300.0  # of an exponent: a job that fails so often never ends
GOLDEN = (np.sqrt(5) - 1) / 2
TURNS = 60  # of a golden section: an interval to nine digits


@dataclass(frozen=True)
class Shares:
    """What becomes of the time of a run, as shares of it."""

    progress: Number
    checkpoints: Number
    lost: Number  # work done again
    restarts: Number
    interval: Number  # seconds of progress between checkpoints
    failures: Number  # in an hour


def between_failures(devices: Number, mtbf: float, preempted: float = 0.0) -> Number:
    """M, seconds between failures of a job: of any of its devices, or that it has to make way.

    `mtbf` is of one device, `preempted` how often a job is, per second.
    """
    return 1 / (np.asarray(devices) / mtbf + preempted)


def best_interval(checkpoint: Number, between: Number) -> Floats:
    """τ*, seconds of progress between checkpoints that wastes the least time."""
    from scipy.special import lambertw

    c, m = np.asarray(checkpoint, float), np.asarray(between, float)
    # near C = 0 Lambert's branch point takes half of the digits: there its series is exact
    x = c / m
    series = np.sqrt(2 * x) - x / 3 * 1.0
    exact = 1 + np.real(lambertw(-np.exp(-1 - x)))
    return np.asarray(m * np.where(x < 1e-9, series, exact))


def goodput(
    between: Number, checkpoint: Number, restart: Number, interval: Number | None = None,
    safe_after: Number = 0.0, announced: Number = 0.0, step: Number = 0.0,
) -> Shares:  # fmt: skip
    """The shares of a long run; at the best interval where none is given.

    `announced` interruptions a second leave the time to save what was done. Between two checkpoints
    there is one `step` at least, and the first of them is safe.
    """
    m, c = np.asarray(between, float), np.asarray(checkpoint, float)
    if interval is None:
        tau = best_interval(c, m)
        if np.any(np.asarray(announced) > 0):

            def share(log: Floats) -> Floats:
                tau = np.maximum(np.exp(log), safe_after)
                return np.asarray(_shares(m, c, restart, tau, safe_after, announced).progress)

            # those announced lose nothing: the best interval is about that of the failures
            tau = np.exp(_greatest(share, np.log(tau / 8), np.log(8 * tau)))
    else:
        tau = np.asarray(interval, float)
    tau = np.maximum(tau, np.maximum(safe_after, step))
    return _shares(m, c, restart, tau, safe_after, announced)


def _shares(
    m: Floats, c: Floats, restart: Number, tau: Number, safe_after: Number, announced: Number
) -> Shares:
    """The shares of a run with so long between checkpoints."""
    mu = np.asarray(announced, float)
    lam, rate = 1 / m, 1 / m + mu
    turn = tau + c
    survives, works = np.exp(-np.minimum(rate * turn, LONGEST)), np.exp(-rate * tau)
    ends = -np.expm1(-np.minimum(rate * turn, LONGEST))  # in any way but at a checkpoint
    # announced while work goes on, or while a checkpoint is made, which is then finished
    at_work, at_checkpoint = -mu / rate * np.expm1(-rate * tau), mu / rate * (works - survives)
    saving = c + safe_after
    saved = np.exp(-lam * saving)
    kept = mu / rate**2 * (1 - works * (1 + rate * tau)) * saved
    progress = tau * (survives + at_checkpoint * np.exp(-lam * (c / 2 + safe_after))) + kept
    spent = -at_work * np.expm1(-lam * saving) * m + at_checkpoint * (c / 2 + safe_after)
    # what was saved late is lost with what came after, if a failure comes before it is safe
    late = safe_after * tau / turn
    starting = np.expm1(np.minimum(rate * restart, LONGEST)) / rate
    again = np.expm1(np.minimum(rate * (restart + late), LONGEST)) / rate
    lost_late = ends * lam / rate * (again - starting)
    whole = ends / rate + spent + ends * starting + lost_late
    writing = c * (survives + at_checkpoint / 2) + spent
    done = progress / whole
    checkpoints, restarts = writing / whole, ends * starting / whole
    lost = np.maximum(1 - done - checkpoints - restarts, 0.0)
    return Shares(done, checkpoints, lost, restarts, tau, 3600 * lam)


def _greatest(of: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Where a function of one hump is the largest, by golden section."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    for _ in range(TURNS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        first = of(left) > of(right)
        low, high = np.where(first, low, left), np.where(first, right, high)
    return (low + high) / 2


@dataclass(frozen=True)
class Away:
    """What nodes that are being repaired leave of a job's time and speed, shares of one."""

    waiting: float  # of the time: too few are left
    speed: float  # of that of all replicas, while it does not wait
    without: float  # of the failures, those that find no spare


def away(failed: float, repair: float, spares: int, replicas: int = 0) -> Away:
    """Of a job that so many failures a second hit; elastic where it can do with fewer `replicas`.

    A replica is lost once no spare is left; without any the job waits, as one that is not elastic.
    """
    rows = np.arange(spares + max(replicas, 1) + 1)
    left = np.maximum(1.0, replicas) - np.maximum(rows - spares, 0)
    speed = np.clip(left / max(1.0, replicas), 0.0, 1.0)
    # of one state by that of the state before: failures of those at work by repairs of those away
    steps = np.log(np.maximum(failed * repair * speed[:-1], 1e-300) / rows[1:])
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    chance = np.exp(logs - logs.max())
    chance /= chance.sum()
    waiting = float(chance[-1])
    mean = max(float(chance @ speed), 1e-300)
    without = float(chance[spares:] @ speed[spares:]) / mean
    return Away(waiting, mean / max(1 - waiting, 1e-300), without)


@dataclass(frozen=True)
class Job:
    """What interrupts a job, in seconds, and what it does about it."""

    failing: float  # a second, while all of its nodes are at work
    restart: float
    repair: float | None = None  # None: what failed is replaced at once
    spares: int = 0
    replicas: int = 0  # elastic, it goes on with fewer of so many
    hidden: float = 0.0  # other interruptions a second, that are not announced
    announced: float = 0.0  # and that are

    @property
    def gone(self) -> Away:
        """What nodes that are being repaired leave of its time and speed."""
        if self.repair is None or not self.failing:
            return Away(0.0, 1.0, 0.0)
        return away(self.failing, self.repair, self.spares, self.replicas)

    def shares(
        self, checkpoint: float, every: float | None = None, safe_after: float = 0.0,
        step: float = 0.0,
    ) -> Shares:  # fmt: skip
        """Of the time in which it does not wait, at the speed that it has then."""
        gone = self.gone
        failing = self.failing * gone.speed
        # what is back is taken in again: it stops for that as if it were told to
        back = failing * gone.without if self.replicas else 0.0
        between = 1 / max(failing + self.hidden, 1e-30)
        return goodput(between, checkpoint, self.restart, every, safe_after,
                       self.announced + back, step)  # fmt: skip


def slowest(devices: Number, share: float, factor: float) -> Number:
    """How much longer a step is where a `share` of devices takes `factor` times as long."""
    return 1 + (factor - 1) * (1 - (1 - share) ** np.asarray(devices, float))

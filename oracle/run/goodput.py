"""Failures, restarts and checkpoints: the share of a long run's time that is progress.

Failures come at random, one in M seconds on average, also while a checkpoint is written or a job
starts again. After τ seconds of progress a checkpoint takes C; after a failure a restart takes R,
and the work since the last checkpoint is done again [daly2006, §2]:

    T(τ) = M e^(R/M) (e^((τ+C)/M) - 1)      seconds until τ of progress is made and kept
    τ*   = M (1 + W(-e^(-1 - C/M)))         the interval with the largest τ/T; W is Lambert's
         ≈ √(2 C M)                         as long as C is far below M [young1974]

A checkpoint that is copied aside in C, and safe only W ≤ τ seconds later, costs τ more in the
W/(τ+C) of all failures that come before: on average a restart takes that much longer.

An announced interruption, μ a second, loses no work: a checkpoint is made at once in S seconds. In
a turn of L = τ+C that begins with saved work, with λ = 1/M and s = λ+μ,

    progress  τ e^(-sL) + μ ∫₀^τ t e^(-st) dt e^(-λS) + μ τ ∫_τ^L e^(-st) dt
    time      (1 - e^(-sL))/s + saving on the way + (1 - e^(-sL)) (e^(sR) - 1)/s

and goodput is progress by time, as in every renewal process.

A job that needs all of its nodes waits where its spares are used up: of the nodes under repair,
each for D seconds on average, j are away with a probability of a^j/j! by the sum of these up to one
more than the spares, a = λD, and that last one is the share of time it waits [erlang1917]. An
elastic job goes on with the replicas that are left, at their share of its speed.
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
    """The shares of a run's time, by use."""

    progress: Number
    checkpoints: Number
    lost: Number  # work done again
    restarts: Number
    interval: Number  # seconds of progress between checkpoints
    failures: Number  # in an hour


def between_failures(devices: Number, mtbf: float, preempted: float = 0.0) -> Number:
    """Return M, seconds between failures of a job: of any of its devices, or by preemption.

    `mtbf` is that of one device, `preempted` the preemptions of a job a second.
    """
    return 1 / (np.asarray(devices) / mtbf + preempted)


def best_interval(checkpoint: Number, between: Number) -> Floats:
    """Return τ*, the seconds of progress between checkpoints that waste least time."""
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
    """Return the shares of a long run, by default at the best interval.

    `announced` interruptions a second leave time to save the work. Between two checkpoints there is
    at least one `step`, and the first of them is safe.
    """
    m, c = np.asarray(between, float), np.asarray(checkpoint, float)
    if interval is None:
        tau = best_interval(c, m)
        if np.any(np.asarray(announced) > 0):

            def share(log: Floats) -> Floats:
                tau = np.maximum(np.exp(log), safe_after)
                return np.asarray(_shares(m, c, restart, tau, safe_after, announced).progress)

            # announced ones lose nothing: the best interval is about that of the failures
            tau = np.exp(_greatest(share, np.log(tau / 8), np.log(8 * tau)))
    else:
        tau = np.asarray(interval, float)
    tau = np.maximum(tau, np.maximum(safe_after, step))
    return _shares(m, c, restart, tau, safe_after, announced)


def _shares(
    m: Floats, c: Floats, restart: Number, tau: Number, safe_after: Number, announced: Number
) -> Shares:
    """Return the shares of a run with a time between checkpoints."""
    mu = np.asarray(announced, float)
    lam, rate = 1 / m, 1 / m + mu
    turn = tau + c
    survives, works = np.exp(-np.minimum(rate * turn, LONGEST)), np.exp(-rate * tau)
    ends = -np.expm1(-np.minimum(rate * turn, LONGEST))  # in any way but at a checkpoint
    # announced while work goes on, or while a checkpoint is made, which is then finished
    at_work, at_checkpoint = -mu / rate * np.expm1(-rate * tau), mu / rate * (works - survives)
    saving = c + safe_after
    saved = np.exp(-lam * saving)
    saved_progress = mu / rate**2 * (1 - works * (1 + rate * tau)) * saved
    progress = (
        tau * (survives + at_checkpoint * np.exp(-lam * (c / 2 + safe_after))) + saved_progress
    )
    spent = -at_work * np.expm1(-lam * saving) * m + at_checkpoint * (c / 2 + safe_after)
    # a checkpoint that is not safe yet is lost with the work after it, if a failure comes
    late = safe_after * tau / turn
    starting = np.expm1(np.minimum(rate * restart, LONGEST)) / rate
    late_restart = np.expm1(np.minimum(rate * (restart + late), LONGEST)) / rate
    lost_late = ends * lam / rate * (late_restart - starting)
    total = ends / rate + spent + ends * starting + lost_late
    writing = c * (survives + at_checkpoint / 2) + spent
    done = progress / total
    checkpoints, restarts = writing / total, ends * starting / total
    lost = np.maximum(1 - done - checkpoints - restarts, 0.0)
    return Shares(done, checkpoints, lost, restarts, tau, 3600 * lam)


def _greatest(function: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Return where a function of one hump is largest, by golden section."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    for _ in range(TURNS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        first = function(left) > function(right)
        low, high = np.where(first, low, left), np.where(first, right, high)
    return (low + high) / 2


@dataclass(frozen=True)
class Away:
    """The time and the speed that nodes under repair leave to a job, shares of one."""

    waiting: float  # share of the time in which too few nodes are left
    speed: float  # share of all replicas' speed, while it does not wait
    without: float  # share of the failures that find no spare


def away(failed: float, repair: float, spares: int, replicas: int = 0) -> Away:
    """Return the share of time and speed that nodes under repair leave to a job.

    `failed` counts failures a second. A replica of an elastic job is lost once no spare is left;
    without any replica the job waits, as without elastic training.
    """
    rows = np.arange(spares + max(replicas, 1) + 1)
    left = np.maximum(1.0, replicas) - np.maximum(rows - spares, 0)
    speed = np.clip(left / max(1.0, replicas), 0.0, 1.0)
    # odds of a state by the state before: failures of nodes at work by repairs of nodes away
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
    """The interruptions of a job, in seconds, and its means against them."""

    failing: float  # a second, while all of its nodes are at work
    restart: float
    repair: float | None = None  # None: a failed node is replaced at once
    spares: int = 0
    replicas: int = 0  # of an elastic job, which goes on with fewer
    hidden: float = 0.0  # other interruptions a second, not announced
    announced: float = 0.0  # other interruptions a second, announced

    @property
    def gone(self) -> Away:
        """The time and the speed that nodes under repair leave."""
        if self.repair is None or not self.failing:
            return Away(0.0, 1.0, 0.0)
        return away(self.failing, self.repair, self.spares, self.replicas)

    def shares(
        self, checkpoint: float, every: float | None = None, safe_after: float = 0.0,
        step: float = 0.0,
    ) -> Shares:  # fmt: skip
        """Return the shares of the time in which it does not wait, at its speed then."""
        gone = self.gone
        failing = self.failing * gone.speed
        # a repaired replica is taken back, which is like an announced interruption
        back = failing * gone.without if self.replicas else 0.0
        between = 1 / max(failing + self.hidden, 1e-30)
        return goodput(between, checkpoint, self.restart, every, safe_after,
                       self.announced + back, step)  # fmt: skip


def slowest(devices: Number, share: float, factor: float) -> Number:
    """Return how much longer a step is if a `share` of devices takes `factor` times as long."""
    return 1 + (factor - 1) * (1 - (1 - share) ** np.asarray(devices, float))

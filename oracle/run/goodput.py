"""Failures, restarts and checkpoints: the share of a long run's time that is progress.

Failures come at random, one in M seconds on average, also while a checkpoint is written or a job
starts anew. After τ seconds of progress a checkpoint takes C; after a failure a restart takes R,
and what was done since the last checkpoint is done again [daly2006, §2]:

    T(τ) = M e^(R/M) (e^((τ+C)/M) - 1)      seconds until τ of progress is made and kept
    τ*   = M (1 + W(-e^(-1 - C/M)))         the interval with the largest τ/T; W is Lambert's
         ≈ √(2 C M)                         as long as C is far below M [young1974]

A checkpoint that is copied aside in C, and safe only W ≤ τ seconds later, costs τ more in the
W/(τ+C) of all failures that come before: on average it is as a restart that takes so much longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Number: TypeAlias = float | Floats
LONGEST = 300.0  # of an exponent: a job that fails so often never ends


@dataclass(frozen=True)
class Goodput:
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
    safe_after: Number = 0.0,
) -> Goodput:  # fmt: skip
    """The shares of a long run; at the best interval where none is given."""
    m, c = np.asarray(between, float), np.asarray(checkpoint, float)
    # one checkpoint is safe before the next begins
    tau = np.maximum(best_interval(c, m) if interval is None else interval, safe_after)
    late = safe_after * tau / (tau + c)
    again = restart + late
    # failures until a stretch of work and its checkpoint come through, and what each one costs
    failures = np.expm1(np.minimum((tau + c) / m, LONGEST))
    each = m * np.expm1(np.minimum(again / m, LONGEST))
    whole = failures * (m + each)
    progress, kept, back = tau / whole, c / whole, failures * each / whole
    starts = back * restart / np.maximum(again, 1e-300)  # the rest of it is work done again
    lost = np.maximum(1 - progress - kept - starts, 0.0)
    return Goodput(progress, kept, lost, starts, tau, 3600 / m)


def elastic(replicas: Number, failures: Number, repair: Number) -> Number:
    """The share of speed of a job that goes on without the replicas that have failed.

    `failures` of the whole job a second, each takes one replica out for `repair` seconds.
    """
    out = np.asarray(failures) * repair  # replicas away at any time, on average
    return np.maximum(1 - out / replicas, 0.0)


def waiting_for_spares(failed: Number, repair: Number, spares: int) -> Number:
    """The chance that a job which needs a spare finds none.

    So many units fail a second, each is repaired in `repair` seconds: those away are Poisson's.
    """
    from scipy.special import gammainc

    away = np.asarray(failed) * repair
    return np.asarray(gammainc(spares, away)) if spares else np.ones_like(away * 1.0)


def slowest(devices: Number, share: float, factor: float) -> Number:
    """How much longer a step is where a `share` of devices takes `factor` times as long."""
    return 1 + (factor - 1) * (1 - (1 - share) ** np.asarray(devices, float))

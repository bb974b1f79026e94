"""Seconds until R trials have run on c workers, in waves with a slowest trial each.

The unit is one trial's mean time; trials' times are lognormal with a `spread` (standard deviation
by mean), drawn for each trial:

    M = ⌈R/c⌉                                    trials of equal times
    M = E[max of R] ≈ 1 + spread √(2 ln R)       one wave
    M = f ((w - 1) + E[max of r]) + (1 - f) (R/c + E[max] - E[mean of the rests])

Each worker takes the next trial as soon as it is free. In step, the last of w waves has r trials
and begins at once on all workers; out of step, workers are anywhere in their trials when the last
one starts, and the rest of each has the density of renewal theory, (1 - F)/mean [cox1962].
Phases that have spread by √(w - 1) spread are still in step by f = exp(-2π² (w - 1) spread²), the
first Fourier coefficient of a normal phase.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Z = np.linspace(-9.0, 9.0, 3601)  # of a standard normal
BELOW = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in Z])


def waves(trials: float, workers: int) -> int:
    """Return ⌈R/c⌉."""
    return math.ceil(trials / workers)


def at_once(trials: int, waves: int) -> int:
    """Return the fewest workers with which a number of waves suffices."""
    return -(-trials // waves)


@lru_cache(4096)
def slowest(trials: int, spread: float) -> float:
    """Return E[max of R], of trials whose mean is 1."""
    if spread == 0:
        return 1.0
    x = _times(spread)
    return float(x[0] + np.trapezoid(1 - BELOW**trials, x))


@lru_cache(4096)
def makespan(trials: int, workers: int, spread: float = 0.0) -> float:
    """Return M, the time until the last trial has ended."""
    if trials <= 0:
        return 0.0
    several = waves(trials, workers)
    if workers == 1 or spread == 0:
        return float(several)
    last = trials - (several - 1) * workers
    in_step = several - 1 + slowest(last, spread)
    if several == 1:
        return in_step
    still = math.exp(-2 * math.pi**2 * (several - 1) * spread**2)
    return still * in_step + (1 - still) * _out_of_step(trials, workers, spread)


def _times(spread: float) -> Floats:
    """Return a trial's time at each z."""
    sigma = math.sqrt(math.log1p(spread**2))
    return np.exp(sigma * Z - sigma**2 / 2)


def _out_of_step(trials: int, workers: int, spread: float) -> float:
    """Return the time of evenly dealt work, and of idling once the last trial has started."""
    x = np.concatenate([[0.0], _times(spread)])
    longer = np.concatenate([[1.0], 1 - BELOW])
    left = np.concatenate([[0.0], np.cumsum((longer[1:] + longer[:-1]) / 2 * np.diff(x))])
    left = np.minimum(left / left[-1], 1.0)  # P(rest of a trial ≤ x)
    mean = float(np.trapezoid(1 - left, x))
    # all but one are somewhere in a trial, one is at its beginning
    longest = float(np.trapezoid(1 - left ** (workers - 1) * (1 - longer), x))
    return trials / workers + longest - ((workers - 1) * mean + 1) / workers

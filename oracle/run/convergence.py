"""Epochs until a target is met: small batches need the fewest epochs, large ones the fewest steps.

    e(B) = e₀ (1 + B/B_c)             epochs                             [mccandlish2018, §2.3]
    S(B) = e(B) D/B                   steps: at least e₀ D/B_c, twice that at B = B_c

B_c is the critical batch: up to it more devices shorten a training almost for nothing; beyond,
doubling the batch saves less than half of what it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Number: TypeAlias = float | Floats
FLAT = 1e3  # times the largest batch of all runs: a critical batch beyond means nothing
SCATTER = 0.05  # relative, of sound runs: a robust fit counts runs further off less
FEWEST = 3  # batches that determine both numbers of the law


@dataclass(frozen=True, slots=True)
class Law:
    """e₀ and B_c, and the scatter of runs about the law."""

    epochs: float  # e₀, of a batch far below the critical one
    critical: float  # B_c, samples; infinite where runs show no dependence
    scatter: float  # relative, 1σ
    smallest: float  # batch that it was fitted to
    largest: float

    def epochs_at(self, batch: Number) -> Floats:
        """Return e(B)."""
        return np.asarray(self.epochs * (1 + np.asarray(batch, float) / self.critical))

    def deviation(self, batch: Number) -> Floats:
        """Return the relative 1σ at a batch; beyond the fitted ones it grows 5 % an e-fold."""
        b = np.asarray(batch, float)
        beyond = np.maximum(np.log(b / self.largest), np.log(self.smallest / b))
        return np.hypot(self.scatter, SCATTER * np.maximum(beyond, 0.0))


def fit(batches: Sequence[float], epochs: Sequence[float]) -> Law:
    """Fit the law to runs that met the target, in logarithms, robustly; one number a run.

    Two batches, or several that show no dependence, determine e₀ alone.
    """
    from scipy.optimize import least_squares

    B, e = np.asarray(batches, float), np.asarray(epochs, float)
    ends = float(B.min()), float(B.max())
    batch_count = len(np.unique(B))

    def residuals(p: Floats) -> Floats:
        return np.asarray(p[0] + np.log1p(B * np.exp(-p[1])) - np.log(e))

    flat = float(np.exp(np.mean(np.log(e))))
    alone = np.log(e / flat)
    best_fit = None
    if batch_count >= 2:
        starts = [np.log([e.min(), by * ends[1]]) for by in (0.3, 1.0, 10.0)]
        bounds = ([-np.inf, np.log(ends[0] / FLAT)], [np.inf, np.log(ends[1] * FLAT)])
        fits = [least_squares(residuals, start, bounds=bounds, loss="soft_l1", f_scale=SCATTER)
                for start in starts]  # fmt: skip
        best_fit = min(fits, key=lambda solution: float(solution.cost))
    rises = best_fit is not None and best_fit.x[1] < np.log(ends[1] * FLAT / 10)
    spread = residuals(best_fit.x) if best_fit is not None and rises else alone
    free = max(len(e) - (2 if rises else 1), 1)
    scatter = float(np.sqrt(np.sum(spread**2) / free))
    if best_fit is None or not rises:
        return Law(flat, np.inf, scatter, *ends)
    if batch_count < FEWEST:  # as many numbers as batches: nothing is left to tell the scatter
        scatter = max(scatter, SCATTER)
    return Law(float(np.exp(best_fit.x[0])), float(np.exp(best_fit.x[1])), scatter, *ends)


def left_out(batches: Sequence[float], epochs: Sequence[float]) -> list[tuple[float, float]]:
    """Return batch and relative error of each run, predicted from runs of other batches."""
    B, e = np.asarray(batches, float), np.asarray(epochs, float)
    errors = []
    for batch, took in zip(B, e, strict=True):
        rest = batch != B
        law = fit(B[rest], e[rest])
        errors.append((float(batch), float(law.epochs_at(batch) / took - 1)))
    return errors

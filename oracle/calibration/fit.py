"""The lower envelope of a few α-β lines, fitted robustly to timed collectives, with covariances.

    seconds = min over lines of  base + steps(p) · latency + volume(p) · m / bandwidth

Each line is one algorithm under one protocol; a library takes about the best of them, and so does
the envelope: it is continuous and grows with m. Lines are found by relative error under a soft
loss (p ≥ 0, three unknowns a line, exact by active sets), samples going to the line that is
lowest for them; one more line is kept while Bayes' information criterion [schwarz1978] says that
the data pay for it. No random number is drawn: the same samples give the same lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.intp]

MOST_LINES, TRIES = 8, 5
SOFT = 0.05  # relative error from which the loss grows linearly, until the data give a scale
FASTEST = 1e15  # bytes per second of a line whose slope the data cannot tell from zero
NORMAL90 = 1.6448536269514722
RIDGE = 1e-10 * np.eye(3)  # two columns may be the same


@dataclass(frozen=True, eq=False)
class Form:
    """One algorithm, seen by every sample: its steps, and the bytes it puts on the wire."""

    algorithm: str
    steps: Floats
    wire: Floats


@dataclass(frozen=True, eq=False)
class FittedLine:
    """One line of the envelope: seconds per call, per step and per wire byte, 1σ of each."""

    form: int  # which Form
    values: Floats  # (base, latency, 1/bandwidth)
    covariance: Floats = field(default_factory=lambda: np.zeros((3, 3)))

    @property
    def sigma(self) -> Floats:
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


@dataclass(frozen=True, eq=False)
class Envelope:
    """A fitted envelope: its lines, the factor on wire bytes by rank count, and its evidence."""

    lines: tuple[FittedLine, ...]
    factors: dict[float, float]  # rank count -> factor; empty when one bandwidth serves all
    scale: float  # robust relative standard deviation of the residuals
    criterion: float  # Bayes' information criterion; less is better
    residual: Floats  # measured / fitted − 1, by sample
    nearest: Indices  # the line each sample is on

    @property
    def outliers(self) -> Indices:
        """Samples farther off than five standard deviations, and a tenth at least."""
        return np.flatnonzero(np.abs(np.log1p(self.residual)) > max(5 * self.scale, 0.1))

    @property
    def parameters(self) -> int:
        return _parameters(self.lines) + max(0, len(self.factors) - 1)

    def factor(self, ranks: Floats) -> Floats:
        """The factor at any rank count, log-log interpolated between those measured."""
        if not self.factors:
            return np.ones_like(ranks)
        measured = np.array(sorted(self.factors))
        logs = np.log([self.factors[p] for p in measured.tolist()])
        return np.exp(np.interp(np.log(ranks), np.log(measured), logs))


class Problem:
    """Samples to fit, with the rows of relative unknowns that every trial shares."""

    def __init__(
        self, seconds: Floats, nbytes: Floats, ranks: Floats, forms: Sequence[Form]
    ) -> None:
        self.seconds, self.nbytes, self.ranks, self.forms = seconds, nbytes, ranks, list(forms)
        self.soft = SOFT
        self.one = np.ones_like(seconds)
        # with one number of steps a call's base and its steps' latency are the same column
        several = len(np.unique(np.stack([f.steps for f in forms]), axis=1).T) > 1
        self.base = self.one if several else 0 * self.one
        self.rows = self._rows(np.ones_like(ranks))

    def _rows(self, factor: Floats) -> list[Floats]:
        return [
            np.stack([self.base, form.steps, form.wire * factor], 1) / self.seconds[:, None]
            for form in self.forms
        ]

    def scaled(self, factors: dict[float, float]) -> None:
        """Multiply wire bytes at each rank count by its factor."""
        per = np.array([factors.get(p, 1.0) for p in self.ranks.tolist()])
        self.rows = self._rows(per)

    def relative(self, lines: Sequence[FittedLine]) -> Floats:
        """Fitted over measured, by line and sample."""
        return np.stack([self.rows[line.form] @ line.values for line in lines])

    def loss(self, residual: Floats) -> float:
        """Σ 2c² (√(1 + (r/c)²) − 1): squares near zero, straight far away."""
        c = self.soft
        return float(2 * c * c * (np.sqrt(1 + (residual / c) ** 2) - 1).sum())

    def refined(self, lines: list[FittedLine], rounds: int) -> tuple[float, list[FittedLine]]:
        """Refit lines to the samples they are lowest for, until nothing improves."""
        best, best_lines, stale = np.inf, lines, 0
        for _ in range(rounds):
            times = self.relative(lines)
            residual = np.log(np.maximum(times.min(axis=0), 1e-9))
            loss = self.loss(residual)
            stale = 0 if loss < best * (1 - 1e-7) else stale + 1
            if loss < best:
                best, best_lines = loss, lines
            if stale > 3:
                break
            nearest = times.argmin(axis=0)
            weight = 1 / np.sqrt(1 + (residual / self.soft) ** 2)
            lines = [self._refit(line, nearest == k, weight) for k, line in enumerate(lines)]
        return best, best_lines

    def _refit(self, line: FittedLine, on_line: Mask, weight: Floats) -> FittedLine:
        if on_line.sum() < 2:
            return line
        return FittedLine(line.form, nonnegative(self.rows[line.form][on_line], weight[on_line]))

    def windows(self) -> list[Indices]:
        """Runs of samples by size, from all of them down to an eighth."""
        order, n = np.argsort(self.nbytes, kind="stable"), len(self.seconds)
        runs = [order]
        for part in (2, 4, 8):
            width = max(4, n // part)
            runs += [order[k : k + width] for k in range(0, n - width + 1, max(1, width // 2))]
        return runs

    def starts(self) -> list[FittedLine]:
        """A line of every algorithm through every run of samples."""
        lines = [
            FittedLine(k, nonnegative(self.rows[k][run], self.one[run]))
            for run in self.windows()
            for k in range(len(self.forms))
        ]
        return [line for line in lines if line.values.any()]

    def grown(self, limit: int = MOST_LINES) -> list[FittedLine]:
        """Add lines one at a time, reconsidering the earlier ones with each."""
        starts = self.starts()
        start_times = self.relative(starts)
        lines_kept: list[FittedLine] = []
        lowest = np.inf
        for _ in range(limit):
            loss, lines = self._with_one_more(lines_kept, starts, start_times)
            for _ in range(2 if lines_kept else 0):
                before = loss
                for k in range(len(lines)):
                    tried = self._with_one_more(lines[:k] + lines[k + 1 :], starts, start_times)
                    if tried[0] < loss * (1 - 1e-4):
                        loss, lines = tried
                if loss == before:
                    break
            criterion = self.criterion(loss, _parameters(lines))
            if criterion > lowest - 2:
                break
            lowest, lines_kept = criterion, lines
        return lines_kept

    def _with_one_more(
        self, lines_kept: list[FittedLine], starts: list[FittedLine], start_times: Floats
    ) -> tuple[float, list[FittedLine]]:
        """Add the best next line, of the few that look best before refitting."""
        below = self.relative(lines_kept).min(axis=0) if lines_kept else np.inf
        lowest = np.maximum(np.minimum(start_times, below), 1e-9)
        losses = [self.loss(row) for row in np.log(lowest)]
        best = np.argsort(losses, kind="stable")[:TRIES]
        tries = [self.refined([*lines_kept, starts[k]], 8) for k in best]
        return self.refined(min(tries, key=lambda tried: tried[0])[1], 40)

    def criterion(self, loss: float, parameters: int) -> float:
        """Bayes' information criterion: n ln(loss/n) + k ln n."""
        n = len(self.seconds)
        return float(n * np.log(max(loss, 1e-12) / n) + parameters * np.log(n))

    def finished(self, lines: list[FittedLine], factors: dict[float, float]) -> Envelope:
        """The envelope at the data's own scale, without lines that are nowhere lowest."""
        for _ in range(2):
            times = self.relative(lines)
            used = sorted(set(times.argmin(axis=0).tolist()))
            lines = [lines[k] for k in used]
            residual = np.log(self.relative(lines).min(axis=0))
            self.soft = min(max(1.5 * spread(residual), 0.01), 0.15)
            _, lines = self.refined(lines, 40)
        self.soft = SOFT
        times = self.relative(lines)
        nearest, residual = times.argmin(axis=0), np.log(np.maximum(times.min(axis=0), 1e-9))
        extra = max(0, len(factors) - 1)
        criterion = self.criterion(self.loss(residual), _parameters(lines) + extra)
        scale = spread(residual)
        spare = len(self.seconds) - _parameters(lines) - extra
        lines = [
            replace(line, covariance=self.covariance(line, nearest == k, residual, spare))
            for k, line in enumerate(lines)
        ]
        return Envelope(tuple(lines), factors, scale, criterion, np.expm1(-residual), nearest)

    def covariance(self, line: FittedLine, on_line: Mask, residual: Floats, spare: int) -> Floats:
        """The covariance of an M-estimate [huber1981, §7.6]: Σψ² / (Σψ′)² (XᵀX)⁻¹."""
        full = np.zeros((3, 3))
        active = np.flatnonzero(line.values > 0)
        n = len(residual)
        if not len(active) or not on_line.any():
            return full
        c = max(1.5 * spread(residual), 0.01)
        root = np.sqrt(1 + (residual / c) ** 2)
        psi, slope = residual / root, 1 / root**3
        variance = (psi**2).sum() / max(spare, 1) / (slope.sum() / n) ** 2
        rows = self.rows[line.form][np.ix_(on_line, active)]
        norm = np.sqrt((rows**2).sum(axis=0))
        inverse = np.linalg.pinv((rows / norm).T @ (rows / norm), rcond=1e-10)
        full[np.ix_(active, active)] = variance * inverse / np.outer(norm, norm)
        return full

    def by_ranks(
        self, lines: list[FittedLine], rounds: int = 6
    ) -> tuple[list[FittedLine], dict[float, float]]:
        """Fit lines that share base and latency, and a factor on wire bytes by rank count."""
        counts = np.unique(self.ranks)
        factors = dict.fromkeys(counts.tolist(), 1.0)
        grid = np.exp(np.linspace(-2.2, 2.2, 89))
        for turn in range(rounds):
            self.scaled({})
            parts = [(self.rows[line.form] * line.values) for line in lines]
            fixed = np.stack([part[:, :2].sum(axis=1) for part in parts])
            moving = np.stack([part[:, 2] for part in parts])
            steps = grid if turn == 0 else np.exp(np.linspace(-0.3, 0.3, 61) / 2 ** (turn - 1))
            for p in counts.tolist():
                of_count = self.ranks == p
                tries = (factors[p] if turn else 1.0) * steps
                losses = [
                    self.loss(np.log((fixed[:, of_count] + t * moving[:, of_count]).min(axis=0)))
                    for t in tries
                ]
                factors[p] = float(tries[int(np.argmin(losses))])
            middle = float(np.exp(np.mean(np.log(list(factors.values())))))
            factors = {p: value / middle for p, value in factors.items()}
            self.scaled(factors)
            _, lines = self.refined(lines, 12)
        return lines, factors


def envelope(
    seconds: Floats,
    nbytes: Floats,
    ranks: Floats,
    forms: Sequence[Form],
    limit: int = MOST_LINES,
) -> Envelope:
    """The envelope that the samples pay for, with one bandwidth or one for each rank count."""
    problem = Problem(seconds, nbytes, ranks, forms)
    common = problem.finished(problem.grown(limit), {})
    if len(np.unique(ranks)) < 2:
        return common
    lines, factors = problem.by_ranks(list(common.lines))
    # lines found without factors may stand in for them: grow them again with the factors in
    lines = problem.grown(limit) or lines
    lines, factors = problem.by_ranks(lines)
    by_count = problem.finished(lines, factors)
    # a factor for each count extrapolates worse than one bandwidth: it must be worth a seventh
    loss_by_count, loss = (problem.loss(np.log1p(f.residual)) for f in (by_count, common))
    worth = loss_by_count < 0.85 * loss and by_count.criterion < common.criterion - 10
    return by_count if worth else common


def refitted(problem: Problem, like: Envelope) -> Envelope:
    """The envelope of the same structure for other samples, from where `like` stands."""
    factors: dict[float, float] = {}
    _, lines = problem.refined(list(like.lines), 25)
    if like.factors:
        lines, factors = problem.by_ranks(lines, 4)
    return problem.finished(lines, factors)


def predicted(fitted: Envelope, forms: Sequence[Form], ranks: Floats) -> Floats:
    """Seconds of other samples by the same forms."""
    factor = fitted.factor(ranks)
    times = [
        line.values[0]
        + forms[line.form].steps * line.values[1]
        + forms[line.form].wire * factor * line.values[2]
        for line in fitted.lines
    ]
    lowest: Floats = np.min(times, axis=0)
    return lowest


def nonnegative(rows: Floats, weight: Floats) -> Floats:
    """The x ≥ 0 that minimises Σ weight (rows x − 1)²: the best of the seven sets of unknowns."""
    weighted = rows * weight[:, None]
    square, right = weighted.T @ rows, weighted.sum(axis=0)
    norm = np.sqrt(np.maximum(np.diag(square), 1e-300))
    square, right = square / np.outer(norm, norm) + RIDGE, right / norm
    x = np.linalg.solve(square, right)
    if (x >= 0).all():
        return x / norm
    (_, a, b), (_, _, c), _ = square.tolist()
    r = right.tolist()
    best, value = [0.0, 0.0, 0.0], 0.0
    for i, j, off in ((0, 1, a), (0, 2, b), (1, 2, c)):
        det = (1 + 1e-10) ** 2 - off * off
        first, second = (r[i] - off * r[j]) / det, (r[j] - off * r[i]) / det
        if first >= 0 and second >= 0 and (gain := r[i] * first + r[j] * second) > value + 1e-12:
            best, value = [0.0, 0.0, 0.0], gain
            best[i], best[j] = first, second
    for i in range(3):
        if r[i] * r[i] > value + 1e-12:
            best, value = [0.0, 0.0, 0.0], r[i] * r[i]
            best[i] = r[i]
    return np.array(best) / norm


def spread(residual: Floats) -> float:
    """Robust standard deviation: 1.4826 times the median absolute deviation from zero."""
    return float(1.4826 * np.median(np.abs(residual)))


def _parameters(lines: Sequence[FittedLine]) -> int:
    return sum(int((line.values > 0).sum()) + 1 for line in lines)

"""Goodput: closed forms held against jobs played failure by failure, in every way to save."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import Table, figure
from oracle.run.goodput import Job

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
RUNS = 10_000
LONG = 40  # times what comes most rarely, that a job is played for
NEVER = 1e30  # seconds
SEATS = 48  # nodes of a job that may be under repair at once
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A job that fails, as the closed form has it and as it is played."""

    name: str
    between: float  # failures, seconds
    checkpoint: float
    restart: float
    safe_after: float = 0.0
    announced: float = 0.0  # interruptions a second
    repair: float = 0.0
    spares: int = 0
    replicas: int = 0  # elastic with so many

    def closed(self) -> tuple[float, float]:
        """(progress, interval) by the closed form."""
        job = Job(1 / self.between, self.restart, self.repair or None, self.spares, self.replicas,
                  announced=self.announced)  # fmt: skip
        found = job.shares(self.checkpoint, safe_after=self.safe_after)
        progress = float(found.progress) * (1 - job.gone.waiting) * job.gone.speed
        return progress, float(found.interval)


CASES = [
    Case("one in three hours", 3.09 * HOUR, 60.0, 600.0),
    Case("one a day", DAY, 300.0, 1200.0),
    Case("restarts that fail", 1800.0, 60.0, 600.0),
    Case("of 1,024 devices", 7.9 * HOUR, 300.0, 750.0),
    Case("aside", 3.09 * HOUR, 5.0, 600.0, 300.0),
    Case("aside, restarts that fail", 1800.0, 10.0, 300.0, 120.0),
    Case("preempted with notice", 3.09 * HOUR, 60.0, 600.0, announced=1 / (6 * HOUR)),
    Case("the same, aside", 3.09 * HOUR, 5.0, 600.0, 60.0, announced=1 / (6 * HOUR)),
    Case("preempted with notice, hourly", 6 * HOUR, 60.0, 300.0, announced=1 / HOUR),
    Case("no spare", DAY, 300.0, 600.0, repair=3 * HOUR),
    Case("two spares", 6 * HOUR, 60.0, 600.0, repair=DAY / 4, spares=2),
    Case("four spares, days of repair", 12 * HOUR, 60.0, 600.0, repair=DAY, spares=4),
    Case("elastic, 16 replicas", 12 * HOUR, 60.0, 600.0, repair=DAY, replicas=16),
    Case("elastic, 64 and two spares", 6 * HOUR, 60.0, 300.0, repair=DAY / 2, spares=2,
        replicas=64),
]  # fmt: skip


@dataclass
class Play:
    """So many jobs alike, each with its own luck."""

    job: Case
    runs: int
    draw: Any = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self) -> None:
        self.now, self.done, self.unsafe, self.safe_at = np.zeros((4, self.runs))
        self.back = np.zeros((self.runs, SEATS))  # when each seat is free again
        self.tau = self.job.closed()[1]

    def share(self) -> float:
        """Progress by time, of all of them."""
        job = self.job
        rarest = max(job.between, job.repair, 1 / job.announced if job.announced else 0.0)
        horizon = LONG * max(rarest, 2 * (self.tau + job.checkpoint))
        while len(at := np.flatnonzero(self.now < horizon)):
            self.stretch(at)
        return float(self.done.sum() / self.now.sum())

    def gone(self, at: Any) -> Array:
        """Nodes that are being repaired and have no spare in their place."""
        under = (self.back[at] > self.now[at, None]).sum(axis=1)
        return np.asarray(np.maximum(under - self.job.spares, 0.0))

    def strike(self, at: Any) -> None:
        """A node of each is taken out now; who needs it waits until one is back."""
        if not self.job.repair:
            return
        seat = np.argmin(self.back[at], axis=1)
        self.back[at, seat] = self.now[at] + self.draw.exponential(self.job.repair, len(at))
        if not self.job.replicas:
            waits = at[self.gone(at) > 0]
            later = np.where(self.back[waits] > self.now[waits, None], self.back[waits], NEVER)
            self.now[waits] = later.min(axis=1)

    def speed(self, at: Any) -> Array:
        if not self.job.replicas:
            return np.ones(len(at))
        return np.maximum(1 - self.gone(at) / self.job.replicas, 0.0)

    def next_ones(self, at: Any) -> tuple[Array, Array]:
        """When the next failure comes, and the next interruption that is announced."""
        job, many = self.job, len(at)
        with np.errstate(divide="ignore"):
            fails = self.now[at] + self.draw.exponential(1.0, many) * job.between / self.speed(at)
        told = np.full(many, NEVER)
        if job.announced:
            told = self.now[at] + self.draw.exponential(1 / job.announced, many)
        if job.replicas:  # a replica that is back is taken in
            later = np.where(self.back[at] > self.now[at, None], self.back[at], NEVER)
            back = later.min(axis=1)
            told = np.minimum(told, np.where(self.gone(at) > 0, back, NEVER))
        return fails, told

    def stretch(self, at: Any) -> None:
        """From a checkpoint or a start to the next."""
        job, tau = self.job, self.tau
        speed, begin = self.speed(at), self.now[at]
        fails, told = self.next_ones(at)
        end = begin + tau + job.checkpoint
        first = np.minimum(np.minimum(fails, told), end)
        good = first == end
        self.done[at[good]] += speed[good] * tau
        self.now[at[good]] = end[good]
        self.unsafe[at[good]] = speed[good] * tau
        self.safe_at[at[good]] = end[good] + job.safe_after
        saves = (first == told) & ~good
        worked = np.minimum(told - begin, tau)
        rest = np.where(told - begin < tau, job.checkpoint, end - told) + job.safe_after
        saved = saves & (fails > told + rest)
        self.done[at[saved]] += (speed * worked)[saved]
        self.now[at[saved]] = (told + rest)[saved]
        self.start(at[saved])
        bad = ~good & ~saved
        self.now[at[bad]] = fails[bad]
        late = bad & (fails < self.safe_at[at])
        self.done[at[late]] -= self.unsafe[at[late]]
        self.safe_at[at[~good]] = 0.0
        self.strike(at[bad])
        self.start(at[bad])

    def start(self, at: Any) -> None:
        """Start anew, again and again where that fails too."""
        job, left = self.job, at
        while len(left):
            fails, told = self.next_ones(left)
            end = self.now[left] + job.restart
            through = end < np.minimum(fails, told)
            self.now[left] = np.where(through, end, np.minimum(fails, told))
            self.strike(left[~through & (fails <= told)])
            left = left[~through]


def table(quick: bool = False) -> Table:
    """Closed forms against jobs that are played."""
    lines, off, runs = [], [], RUNS // 20 if quick else RUNS
    for job in CASES:
        closed, interval = job.closed()
        share = Play(job, runs).share()
        off.append(abs(closed / share - 1))
        lines.append({
            "job": job.name, "a failure each": f"{job.between / HOUR:.3g} h",
            "checkpoint": f"{job.checkpoint:g} s", "restart": f"{job.restart:g} s",
            "interval": f"{interval:.0f} s", "closed": f"{closed:.2%}", "played": f"{share:.2%}",
            "off": f"{closed / share - 1:+.2%}",
        })  # fmt: skip
    return {
        "title": f"goodput: closed form against {runs:,} jobs played failure by failure",
        "rows": lines, "figures": {"closed_form.worst": figure(max(off), "", "≤ 0.01")},
    }  # fmt: skip

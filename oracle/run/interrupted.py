"""Seconds of a training with given failures, walked through step by step.

    T = S t + k C + Σ (lost + R)

S steps of t seconds; after every few of them a checkpoint stops the training for C and is safe W
later, before the next one begins. A failure loses the work since the last checkpoint that was safe
by then, and after R the training goes on from there. `goodput` is the average over failures that
come at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """The moment of a failure: a share into a step, or into the checkpoint after it."""

    step: int
    into: float = 0.5  # the share of it that is done
    checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The seconds of such a training, by use."""

    progress: float
    checkpoints: float
    lost: float
    restarts: float

    @property
    def seconds(self) -> float:
        return self.progress + self.checkpoints + self.lost + self.restarts


def interrupted(
    steps: int, step: float, every: int, checkpoint: float, failures: Sequence[Failure],
    restart: float, safe_after: float = 0.0, begin: int = 0,
) -> Interrupted:  # fmt: skip
    """Return the seconds of steps `begin` + 1 to `steps`; each failure comes once.

    >>> interrupted(10, 1.0, 4, 0.5, [Failure(6)], restart=3.0)
    Interrupted(progress=10.0, checkpoints=1.0, lost=1.5, restarts=3.0)
    """
    now, done, left = 0.0, begin, dict[int, list[Failure]]()
    for failure in failures:
        left.setdefault(failure.step, []).append(failure)
    # checkpoints: when each is safe, its steps, the seconds until it, those of checkpoints
    saves = [(0.0, begin, 0.0, 0.0)]
    writing = lost = restarts = 0.0

    def fails(into: float, failure: Failure) -> None:
        nonlocal now, done, writing, lost, restarts
        left[failure.step].remove(failure)
        now += into
        _, done, reached, written = max(saved for saved in saves if saved[0] <= now)
        saves[:] = [saved for saved in saves if saved[1] <= done]
        lost += now - reached
        restarts += restart
        writing = written
        now += restart
        # the checkpoint that it goes on from is loaded
        saves[-1] = (now, done, now, writing)

    while done < steps:
        due = left.get(done + 1, ())
        if struck := next((event for event in due if not event.checkpoint), None):
            fails(struck.into * step, struck)
            continue
        now, done = now + step, done + 1
        if done % every:
            continue
        waited = max(0.0, saves[-1][0] - now)  # the one before is not safe yet
        if struck := next((event for event in due if event.checkpoint), None):
            fails(waited + struck.into * (checkpoint + safe_after), struck)
            continue
        now += waited + checkpoint
        writing += waited + checkpoint
        saves.append((now + safe_after, done, now, writing))
    end = max(0.0, saves[-1][0] - now)
    return Interrupted((steps - begin) * step, writing + end, lost, restarts)

"""Seconds of a training in which these very failures come, walked through step by step.

    T = S t + k C + Σ (lost + R)

S steps of t seconds; after every so many of them a checkpoint stops the training for C and is safe
W later, before the next one begins. A failure loses what was done since the last checkpoint that
was safe by then, and after R the training goes on from there. It is what `goodput` has on average,
where failures come at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """When it comes: so far into a step, or into the checkpoint after it."""

    step: int
    into: float = 0.5  # the share of it that was done
    checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Where the seconds of such a training go."""

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
    """Steps `begin` + 1 to `steps`; each failure comes once, the first time that it can.

    >>> interrupted(10, 1.0, 4, 0.5, [Failure(6)], restart=3.0)
    Interrupted(progress=10.0, checkpoints=1.0, lost=1.5, restarts=3.0)
    """
    now, done, left = 0.0, begin, dict[int, list[Failure]]()
    for one in failures:
        left.setdefault(one.step, []).append(one)
    kept = [(0.0, begin, 0.0, 0.0)]  # safe from when on, steps, seconds until then, of checkpoints
    writing = lost = restarts = 0.0

    def fails(into: float, one: Failure) -> None:
        nonlocal now, done, writing, lost, restarts
        left[one.step].remove(one)
        now += into
        _, done, reached, written = max(k for k in kept if k[0] <= now)
        kept[:] = [k for k in kept if k[1] <= done]
        lost += now - reached
        restarts += restart
        writing = written
        now += restart
        # what it goes on from is reached anew
        kept[-1] = (now, done, now, writing)

    while done < steps:
        due = left.get(done + 1, ())
        if struck := next((one for one in due if not one.checkpoint), None):
            fails(struck.into * step, struck)
            continue
        now, done = now + step, done + 1
        if done % every:
            continue
        waited = max(0.0, kept[-1][0] - now)  # the one before is not safe yet
        if struck := next((one for one in due if one.checkpoint), None):
            fails(waited + struck.into * (checkpoint + safe_after), struck)
            continue
        now += waited + checkpoint
        writing += waited + checkpoint
        kept.append((now + safe_after, done, now, writing))
    end = max(0.0, kept[-1][0] - now)
    return Interrupted((steps - begin) * step, writing + end, lost, restarts)

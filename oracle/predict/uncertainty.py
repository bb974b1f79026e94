"""How far a step's prediction can be trusted, by cause: the 90 % interval is made of these.

    deviation² = kernels² + messages² + (HOST · host)² + (software² + STEP²) T²   either way
    more²      = short² + (MORE · T)²                                   only ever more time

`oracle.spec.doubt` has the constants, one set for all plans and machines. `python -m
benchmarks.doubt` prints how often the interval held and how wide it was, table by table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from oracle.kernels.provenance import Provenance
from oracle.models.shard import Array
from oracle.predict.exchange import Priced
from oracle.spec.doubt import HOST, MORE, STEP

# where forward, backward and update come from
Sources: TypeAlias = tuple[Provenance, Provenance, Provenance]


def messages(
    talk: Sequence[Priced], times: dict[str, Array], stage: dict[str, Array], same: Array
) -> tuple[Array, Array]:
    """(variance, 1σ of what they may only take longer) of all messages of an iteration.

    Those over what was measured err one by one; all others err alike, and their doubts add up.
    """
    variance, alike, short = np.zeros((3, len(same)))
    for one in talk:
        when = one.when
        exposed = times[when] * one.exposed[same, stage[when]]
        if when == "step":
            full = times["again"] > 0
            exposed = np.where(full, times[when] * one.later[same, stage[when]], exposed)
        longer = times[when] * one.longer[same, stage[when]]
        if when == "forward" and not one.stays:  # and where all is recomputed
            exposed = exposed + times["again"] * one.later[same, stage["again"]]
            longer = longer + times["again"] * one.longer[same, stage["again"]]
        sigma, sure = one.rough[same] * exposed, one.covered[same]
        variance = variance + np.where(sure, sigma, 0.0) ** 2
        alike = alike + np.where(sure, 0.0, sigma)
        short = short + longer
    return variance + alike**2, short


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What a table of plans errs by, seconds, (n,) each."""

    seconds: Array  # of the step
    work: Array  # of its kernels
    talked: Array  # variance of its messages
    short: Array  # 1σ of what messages may only take longer
    launched: Array  # what it would take longer for a relative change of the host's work
    software: float  # relative 1σ for want of steps measured under it
    same: Array
    sources: Callable[[], Sources]  # asked once, where anybody wants to know

    @cached_property
    def known(self) -> Sources:
        """Where forward, backward and update of each distinct shard come from."""
        return self.sources()

    @cached_property
    def kernels(self) -> Array:
        """Relative 1σ of the kernels together; none under ideal assumptions."""
        ahead, back, _ = self.known
        return ((ahead.uncertainty + back.uncertainty) / (ahead.total + back.total))[self.same]

    @property
    def deviation(self) -> Array:
        """1σ, either way."""
        step = np.hypot(STEP, self.software) * self.seconds * (self.kernels > 0)
        causes = (self.kernels * self.work, step, HOST * self.launched)
        return np.sqrt(sum(cause**2 for cause in causes) + self.talked)

    @property
    def more(self) -> Array:
        """1σ of what can only slow a step down: it widens the interval upwards."""
        return np.hypot(MORE * self.seconds, self.short) * (self.kernels > 0)


def host_share(both: Array, host: Array) -> Array:
    """What a pass would take longer for a relative change of the host's work: host³ / both²."""
    return np.asarray(np.divide(host**3, both**2, out=np.zeros(both.shape), where=both > 0))

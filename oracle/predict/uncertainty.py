"""How far a step's prediction can be trusted, by cause: the 90 % interval is made of these.

    deviation² = (kernels · device)² + messages² + (HOST · host)² + (STEP · (T - timed))²
               + software² T² + (HIDES · exposed)² + (LAYOUT · convolved)²
                                                                       either way
    more²      = short² + (MORE · T)² + (INPUT · min(T, fed))²         only ever more time

where a relative change of the device's work makes the step `device` longer and one of the host's
`host`: where a pass waits for the host, kernels that err make it no longer. Rows that were `timed`
at their very shapes hold what lies between kernels.

It names `recompute`, since messages of what is made again are sent again.

`oracle.spec.doubt` has the constants, one set for all plans and machines. `python -m
benchmarks.doubt` prints how often the interval held and how wide it was, table by table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from oracle.kernels.profile.factors import GROUPS, NOTHING, Factors
from oracle.kernels.provenance import Provenance
from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.plan import Plan
from oracle.plan.strategies.recompute import STAGE
from oracle.predict.exchange import Priced
from oracle.predict.overlap import longer_by
from oracle.spec.doubt import READ, WIDTHS
from oracle.spec.software import Software

# where forward, backward and update come from
Sources: TypeAlias = tuple[Provenance, Provenance, Provenance]


def messages(
    talk: Sequence[Priced],
    times: dict[str, Array],
    stage: dict[str, Array],
    same: Array,
    recompute: Array,
) -> tuple[Array, Array, dict[str, Array]]:
    """(variance, 1σ of what they may only take longer) of all messages of an iteration.

    And what those take that logged runs told of, by the factor, whose doubts are not in the former.

    Those over what was measured err one by one; all others err alike, and their doubts add up.
    """
    variance, alike, short = np.zeros((3, len(same)))
    logged: dict[str, Array] = {}
    for priced in talk:
        when = priced.when
        if when == "step":
            exposed = times[when] * after_step(priced, recompute, same, stage[when])
        else:
            exposed = times[when] * priced.exposed[same, stage[when]]
        longer = times[when] * priced.longer[same, stage[when]]
        if when == "forward" and not priced.stays:  # and where all is recomputed
            seconds_again = priced.left("again")[same, stage["again"]]
            seconds_again = np.where(
                recompute == STAGE, priced.exposed[same, stage["again"]], seconds_again
            )
            exposed = exposed + times["again"] * seconds_again
            longer = longer + times["again"] * priced.longer[same, stage["again"]]
        if priced.logged.any():
            for name, its in (("inside", ~priced.between), ("between", priced.between)):
                took = exposed * (its & priced.logged)[same]
                logged[name] = logged.get(name, 0.0) + took
            exposed = exposed * ~priced.logged[same]
        sigma, sure = priced.rough[same] * exposed, priced.covered[same]
        variance = variance + np.where(sure, sigma, 0.0) ** 2
        alike = alike + np.where(sure, 0.0, sigma)
        short = short + longer
    return variance + alike**2, short, logged


def after_step(priced: Priced, recompute: Array, same: Array, stage: Array) -> Array:
    """What is left of a step's messages on each plan's stage, by its kind of recomputation."""
    seconds_left = priced.exposed[same, stage]
    for kind in np.unique(recompute[recompute > 0]).tolist():
        seconds_left = np.where(
            recompute == kind, priced.left(longer_by(kind))[same, stage], seconds_left
        )
    return np.asarray(seconds_left)


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What a table of plans errs by, seconds, (n,) each."""

    seconds: Array  # of the step
    work: Array  # of its kernels
    talked: Array  # variance of its messages
    exposed: Array  # what its messages make it longer
    short: Array  # 1σ of what messages may only take longer
    launched: Array  # what it would take longer for a relative change of the host's work
    fed: Array | float  # that a host takes for what a device is fed
    software: Software
    same: Array
    sources: Callable[[], Sources]  # asked once, where anybody wants to know
    factors: Factors = NOTHING  # what logged runs told, and how surely
    sent: dict[str, Array] = field(default_factory=dict)  # messages that they told of

    @cached_property
    def known(self) -> Sources:
        """Where forward, backward and update of each distinct shard come from."""
        return self.sources()

    @cached_property
    def kernels(self) -> Array:
        """Relative 1σ of the kernels together, but for those that logged runs told of.

        None under ideal assumptions.
        """
        ahead, back, _ = self.known
        family_doubts = (ahead.doubts.get(family, 0.0) + back.doubts.get(family, 0.0)
                for family in dict.fromkeys((*ahead.doubts, *back.doubts)))  # fmt: skip
        together = np.sqrt(sum((doubt**2 for doubt in family_doubts), np.zeros(1)))
        kernel_doubt = np.broadcast_to(together, ahead.total.shape)
        return np.asarray((kernel_doubt / (ahead.total + back.total))[self.same])

    @property
    def timed(self) -> Array:
        """Seconds of rows that were timed at their very shapes, with what lies between kernels."""
        ahead, back, _ = self.known
        share = (ahead.timed + back.timed) / (ahead.total + back.total)
        work = np.maximum(self.work - self.launched, 0.0)
        return np.asarray(np.broadcast_to(share, ahead.total.shape)[self.same] * work)

    @property
    def convolved(self) -> Array:
        """What convolutions make a step longer, of which nobody says where their channels stand."""
        ahead, back, _ = self.known
        share = (ahead.convolved + back.convolved) / (ahead.total + back.total)
        unsaid = self.software.convolution.layout == ""
        work = np.maximum(self.work - self.launched, 0.0)
        return np.asarray(unsaid * np.broadcast_to(share, ahead.total.shape)[self.same] * work)

    @cached_property
    def logged(self) -> Array:
        """Variance of what logged runs told of: their factors err together, or against another."""
        if not self.factors:
            return np.zeros(1)
        ahead, back, _ = self.known
        total = ahead.total + back.total
        rest = np.maximum(self.work - self.launched, 0.0)
        took = {name: ((ahead.told.get(name, 0.0) + back.told.get(name, 0.0)) / total)[self.same]
                * rest for name in dict.fromkeys((*ahead.told, *back.told))}  # fmt: skip
        took |= {**self.sent, "host": self.launched}
        variance = sum((seconds * other_seconds * self.factors.covariance(first, second)
                     for first, seconds in took.items() for second, other_seconds in took.items()),
                    np.zeros(1))  # fmt: skip
        return np.maximum(variance, 0.0)

    @property
    def real(self) -> Array:
        """Whether anything is doubted at all: nothing under ideal assumptions."""
        return np.asarray((self.kernels > 0) | (self.logged > 0))

    @cached_property
    def parts(self) -> dict[str, Array]:
        """Seconds that each constant is a part of: 1σ is their product, by its name."""
        real = self.real
        seconds, strange = self.seconds * real, real * (not self.software.held)
        # where runs were logged their factors hold what this software does otherwise
        ran = any(name in self.factors.told for name in GROUPS)
        shown_doubt = self.factors.doubt("shown")
        hides = strange if shown_doubt is None else real * shown_doubt / WIDTHS["HIDES"]
        return {
            "STEP": seconds - real * self.timed,
            "HOST": self.launched * ("host" not in self.factors.told),
            "SOFTWARE": strange * (not ran) * np.maximum(seconds - self.launched, 0.0),
            "HIDES": hides * self.exposed, "LAYOUT": strange * (not ran) * self.convolved,
            "MORE": seconds,
            "INPUT": np.minimum(seconds, self.fed),
        }  # fmt: skip

    @cached_property
    def given(self) -> tuple[Array, Array]:
        """Variance of what is doubted by measurements of its own: either way, and upwards."""
        kernels = self.kernels * np.maximum(self.work - self.launched, 0.0)
        variance = kernels**2 + self.talked + self.changed**2
        return variance + self.logged, self.short**2

    @property
    def changed(self) -> Array:
        """1σ for fields of the software that were said otherwise than its steps were measured."""
        return np.asarray(self.software.changed_doubt * self.seconds * self.real)

    @property
    def untried(self) -> Array:
        """1σ for want of steps measured under this software."""
        alone = (WIDTHS[name] * self.parts[name] for name in UNTRIED)
        return np.asarray(np.sqrt(self.changed**2 + sum(deviation**2 for deviation in alone)))

    def deviations(self, widths: dict[str, float]) -> tuple[Array, Array]:
        """1σ either way and of what can only slow a step down, by these constants."""
        both_ways = []
        for names, variance in zip((EITHER, UPWARDS), self.given, strict=True):
            variance_of_constants = sum((widths[name] * self.parts[name]) ** 2 for name in names)
            both_ways.append(np.sqrt(variance + variance_of_constants))
        return both_ways[0], both_ways[1]

    @property
    def deviation(self) -> Array:
        """1σ, either way."""
        return self.deviations(WIDTHS)[0]

    @property
    def more(self) -> Array:
        """1σ of what can only slow a step down: it widens the interval upwards."""
        return self.deviations(WIDTHS)[1] * self.real


UNTRIED = ("SOFTWARE", "HIDES", "LAYOUT")
EITHER, UPWARDS = ("STEP", "HOST", *UNTRIED), ("MORE", "INPUT")


def fed(model: Model, plan: Plan, software: Software) -> Array:
    """Seconds that a device's share of a host takes to read and decode its part of a batch.

    None for tokens, nor where software is known to have them ready ahead.
    """
    elements = 0.0 if model.tokens.any() or software.host.reader == "ahead" else model.x[0]
    return np.asarray(plan.batch[:, 0] / plan.devices[:, 0] * elements / READ)


def host_share(pass_seconds: Array, host: Array) -> Array:
    """What a pass would take longer for a relative change of the host's work: host³ / both²."""
    return np.asarray(
        np.divide(
            host**3, pass_seconds**2, out=np.zeros(pass_seconds.shape), where=pass_seconds > 0
        )
    )

"""The largest batch of a plan whose micro-batches fit, as many as the plan has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oracle.models.model import Model
from oracle.plan.plan import Plan, parse
from oracle.predict.estimate import estimate
from oracle.spec.options import Options
from oracle.spec.system import System

MOST = 2**24  # samples of a micro-batch; more are never looked for


def pieces(plan: Plan) -> int:
    """Into how many micro-batches the plan cuts a batch, over all devices that share it out."""
    count = 1.0
    for axis in plan.axes:
        count *= float(np.ravel(axis.degree)[0]) if axis.deals_batch else 1.0
        for knob in axis.batch_knobs():
            count *= float(np.ravel(getattr(axis, knob))[0])
    return int(count)


def largest_batch(
    model: Model, system: System, plans: Sequence[str], options: Options
) -> NDArray[np.float64]:
    """The batch of each plan: B = pieces · max{b : memory(b) <= capacity}, b whole.

    One sample where not even that fits; the estimate then says what is short. Memory never
    falls with b and is nearly a line, so b is looked for where the line through the last two
    meets the capacity, and every third time halfway between what fits and what does not.
    """
    each = np.array([pieces(parse(plan, 1.0)) for plan in plans], float)

    def free(micro: NDArray[np.float64]) -> NDArray[np.float64]:
        found = estimate(model, system, plans, list(micro * each), options)
        return found.capacity - found.memory

    low, high = np.ones(len(plans)), np.full(len(plans), 2.0 * MOST)
    left = free(low)  # bytes beside what fits
    high = np.where(left < 0, 2.0, high)
    guess = np.full(len(plans), 2.0)
    for turn in range(200):
        open_ = high - low > 1
        if not open_.any():
            break
        guess = np.where(open_, guess, low)
        found = free(guess)
        fits, slope = found >= 0, np.maximum(_slope(low, left, guess, found), 1.0)
        low, left = np.where(fits, guess, low), np.where(fits, found, left)
        high = np.where(fits, high, guess)
        line = np.floor(low + left / slope) + (turn % 2)
        halves = np.floor((low + np.minimum(high, 64 * low)) / 2)
        guess = np.clip(np.where(turn % 3 == 2, halves, line), low + 1, np.maximum(high - 1, low))
    batch: NDArray[np.float64] = np.minimum(low, MOST) * each
    return batch


def _slope(
    low: NDArray[np.float64], left: NDArray[np.float64], high: NDArray[np.float64],
    over: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """Bytes of a sample more."""
    slope: NDArray[np.float64] = (left - over) / np.maximum(high - low, 1.0)
    return slope

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
    model: Model, system: System, plans: Sequence[str | Plan], options: Options
) -> NDArray[np.float64]:
    """The batch of each plan: B = pieces · max{b : memory(b) <= capacity}, b whole.

    One sample where not even that fits; the estimate then says what is short. Memory never
    falls with b, so b is doubled until it fits no more, and then halved between.
    """
    read = [parse(plan, 1.0) if isinstance(plan, str) else plan for plan in plans]
    each = np.array([pieces(plan) for plan in read], float)
    capacity = float(options.max_memory or system.device.memory)

    def fits(micro: NDArray[np.float64]) -> NDArray[np.bool_]:
        found = estimate(model, system, [plan.text() for plan in read], list(micro * each), options)
        return np.asarray(found.memory <= capacity)

    low, high = np.ones(len(read)), np.full(len(read), 2.0)
    growing = fits(low)
    while growing.any():
        growing &= fits(high)
        low = np.where(growing, high, low)
        growing &= high < MOST
        high = np.where(growing, 2 * high, high)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        good = fits(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    batch: NDArray[np.float64] = low * each
    return batch

"""The largest batch whose micro-batches fit, and the micro-batches with which a batch fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oracle.models.model import Model
from oracle.plan.grammar import read, write
from oracle.plan.plan import Plan, parse
from oracle.plan.strategies import strategies
from oracle.predict.estimate import Estimate, estimate
from oracle.spec.document import refusal
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


def cut_in(plan: str, times: int) -> str:
    """Return the plan with so many times as many micro-batches.

    >>> cut_in("data:16,zero=1 tensor:4", 8), cut_in("pipeline:4,segments=4 data:2", 2)
    ('data:16,zero=1,accumulate=8 tensor:4', 'pipeline:4,segments=8 data:2')
    >>> cut_in("tensor:8", 4)
    'data:1,accumulate=4 tensor:8'
    """
    axes = read(plan)
    names = [axis.name for axis in axes]
    name, knob = ("pipeline", "segments") if "pipeline" in names else ("data", "accumulate")
    if name not in names:
        axes.insert(0, strategies()[name]())
    return write(replace(axis, **{knob: getattr(axis, knob) * times}) if axis.name == name else axis
                 for axis in axes)  # fmt: skip


def in_micro_batches(plan: str, batch: int) -> str:
    """Return the plan with `micro=k`, samples of a micro-batch, as the count of micro-batches.

    >>> in_micro_batches("data:16,zero=1,micro=1 tensor:4", 256)
    'data:16,zero=1,accumulate=16 tensor:4'
    >>> in_micro_batches("pipeline:4,micro=2 data:8", 256)
    'pipeline:4,segments=16 data:8'
    """
    sizes = re.findall(r",micro=([1-9]\d{0,8})\b", plan)
    bare = re.sub(r",micro=[1-9]\d{0,8}\b", "", plan)
    if len(sizes) != 1:
        return plan  # none, or no number: the plan's own grammar says what is wrong
    each = pieces(parse(bare, 1.0)) * int(sizes[0])
    if batch % each:
        what = f"a batch of {batch:,} cannot be cut into micro-batches of {sizes[0]}"
        raise refusal("plan", what, f"write a multiple of {each:,}, or another micro=", "E112")
    return cut_in(bare, batch // each)


def cut_to_fit(shown: Estimate, row: int) -> Estimate | None:
    """Return a plan that does not fit with as few more micro-batches as make it fit, if any do."""
    plan, batch = shown.plans[row], float(shown.batch[row])
    most = batch / pieces(parse(plan, batch))
    times = [2**k for k in range(1, 25) if 2**k <= most and most % 2**k == 0]
    if not times or (shown.memory[row] <= shown.capacity[row] and shown.feasible[row]):
        return None
    plans = [cut_in(plan, count) for count in times]
    cut = estimate(shown.model, shown.system, plans, [batch] * len(plans), shown.options)
    fits = np.flatnonzero(cut.feasible)
    return cut.take([int(fits[0])]) if len(fits) else None


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

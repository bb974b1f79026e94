"""The steps of a run after its warm-up, with their median and spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from oracle.readers.logs import usable
from oracle.readers.runs import Timing

NEAR = 1.2  # times the median of the later half, up to which a first step is no warm-up
ENOUGH = 3  # steps, from which on the first can be compared with the others


def steady(values: Sequence[float]) -> list[float]:
    """Return the values without first steps that take much longer than the later half."""
    usable_values = [value for value in values if usable(value)]
    if len(usable_values) < ENOUGH:
        return usable_values
    later = statistics.median(usable_values[len(usable_values) // 2 :])
    begin = 0
    while begin < len(usable_values) // 2 and usable_values[begin] > NEAR * later:
        begin += 1
    return usable_values[max(begin, 1) :]


def timing(values: Sequence[float]) -> Timing | None:
    """Return the median of the steps after the warm-up, and their spread; None without steps.

    Evaluations and checkpoints in between are outliers: the spread is the middle half's.

    >>> timing([9.0, 1.0, 1.0, 1.02, 0.98, 1.0])
    Timing(seconds=1.0, spread=0.0, count=5)
    """
    return median_of(steady(values))


def median_of(values: Sequence[float]) -> Timing | None:
    """Return the median of all values, and their spread; None without values."""
    valid = [value for value in values if math.isfinite(value) and value >= 0]
    if not valid:
        return None
    middle = statistics.median(valid)
    deviation = statistics.median(abs(value - middle) for value in valid)
    spread = 1.4826 * deviation / middle if middle > 0 else 0.0
    return Timing(middle, spread, len(valid))

"""The steps of a run that count: those after its warm-up, with what differs between them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from oracle.readers.logs import usable
from oracle.readers.runs import Timing

NEAR = 1.2  # times the median of the later half, up to which a first step is not warm-up
FEW = 3  # steps, from which on the first is known from the others


def steady(values: Sequence[float]) -> list[float]:
    """Without the first steps, as long as they take much longer than the later half does."""
    found = [value for value in values if usable(value)]
    if len(found) < FEW:
        return found
    later = statistics.median(found[len(found) // 2 :])
    begin = 0
    while begin < len(found) // 2 and found[begin] > NEAR * later:
        begin += 1
    return found[max(begin, 1) :]


def timing(values: Sequence[float]) -> Timing | None:
    """The median of the steps that count, and their spread; None where there is none.

    Evaluations and checkpoints in between are outliers: the spread is the middle half's.

    >>> timing([9.0, 1.0, 1.0, 1.02, 0.98, 1.0])
    Timing(seconds=1.0, spread=0.0, count=5)
    """
    return of(steady(values))


def of(values: Sequence[float]) -> Timing | None:
    """The median of all, and their spread."""
    found = [value for value in values if math.isfinite(value) and value >= 0]
    if not found:
        return None
    middle = statistics.median(found)
    apart = statistics.median(abs(value - middle) for value in found)
    spread = 1.4826 * apart / middle if middle > 0 else 0.0
    return Timing(middle, spread, len(found))

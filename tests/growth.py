"""Whether work grows gently with its size: a ratio within one run, on whatever machine it runs."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 5  # a busy machine only adds to the time of a try
FREE = 0.02  # CPU seconds that the larger work may always take: less cannot be told from noise


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds that this process spends on the work."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def assert_gentle(work: Callable[[int], object], small: int, large: int) -> None:
    """Fail where work of the larger size takes longer than growth of n log n and noise explain.

    The bound is twice the ratio of the sizes, where quadratic work would take its square. Each
    size counts by its quickest try.
    """
    assert large >= 8 * small, "else noise hides a quadratic growth"
    quickest = {small: float("inf"), large: float("inf")}
    for _ in range(TRIES):
        for size in quickest:
            quickest[size] = min(quickest[size], cpu_seconds(lambda size=size: work(size)))
        allowed = FREE + 2 * large / small * quickest[small]
        if quickest[large] <= allowed:
            return
    raise AssertionError(
        f"size {small} takes {quickest[small]:.3f} s and size {large} takes {quickest[large]:.3f} s"
        f" of the processor, more than {allowed:.3f} s: the work grows faster than n log n"
    )

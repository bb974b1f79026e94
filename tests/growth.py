"""How the time of some work grows with its size, told within one run: no machine's own seconds."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from time import process_time
from typing import Any

TRIES = 6
GENTLY = 10  # times as long, of four times the size
TOO_LITTLE = 0.02  # CPU seconds: work that ends so soon has not grown to anything


def assert_grows_gently(work_of_size: Callable[[int], Callable[[], Any]], large: int) -> None:
    """Work of a size takes at most ten times the CPU time of work of a quarter of it.

    By n log n that is less than five times, by n² sixteen; what no longer stays in a cache that
    others use too may take twice as long. `work_of_size` prepares the work, which
    takes no part in the time, and returns it. Other processes only add to a time, so the least of
    several tries counts, and the small work, which is cheap, has two of them for each of the large.
    """
    quarter, full = (timeit.Timer(work_of_size(n), timer=process_time) for n in (large // 4, large))
    small = large_least = float("inf")
    for _ in range(TRIES):
        small = min(small, quarter.timeit(1))  # the first one warms up
        large_least = min(large_least, full.timeit(1))
        if large_least < TOO_LITTLE:
            return
        small = min(small, quarter.timeit(1))
        if large_least <= GENTLY * small:
            return
    raise AssertionError(
        f"four times the size takes {large_least / small:.1f} times as long: "
        f"{small:.3f} and {large_least:.3f} s"
    )

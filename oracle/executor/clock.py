"""Seconds of a step by phase, and clocks of several ranks put right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oracle.executor.rank import Rank

PHASES = ("forward", "backward", "exchange", "update")


@dataclass
class Clock:
    """Seconds by phase; exchanges inside a pass are counted as exchange."""

    exchanged: Callable[[], float]
    synchronise: Callable[[], None]
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        from torch.profiler import record_function

        self.synchronise()
        began, before = time.perf_counter(), self.exchanged()
        with record_function(name):  # in traces
            yield
            self.synchronise()
        inside = self.exchanged() - before
        spent = time.perf_counter() - began
        self.seconds[name] += spent - inside
        self.seconds["exchange"] += inside


def ahead(rank: Rank, barriers: int = 9) -> float:
    """Seconds that this rank's clock is ahead of rank 0's.

    All leave a barrier at nearly the same moment: the median over a few.
    """
    import torch
    import torch.distributed as dist

    left = []
    for _ in range(barriers):
        dist.barrier(group=rank.control)
        left.append(time.perf_counter())
    own = torch.tensor(left, dtype=torch.float64)
    first = own.clone()
    dist.broadcast(first, 0, group=rank.control)
    return float((own - first).median())

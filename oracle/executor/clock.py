"""Seconds of a step by phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PHASES = ("forward", "backward", "exchange", "update")


@dataclass
class Clock:
    """Seconds by phase; exchanges inside a pass are counted as exchange."""

    exchanged: Callable[[], float]
    synchronise: Callable[[], None]
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.synchronise()
        began, before = time.perf_counter(), self.exchanged()
        yield
        self.synchronise()
        inside = self.exchanged() - before
        spent = time.perf_counter() - began
        self.seconds[name] += spent - inside
        self.seconds["exchange"] += inside

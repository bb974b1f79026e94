"""What it takes to keep a machine running: how often it fails, what it draws, what it emits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from oracle.spec.schema import Between, Clash, Fraction
from oracle.spec.units import Seconds, Watt

Longer = Annotated[float, Between(1, 1000)]


@dataclass(frozen=True, slots=True)
class Power:
    """What a device draws: at work, and waiting where somebody measured it."""

    idle: Watt | None = None
    busy: Watt = 0.0
    source: str = ""
    origin: Literal["measured", "datasheet", "assumed"] = "datasheet"

    def check(self) -> Iterator[Clash]:
        if not self.busy:
            yield Clash("busy", "what it draws at work is missing", "e.g. 700 W")
        elif self.idle is not None and self.idle > self.busy:
            yield Clash("idle", "more than it draws at work", "no more than `busy`")


@dataclass(frozen=True, slots=True)
class Slow:
    """Devices that are broken but run on: what share of them, and how many times as long."""

    share: Fraction
    factor: Longer


@dataclass(frozen=True, slots=True)
class Reliability:
    """How often a job is interrupted, and what it takes until it goes on; unknown if not said."""

    mtbf: Seconds  # between two failures of one of `per`
    source: str
    per: Literal["device", "node"] = "device"
    detect: Seconds | None = None  # until somebody notices
    restart: Seconds | None = None  # from then until the first step, the checkpoint's load aside
    repair: Seconds | None = None  # until what failed is back
    spares: Fraction = 0.0  # of the nodes
    slow: Slow | None = None

    def check(self) -> Iterator[Clash]:
        if self.mtbf <= 0:
            yield Clash("mtbf", "nothing fails all the time", "e.g. 50 kh")

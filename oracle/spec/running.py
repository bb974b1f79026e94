"""What it takes to keep a machine running: how often it fails, what it draws, what it emits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from oracle.spec.schema import Between, Clash, Count, Fraction
from oracle.spec.units import PerSecond, Seconds, Watt

Longer = Annotated[float, Between(1, 1000)]
KILONODE_DAYS = 1000 * 86400.0  # seconds of a node in which so many failures are counted


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

    shorthand: ClassVar[str] = "mtbf"

    source: str
    of: str = ""  # the machine that was counted on, where it is another
    mtbf: Seconds | None = None  # between two failures of one of `per`
    per: Literal["device", "node"] = "device"
    # the same as failures of 1,000 nodes in a day
    per_1000_node_days: Annotated[float, Between(1e-6, 1e6)] | None = None
    # how far off that is, either way, with a probability of 90 %
    factor: Longer = 2.0
    # until somebody notices; in `restart`, if not said
    detect: Seconds | None = None
    restart: Seconds | None = None  # from then until the first step, the checkpoint's load aside
    # until what failed is back; not said: another is always there
    repair: Seconds | None = None
    spares: Fraction = 0.0  # of the nodes, beside those of a job
    # goes on without the replicas that have failed, until they are back
    elastic: bool = False
    preempted: PerSecond | None = None  # how often a job has to make way
    notice: Seconds = 0.0  # ahead of that
    slow: Slow | None = None

    def check(self) -> Iterator[Clash]:
        if self.mtbf is not None and self.mtbf <= 0:
            yield Clash("mtbf", "nothing fails all the time", "e.g. 50 kh")
        if self.mtbf is not None and self.per_1000_node_days is not None:
            what = "how often nodes fail is said twice"
            yield Clash("per_1000_node_days", what, "`mtbf` or `per_1000_node_days`")
        if self.repair is None and (self.elastic or self.spares):
            name = "elastic" if self.elastic else "spares"
            yield Clash(name, "nobody says how long what failed is away", "e.g. repair: 1 day")

    def rate(self, devices: float, node: int) -> float | None:
        """Failures a second of a job of so many devices, so many of which share a node."""
        nodes = -(-devices // node)
        if self.per_1000_node_days is not None:
            return nodes * self.per_1000_node_days / KILONODE_DAYS
        if self.mtbf is None:
            return None
        return (devices if self.per == "device" else nodes) / self.mtbf


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a job saves its state: who writes, where to, how often."""

    shorthand: ClassVar[str] = "how"

    # one rank alone; each its own part; likewise, from a copy, while training goes on
    how: Literal["rank0", "sharded", "async"] = "sharded"
    # shared files; disks of the nodes, or their memory, of one node and of another
    to: Literal["shared", "local", "host"] = "shared"
    every: Seconds | None = None  # of progress; the best interval, if not said
    keep: Count = 2  # checkpoints that stay, on disks and in memory
    source: str = ""

    def check(self) -> Iterator[Clash]:
        if self.every is not None and self.every <= 0:
            yield Clash("every", "no time is left to train between two checkpoints", "e.g. 30 min")
        if self.how == "rank0" and self.to != "shared":
            what = "a checkpoint of rank 0 alone is lost with its node"
            yield Clash("to", what, "to: shared, or how: sharded")

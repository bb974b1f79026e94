"""What a level was measured to give messages by the number of nodes that they span."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oracle.spec.collective_names import ALGORITHMS
from oracle.spec.document import suggest
from oracle.spec.schema import Clash, Count
from oracle.spec.units import Bytes, BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True)
class ByNodes:
    """Bus bandwidth of an operation across so many nodes, as nccl-tests count it."""

    op: str
    nodes: Count
    bandwidth: BytesPerSecond  # the median of many moments
    # 5th and 95th percentile of them; neither where one moment was measured
    low: BytesPerSecond | None = None
    high: BytesPerSecond | None = None
    ranks: Count | None = None  # of each node; all its devices if not said
    size: Bytes = 2.0**30  # of the message, all ranks' parts together
    beside: Seconds = 0.0  # of each call, what was no message: copies into place

    def check(self) -> Iterator[Clash]:
        if self.op not in ALGORITHMS:
            hint = suggest(self.op, ALGORITHMS, "known")
            yield Clash("op", f"no operation is called `{self.op}`", hint)
        if self.nodes < 2:
            yield Clash(
                "nodes", "what one node gives says nothing of the way out of it", "2 or more"
            )
        for name in ("bandwidth", "size"):
            if not getattr(self, name) > 0:
                yield Clash(name, f"a {name} of 0 is no measurement", "more than 0")
        if self.size > 0 and self.beside >= 0.5 * self.size / max(self.bandwidth, 1.0):
            yield Clash("beside", "most of the call was no message", "a message of more bytes")
        if (self.low is None) != (self.high is None):
            yield Clash("low", "a spread has two ends", "low: … and high: …, or neither")
        low, high = self.low or self.bandwidth, self.high or self.bandwidth
        if not 0 < low <= self.bandwidth <= high:
            yield Clash("low", "the median lies between the 5th and the 95th percentile",
                        "low ≤ bandwidth ≤ high, low more than 0")  # fmt: skip

"""Whether compressing gradients pays, and from which bandwidth on: an answer in words and data."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from oracle.spec.units import show


@dataclass(frozen=True, slots=True)
class Compression:
    """Whether compressing pays, and the bandwidth below which it does."""

    pays: bool
    plain: str  # the best plan that sends gradients whole
    packed: str  # the best that does not
    gain: float  # seconds of the one by those of the other, its epochs counted
    level: str  # whose links were made slower and faster
    bandwidth: float  # of a link there, as it is
    crossing: float  # at which both are as fast; 0: never below, infinite: always
    epochs: str  # what is assumed of them

    @property
    def words(self) -> str:
        """In a line."""
        here = f"{_rate(self.bandwidth)} here"
        where = f"at {'any' if self.crossing else 'no'} speed of `{self.level}`"
        if 0 < self.crossing < inf:
            where = f"below {_rate(self.crossing)} a link of `{self.level}`, starts as much faster"
        if self.pays:
            return f"pays {where} ({here}): {self.gain:.3g} × {self.plain}; {self.epochs}"
        head = f"does not pay: {self.packed} takes {1 / self.gain - 1:.1%} more than {self.plain}"
        return f"{head}; it would {where} ({here}); {self.epochs}"

    def to_dict(self) -> dict[str, Any]:
        """As data, SI; no crossing where there is none."""
        crossing = self.crossing if 0 < self.crossing < inf else None
        return {"pays": self.pays, "plain": self.plain, "packed": self.packed, "gain": self.gain,
                "level": self.level, "bandwidth": self.bandwidth, "crossing": crossing,
                "epochs": self.epochs}  # fmt: skip


def _rate(bandwidth: float) -> str:
    return show(8 * bandwidth, "bit/s", 2)

"""How long a model trains until a target is met: epochs or samples of a small batch, and B_c."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from oracle.spec.schema import Between, Clash, Count

Amount = Annotated[float, Between(1e-3, 1e18)]


@dataclass(frozen=True, slots=True)
class Convergence:
    """What runs to one target took, by optimizer; `oracle.run.convergence` has the law."""

    optimizer: str
    target: str  # in words, `75.9 % top-1`
    source: str
    epochs: Amount | None = None  # e₀, of a batch far below the critical one; or
    samples: Amount | None = None  # the same in samples
    critical_batch: Amount | None = None  # samples; none: runs took as long at every batch tried
    smallest: Count = 1  # batch that met the target
    largest: Count = 2**53
    scatter: Annotated[float, Between(0, 3)] = 0.7  # relative, 1σ, of what runs took
    origin: Literal["fitted", "stated", "assumed"] = "assumed"

    def check(self) -> Iterator[Clash]:
        if (self.epochs is None) == (self.samples is None):
            yield Clash("target", "how long it takes is said once", "`epochs` or `samples`")
        if self.smallest > self.largest:
            yield Clash("smallest", "larger than the largest batch")

"""Successive halving: all trials for a while, the best of them for longer, and so on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from oracle.run.searches.base import Search, Stage
from oracle.spec.schema import Between, Clash


@dataclass(frozen=True)
class Halving(Search):
    """All trials for a while, the best of them η times as long, until few are trained to the end.

    T = Σᵢ ⌈R η⁻ⁱ/c⌉ (ηⁱ⁻ᵏ - ηⁱ⁻ᵏ⁻¹) T_run(n)     i = 0 … k, each rung going on from the one before
    T = Σᵢ ⌈R η⁻ⁱ/c⌉ ηⁱ⁻ᵏ T_run(n)               `fresh`: each rung from the beginning
    """

    source = "li2020, Algorithm 1"

    eta: Annotated[float, Between(1.1, 100)] = 3.0  # η: one trial of η goes on
    rungs: Annotated[int, Between(1, 200)] | None = (
        None  # k + 1; by default as many as leave one trial
    )
    fresh: bool = False
    regroup: bool = False  # trials that go on get the nodes of those that do not

    @property
    def resized(self) -> bool:
        return self.regroup

    def last(self, trials: int) -> int:
        """Return k, the number of the last rung."""
        # a product reads the value: a field with a fault raises here
        highest = int(math.log(trials * 1.0) / math.log(self.eta * 1.0) + 1e-9)
        return highest if self.rungs is None else self.rungs - 1

    def stages(self, trials: int | None, at_once: int) -> list[Stage]:
        k, stages = self.last(trials or 1), []
        for i in range(k + 1):
            share = self.eta ** (i - k)
            done = share / self.eta if i and not self.fresh else 0.0
            left = int((trials or 0) / self.eta**i + 1e-9)
            stages.append(Stage(f"rung {i + 1} of {k + 1}", left, share - done))
        return stages

    def wrong(self, trials: int | None) -> Iterator[Clash]:
        yield from super().wrong(trials)
        if trials is not None and trials / self.eta ** self.last(trials) < 1 - 1e-9:
            complaint = f"{self.rungs} rungs leave none of {trials} trials"
            yield Clash("search.rungs", complaint, f"at most {Halving(self.eta).last(trials) + 1}")

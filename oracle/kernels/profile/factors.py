"""How many times as long as modelled each part of a step took in runs that were logged.

A run on a machine tells how fast its kernels, host and network are, beside what layers it timed:

    seconds = modelled · times          of kernels: times of their group × times of their pass

`doubt` is what is still not known of it, 1σ of its logarithm. Parts that no log told of are not
there: they take what the model says, and are doubted as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from oracle.kernels.passes import Passes
from oracle.models.model import Floats, Model
from oracle.spec.document import suggest
from oracle.spec.schema import Between, Clash

GROUPS = ("gemm", "conv", "attention", "memory")  # of kernels, by what a log can tell apart
PASSES = ("forward", "backward")
NAMES = (*GROUPS, *PASSES, "update", "host", "inside", "between", "shown")
# the group of each family of kernels; all others wait for memory
GROUP = {"gemm": "gemm", "attention": "attention",
         **dict.fromkeys(("conv", "deconv", "conv3d", "grouped", "depthwise"), "conv")}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Factor:
    """Times as long as modelled, and 1σ of its logarithm."""

    times: Annotated[float, Between(1e-4, 1e4)] = 1.0
    doubt: Annotated[float, Between(0, 10)] = 0.0


ONE = Factor()


@dataclass(frozen=True)
class Factors:
    """Factors by name: groups of kernels, passes, `update`, `host`; messages `inside` a node and
    `between` nodes, and what is `shown` of those that are sent beside work.
    """

    told: Mapping[str, Factor] = field(default_factory=dict)
    # correlations of what is still not known, each with those before it; none said: all err alike
    together: tuple[tuple[float, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.told)

    def check(self) -> Iterator[Clash]:
        if self.together and [*map(len, self.together)] != [*range(1, len(self.told))]:
            what = f"{len(self.told)} factors have as many rows of correlations, but for the first"
            yield Clash("", what, "[[of the second with the first], [of the third with both], …]")
        for name in self.told:
            if name not in NAMES:
                yield Clash(name, f"nothing is called `{name}`", suggest(name, NAMES), True)

    def times(self, name: str) -> float:
        return self.told.get(name, ONE).times

    def doubt(self, name: str) -> float | None:
        """1σ, or None of what no log told of."""
        return self.told[name].doubt if name in self.told else None

    def scaled(self, found: Passes, model: Model) -> Passes:
        """Rows that were not measured themselves, as much slower as their kernels were."""
        if not any(name in self.told for name in (*GROUPS, *PASSES)):
            return found
        group = np.array([self.times(name) for name in GROUPS])[groups_of(model)]
        ahead, back = (np.where(np.asarray(found.measured) > 0, 1.0, group * self.times(name))
                       for name in PASSES)  # fmt: skip
        return replace(
            found, forward=found.forward * ahead, data=found.data * back, weight=found.weight * back
        )

    def naming(self, family: str, part: str) -> list[str]:
        """The factors of kernels of a family in a pass, of those that a log told of."""
        name = "forward" if part == "forward" else "backward"
        return [each for each in (GROUP.get(family, "memory"), name) if each in self.told]

    def covariance(self, first: str, second: str) -> float:
        """Of the logarithms of two factors; nothing where no log told of one."""
        if first not in self.told or second not in self.told:
            return 0.0
        doubts = self.told[first].doubt * self.told[second].doubt
        names = list(self.told)
        low, high = sorted((names.index(first), names.index(second)))
        return doubts if low == high or not self.together else doubts * self.together[high - 1][low]

    def sent(self, between: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """Of messages between nodes, or inside one: times as long, whether told, and 1σ."""
        outer, inner = (self.told.get(name) for name in ("between", "inside"))
        times = np.where(between, (outer or ONE).times, (inner or ONE).times)
        told = np.where(between, outer is not None, inner is not None)
        return times, told, np.where(between, (outer or ONE).doubt, (inner or ONE).doubt)


NOTHING = Factors()


@lru_cache(32)
def groups_of(model: Model) -> NDArray[np.intp]:
    """Which group of kernels each row is of, as a number.

    Attention that is written out is two products, and what waits for memory between them.
    """
    names = [
        "gemm" if row.work == "attention" and not row.flash else GROUP.get(row.work, "memory")
        for row in model.rows
    ]
    return np.array([GROUPS.index(name) for name in names], np.intp)

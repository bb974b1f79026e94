"""Transfer: a parent is trained, then children start from its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from oracle.run.searches.base import Search, Stage
from oracle.spec.schema import Between


@dataclass(frozen=True)
class Transfer(Search):
    """One parent on all nodes, then k children at once, which start from its weights.

    T = T_run(N) + s ⌈k/c⌉ T_run(n)
    """

    source = "yosinski2014"
    noun = "children"
    resizes = True

    share: Annotated[float, Between(1e-6, 1e3)] = 1.0  # s, of the parent's training

    def stages(self, trials: int | None, at_once: int) -> list[Stage]:
        return [Stage("parent", 1), Stage("children", trials or 0, self.share)]

"""Bytes of tensors that were counted on a device, beside those that are predicted of the same plan.

What no tensor holds is left out of the prediction: what libraries reserve, holes between blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle.ask.compare import as_it_ran
from oracle.executor.measured import Measurement
from oracle.models.model import Model
from oracle.predict.defaults import options_for
from oracle.spec.catalogue import system
from oracle.spec.units import show

SOFTWARE = "executor"
ANY = "abci"  # what is counted depends on no system
UNCOUNTED = ("reserve",)  # of the kinds that are predicted


@dataclass(frozen=True)
class Alive:
    """Bytes by kind, counted and predicted, of the fullest device of one plan."""

    plan: str
    counted: dict[str, float]
    predicted: dict[str, float]
    kept: bool = False  # counted is what stays from step to step, as an engine of PyTorch's says

    @property
    def both(self) -> tuple[float, float]:
        """All that was counted, all that is predicted."""
        return sum(self.counted.values()), sum(self.predicted.values())

    @property
    def lines(self) -> list[str]:
        """As text; none where nothing was counted."""
        counted, predicted = self.both
        kinds = ", ".join(
            f"{kind} {show(each, 'B')}" for kind, each in self.counted.items() if each
        )
        if self.kept and counted:
            return [f"{self.plan}: {show(counted, 'B')} kept from step to step ({kinds})"]
        if not counted or not predicted:
            return []
        return [f"{self.plan}: {show(counted, 'B')} of tensors alive at most ({kinds}); predicted "
                f"{show(predicted, 'B')} ({predicted / counted - 1:+.1%})"]  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """What is predicted."""
        return {"alive": self.predicted} if self.predicted else {}


def alive(one: Measurement, what: Model) -> Alive:
    """What was counted of a plan that ran, and what is predicted of it as it ran."""
    kept = "engine" in one.options
    if not one.alive or kept:
        return Alive(one.plan, dict(one.alive), {}, kept)
    where = system(ANY)
    precision = "fp32" if one.options["precision"] == "fp64" else one.options["precision"]
    base = options_for(what, where, precision, one.options["optimizer"], software=SOFTWARE)
    kinds = as_it_ran(one, what, where, base).memory_kinds
    found = {kind: float(each[0]) for kind, each in kinds.items() if kind not in UNCOUNTED}
    return Alive(one.plan, dict(one.alive), found)

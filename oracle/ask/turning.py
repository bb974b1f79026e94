"""What would change a choice: prices, networks, memory and kernels, each by how much.

Prices are worked out; of machines that are supposed, plans and batches stay as they are, so that
a change that also calls for another plan may need less than is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oracle.ask.setups import Asked, Setup, again, ask
from oracle.run.costs import price_of
from oracle.spec.system import System
from oracle.spec.what_if import supposed

MOST = 4.0  # times more or less that is supposed
CAUSES = ("network", "kernels")
NOTHING = "nothing keeps to the limits"
FILLED = 0.5  # of its memory: a plan that takes less does not lack any
STEPS = 5  # bisections of the logarithm of a factor: to 5 %


@dataclass(frozen=True, slots=True)
class Change:
    """A cause, of which machine, by what factor, and what would be chosen then."""

    cause: str  # price, network, kernels, memory
    system: str
    factor: float
    value: float | None  # of a price, USD an hour
    winner: str

    def to_dict(self) -> dict[str, Any]:
        return {"cause": self.cause, "system": self.system, "factor": self.factor,
                "value": self.value, "winner": self.winner}  # fmt: skip


def label(one: Setup) -> str:
    """`64 of dgx-h100`."""
    return f"{one.devices} of {one.system.name}"


def changes(asked: Asked, setups: Sequence[Setup]) -> list[Change]:
    """Every single change by no more than a factor of four that makes another setup the best."""
    first, rivals = setups[0], leaders(setups)
    found = prices(asked, first, rivals) if asked.objective == "money" else []
    for cause in CAUSES:
        for system in dict.fromkeys(one.system for one in (first, *rivals)):
            if change := turned(asked, first, rivals, cause, system):
                found.append(change)
    found += memory(asked, first, rivals)
    return sorted(found, key=lambda one: abs(math.log(one.factor)))


def leaders(setups: Sequence[Setup]) -> list[Setup]:
    """The best of each other machine, and the next of the same."""
    best: dict[tuple[str, str], Setup] = {}
    for one in setups[1:]:
        best.setdefault((one.system.name, one.software), one)
    return list(best.values())


def prices(asked: Asked, first: Setup, rivals: Sequence[Setup]) -> list[Change]:
    """What a device may cost, or must, for another machine to be the cheapest."""
    found = []
    mine = asked.value(first.training)
    elsewhere = [one for one in rivals if one.system is not first.system]
    for one in elsewhere:
        factor, price = mine / asked.value(one.training), price_of(one.system)
        if factor >= 1 / MOST and price:
            found.append(Change("price", one.system.name, factor, price * factor * 3600,
                                label(one)))  # fmt: skip
    price = price_of(first.system)
    if elsewhere and price:
        one = elsewhere[0]
        factor = asked.value(one.training) / mine
        if factor <= MOST:
            found.append(Change("price", first.system.name, factor, price * factor * 3600,
                                label(one)))  # fmt: skip
    return found


def turned(
    asked: Asked, first: Setup, rivals: Sequence[Setup], cause: str, system: System
) -> Change | None:
    """The least factor on one cause of one machine that makes another setup the best."""
    if not rivals:
        return None
    down = system is first.system  # worse for the first, better for whoever is behind
    some = [first, *rivals]

    def winner(exponent: float) -> Setup | None:
        factor = MOST ** (-exponent if down else exponent)
        other = supposed(system, f"{cause}={factor!r}")
        now = [again(asked, one, other) if one.system is system else one for one in some]
        kept = [(asked.value(one.training), i) for i, one in enumerate(now)
                if one is not None and not one.over]  # fmt: skip
        return some[min(kept)[1]] if kept else None

    best = winner(1.0)
    if best is first:
        return None
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        one = winner(middle)
        if one is first:
            low = middle
        else:
            high, best = middle, one
    factor = MOST ** (-high if down else high)
    return Change(cause, system.name, factor, None, label(best) if best else NOTHING)


def memory(asked: Asked, first: Setup, rivals: Sequence[Setup]) -> list[Change]:
    """How many times the memory makes the best of another machine better than the first."""
    found = []
    for one in rivals:
        room = float(one.shown.memory[0]) < FILLED * one.system.device.memory
        if one.system is first.system or room:  # with more of it nothing would be otherwise
            continue
        for factor in (2.0, MOST):
            larger = supposed(one.system, f"memory={factor!r}")
            whole = ask(asked, larger, one.shown.options, one.devices, one.batch, brief=True)
            if (
                whole
                and not whole.over
                and (asked.value(whole.training) < asked.value(first.training))
            ):
                found.append(Change("memory", one.system.name, factor, None, label(one)))
                break
    return found

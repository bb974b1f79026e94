"""What so many seconds of a plan cost, each device by the machine that it is of.

On partitions of unlike devices the sum over them: each draws the power that it would if all were
as it is, in the part of the time that a step would then take, and idles in the rest. What the
file of the whole says of price, power and grid goes before what a partition's own says. It names
`on`, which a partition alone has none of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from oracle.plan.plan import Plan
from oracle.plan.strategies.on import On
from oracle.predict.estimate import Estimate, estimate
from oracle.predict.sides import Side, parts_of
from oracle.run.costs import Costs, costs
from oracle.run.power import load_of
from oracle.spec.system import RUNNING, System


def costs_of(shown: Estimate, row: int, seconds: float, working: float = 1.0) -> Costs:
    """The costs of so many seconds under one plan, of which its steps take this share."""
    sides = shown.work[row].sides if shown.work else ()
    if len(sides) > 1:
        return reduce(_together, _each(shown, row, sides, seconds, working))
    where = _asked(shown.system, shown.machine("what it costs", row))
    load = load_of(shown, row).during(working)
    return costs(where, float(shown.devices[row]), seconds, load)


def places(system: System) -> tuple[System, ...]:
    """The machines whose prices and power a job there may meet."""
    return tuple(_asked(system, one.system) for one in system.partitions) or (system,)


def _each(
    shown: Estimate, row: int, sides: tuple[Side, ...], seconds: float, working: float
) -> Iterator[Costs]:
    plan = shown.work[row].plan
    replicas = np.prod([float(axis.degree[0, 0]) for axis in plan.axes
                        if axis.deals_batch and axis.multiplies])  # fmt: skip
    views = {one.number: one.view for one in parts_of(shown.system, plan)}
    for side in sides:
        view, batch = views[side.number], float(side.samples * replicas)
        alone = estimate(shown.model, view, _everywhere(plan, batch), batch, shown.options)
        share = min(float(alone.seconds[0] / shown.seconds[row]), 1.0)
        load = load_of(alone, 0).during(share * working)
        yield costs(_asked(shown.system, view), side.devices, seconds, load)


def _everywhere(plan: Plan, batch: float) -> Plan:
    """The plan where all devices are alike, at the batch that all replicas as one of them have."""
    axes = [replace(axis, parts=0 * axis.parts, shares=0 * axis.shares)
            if isinstance(axis, On) else axis for axis in plan.axes]  # fmt: skip
    return Plan(np.full_like(plan.batch, batch), tuple(axes))


def _asked(system: System, one: System) -> System:
    """A partition's machine, with what was said of the running of all."""
    said: dict[str, Any] = {name: getattr(system, name) for name in RUNNING}
    return replace(one, **{name: value for name, value in said.items() if value is not None})


def _together(one: Costs, other: Costs) -> Costs:
    """The sum of two; what is not known of either is not known of both."""

    def both(name: str) -> Any:
        first, second = getattr(one, name), getattr(other, name)
        return None if first is None or second is None else first + second

    unknown = tuple(dict.fromkeys((*one.unknown, *other.unknown)))
    sums = {name: both(name) for name in ("device_hours", "money", "energy", "carbon",
                                          "energy_low", "energy_high")}  # fmt: skip
    return Costs(**sums, unknown=unknown)

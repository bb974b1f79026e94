"""The costs of seconds of a plan, each device by its own machine.

On partitions of unlike devices they are the sum over the partitions: a device draws the power that
it would among devices of its kind, for the time of their step, and idles for the rest. Price, power
and grid in the file of the system override those of a partition's file. It names `on`, which a
single partition lacks.
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


def costs_of(predicted: Estimate, row: int, seconds: float, working: float = 1.0) -> Costs:
    """Return the costs of seconds under one plan, of which its steps take a share."""
    sides = predicted.work[row].sides if predicted.work else ()
    if len(sides) > 1:
        return reduce(_sum, _by_partition(predicted, row, sides, seconds, working))
    machine = _with_running_costs(predicted.system, predicted.machine("what it costs", row))
    load = load_of(predicted, row).during(working)
    return costs(machine, float(predicted.devices[row]), seconds, load)


def places(system: System) -> tuple[System, ...]:
    """Return the machines whose prices and power a job may meet."""
    return tuple(
        _with_running_costs(system, partition.system) for partition in system.partitions
    ) or (system,)


def _by_partition(
    predicted: Estimate, row: int, sides: tuple[Side, ...], seconds: float, working: float
) -> Iterator[Costs]:
    plan = predicted.work[row].plan
    replicas = np.prod([float(axis.degree[0, 0]) for axis in plan.axes
                        if axis.deals_batch and axis.multiplies])  # fmt: skip
    views = {part.number: part.view for part in parts_of(predicted.system, plan)}
    for side in sides:
        view, batch = views[side.number], float(side.samples * replicas)
        alone = estimate(predicted.model, view, _everywhere(plan, batch), batch, predicted.options)
        share = min(float(alone.seconds[0] / predicted.seconds[row]), 1.0)
        load = load_of(alone, 0).during(share * working)
        yield costs(_with_running_costs(predicted.system, view), side.devices, seconds, load)


def _everywhere(plan: Plan, batch: float) -> Plan:
    """Return the plan on devices of one kind, at a batch for all replicas."""
    axes = [replace(axis, parts=0 * axis.parts, shares=0 * axis.shares)
            if isinstance(axis, On) else axis for axis in plan.axes]  # fmt: skip
    return Plan(np.full_like(plan.batch, batch), tuple(axes))


def _with_running_costs(system: System, machine: System) -> System:
    """Return a partition's machine, with the running costs of the whole system."""
    overrides: dict[str, Any] = {name: getattr(system, name) for name in RUNNING}
    return replace(
        machine, **{name: value for name, value in overrides.items() if value is not None}
    )


def _sum(first: Costs, second: Costs) -> Costs:
    """Return the sum of two costs; an amount unknown of either is unknown of both."""

    def added(name: str) -> Any:
        amounts = getattr(first, name), getattr(second, name)
        return None if None in amounts else sum(amounts)

    unknown = tuple(dict.fromkeys((*first.unknown, *second.unknown)))
    sums = {name: added(name) for name in ("device_hours", "money", "energy", "carbon",
                                           "energy_low", "energy_high")}  # fmt: skip
    return Costs(**sums, unknown=unknown)

"""What a plan may not exceed: the rules of its strategies, the devices there are, their memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from statistics import NormalDist

import numpy as np

from oracle.models.model import Model
from oracle.plan import curvature, launchable
from oracle.plan.plan import Plan
from oracle.plan.strategies import Rule
from oracle.predict.memory import Held
from oracle.spec.options import Options
from oracle.spec.system import System
from oracle.spec.units import show

FULL = 0.9  # of a device's memory, from where fragmentation is to be feared


def rules_of(plan: Plan, model: Model, options: Options) -> list[Rule]:
    """The rules of strategies and software, with what each plan wants and what is allowed."""
    beside = {axis.name: axis for axis in plan.axes}
    found = [rule for axis in plan.axes for rule in axis.rules(model, plan.batch, beside)]
    if options.optimizer == "kfac":
        found += curvature.rules(plan)
    if not (options.any_plan or options.ideal):
        found += launchable.rules(options.software, model, plan)
    return found


def limits(
    rules: Iterable[Rule], plan: Plan, system: System, held: Held, options: Options
) -> list[Rule]:
    """These rules and those of the system: its devices, their memory."""
    found = [*rules]
    found.append(
        Rule(plan.devices[:, 0], np.full(len(plan), float(system.devices)),
             lambda wanted, most: f"{wanted:g} devices, but {system.name} has {most:g}")
    )  # fmt: skip
    capacity = float(options.max_memory or system.device.memory)
    sure = NormalDist().inv_cdf(1 - options.risk) if options.risk != 0.5 else 0.0
    wanted = held.total if options.ideal else held.total + sure * held.deviation
    words = _short_of_memory if not sure or options.ideal else partial(_unsure, options.risk)
    found.append(Rule(wanted, np.full(len(plan), capacity), words))
    return found


def _unsure(risk: float, wanted: float, allowed: float) -> str:
    return (f"needs {show(wanted, 'B')} of {show(allowed, 'B')} a device to fit with "
            f"{100 * (1 - risk):g} %: {show(wanted - allowed, 'B')} short")  # fmt: skip


def _short_of_memory(wanted: float, allowed: float) -> str:
    return (f"needs {show(wanted, 'B')} of {show(allowed, 'B')} a device: "
            f"{show(wanted - allowed, 'B')} short")  # fmt: skip

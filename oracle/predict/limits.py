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

HOSTED = 0.9  # of a host's memory, the most that is kept for devices: it runs them too
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
    if np.any(held.beside):
        found += beside(system, held, len(plan))
    wanted = held.total if options.ideal else held.total + sure * held.deviation
    words = _short_of_memory if not sure or options.ideal else partial(_unsure, options.risk)
    found.append(Rule(wanted, np.full(len(plan), capacity), words))
    return found


def beside(system: System, held: Held, plans: int) -> list[Rule]:
    """Room for what devices do not hold: in the memory of their host, or on its disks."""
    bytes_, disk = np.broadcast_to(held.beside, plans), np.asarray(held.on_disk) > 0
    local = None if system.storage is None else system.storage.local
    rooms = (
        (
            ~disk,
            "host.memory",
            "memory of the host",
            None if system.host is None else HOSTED * system.host.memory,
        ),
        (disk, "storage.local.capacity", "disks", None if local is None else local.capacity),
    )
    found = []
    for mine, key, name, room in rooms:
        wanted = np.where(mine, bytes_ * system.node, 0.0)
        if not wanted.any():
            continue

        def says(wanted: float, most: float, name: str = name, key: str = key) -> str:
            if not most:
                return f"nobody says what room the {name} has: `{key}` of the system"
            return f"needs {show(wanted, 'B')} of {show(most, 'B')} a node, in the {name}"

        found.append(Rule(wanted, np.full(plans, room or 0.0), says))
    return found


def _unsure(risk: float, wanted: float, allowed: float) -> str:
    return (f"needs {show(wanted, 'B')} of {show(allowed, 'B')} a device to fit with "
            f"{100 * (1 - risk):g} %: {show(wanted - allowed, 'B')} short")  # fmt: skip


def _short_of_memory(wanted: float, allowed: float) -> str:
    return (f"needs {show(wanted, 'B')} of {show(allowed, 'B')} a device: "
            f"{show(wanted - allowed, 'B')} short")  # fmt: skip

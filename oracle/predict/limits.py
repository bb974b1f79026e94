"""What a plan may not exceed: the rules of its strategies, the devices there are, their memory.

It names `on`, whose partitions must be those of the system, and the `pipeline`, which a software
may deal so that a stage is left without layers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from statistics import NormalDist

import numpy as np

from oracle.models.model import Model
from oracle.plan import curvature, launchable
from oracle.plan.cuts import dealt_by_cost
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
    axes = {axis.name: axis for axis in plan.axes}
    rules = [rule for axis in plan.axes for rule in axis.rules(model, plan.batch, axes)]
    if options.optimizer == "kfac":
        rules += curvature.rules(plan)
    if options.software.borders.cuts == "cost" and not options.ideal:
        rules.append(_dealt_by_cost(plan, model))
    if not (options.any_plan or options.ideal):
        rules += launchable.rules(options.software, model, plan)
    return rules


def _dealt_by_cost(plan: Plan, model: Model) -> Rule:
    """What is dealt by cost leaves no chunk without a block; casting logits is one more block."""
    pipeline = plan.axis("pipeline")
    chunks = np.broadcast_to(pipeline.degree * pipeline.interleave, (len(plan), 1))
    empty = [count for count in np.unique(chunks)
             if len(dealt_by_cost(model, int(count))) + 1 < count]  # fmt: skip
    says = "layers dealt by cost leave a stage without any: fewer stages, or `cuts=balanced`"
    return Rule.never(np.isin(chunks, empty) & (np.asarray(pipeline.cuts) == 0), says)


def placed(plan: Plan, system: System) -> list[Rule]:
    """What plans may not say of partitions, those of the system or others."""
    on = plan.axis("on")
    says_partitions = np.asarray(on.parts + on.shares > 0)
    if not system.partitions:
        complaint = f"{system.name} has no partitions to be `on`"
        return [Rule.never(says_partitions, complaint)] if says_partitions.any() else []
    every = tuple(range(1, len(system.partitions) + 1))
    orders = [on.order(row) or every for row in range(len(plan))]
    unknown = np.array([max(order) > len(every) for order in orders])
    room = np.array([sum(system.partitions[n - 1].devices for n in order if n <= len(every))
                     for order in orders], float)  # fmt: skip
    shares = [on.weights(row) for row in range(len(plan))]
    uneven = np.array([bool(shares_given) and len(shares_given) != len(order)
                       for shares_given, order in zip(shares, orders, strict=True)])  # fmt: skip
    names = ", ".join(f"{n} {number.name}" for n, number in enumerate(system.partitions, 1))
    return [
        Rule(plan.devices[:, 0], room,
             lambda needed, allowed: f"{needed:g} devices, but the partitions have {allowed:g}"),
        Rule.never(unknown[:, None], f"{system.name} has the partitions {names}"),
        Rule.never(uneven[:, None], "there is one share for each partition that a plan is on"),
    ]  # fmt: skip


def limits(
    rules: Iterable[Rule], plan: Plan, system: System, held_bytes: Held, options: Options
) -> list[Rule]:
    """These rules and those of the system: its devices, their memory."""
    all_rules = [*rules]
    all_rules.append(
        Rule(plan.devices[:, 0], np.full(len(plan), float(system.devices)),
             lambda devices, size: f"{devices:g} devices, but {system.name} has {size:g}")
    )  # fmt: skip
    capacity = float(options.max_memory or system.device.memory)
    sure = NormalDist().inv_cdf(1 - options.risk) if options.risk != 0.5 else 0.0
    if np.any(held_bytes.beside):
        all_rules += host_rules(system, held_bytes, len(plan))
    needed_bytes = (
        held_bytes.total if options.ideal else held_bytes.total + sure * held_bytes.deviation
    )
    words = _short_of_memory if not sure or options.ideal else partial(_unsure, options.risk)
    all_rules.append(Rule(needed_bytes, np.full(len(plan), capacity), words, room=True))
    return all_rules


def host_rules(system: System, held_bytes: Held, plans: int) -> list[Rule]:
    """Room for what devices do not hold: in the memory of their host, or on its disks."""
    bytes_, disk = np.broadcast_to(held_bytes.beside, plans), np.asarray(held_bytes.on_disk) > 0
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
    rules = []
    for on_this, key, name, room in rooms:
        needed_bytes = np.where(on_this, bytes_ * system.per_host, 0.0)
        if not needed_bytes.any():
            continue

        def says(needed_bytes: float, allowed: float, name: str = name, key: str = key) -> str:
            if not allowed:
                return f"nobody says what room the {name} has: `{key}` of the system"
            return f"needs {show(needed_bytes, 'B')} of {show(allowed, 'B')} a node, in the {name}"

        rules.append(Rule(needed_bytes, np.full(plans, room or 0.0), says, room=True))
    return rules


def _unsure(risk: float, needed: float, allowed: float) -> str:
    return (f"needs {show(needed, 'B')} of {show(allowed, 'B')} a device to fit with "
            f"{100 * (1 - risk):g} %: {show(needed - allowed, 'B')} short")  # fmt: skip


def _short_of_memory(needed: float, allowed: float) -> str:
    return (f"needs {show(needed, 'B')} of {show(allowed, 'B')} a device: "
            f"{show(needed - allowed, 'B')} short")  # fmt: skip

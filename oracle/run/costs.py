"""Money, energy and carbon of a run, from its hours: what is not known of a machine is not made up.

E = PUE (p (P_idle + (P_busy - P_idle) u) + nodes P_node) T        u: share of time at work
money = p price T            CO₂ = E grid
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.spec.system import System

JOULE = 3.6e6  # of a kWh


@dataclass(frozen=True, slots=True)
class Costs:
    """What a run costs; None where the machine's spec does not say what it takes to tell."""

    device_hours: float
    money: float | None  # USD
    energy: float | None  # kWh, everything that the site draws for it
    carbon: float | None  # kg of CO₂
    unknown: tuple[str, ...]  # keys of the spec that would tell the rest


def costs(system: System, devices: float, seconds: float, busy: float = 1.0) -> Costs:
    """The costs of so many devices for so long, at work for a share of it."""
    device, unknown = system.device, []
    hours = devices * seconds / 3600
    money = None if device.price is None else devices * device.price * seconds
    if device.price is None:
        unknown.append("device.price")
    energy = carbon = None
    if device.power is None:
        unknown.append("device.power")
    else:
        power = device.power
        drawn = devices * (power.idle + (power.busy - power.idle) * busy)
        if system.node_power is None:
            unknown.append("node_power")
        else:
            drawn += -(-devices // system.node) * system.node_power
        if system.pue is None:
            unknown.append("pue")
        energy = drawn * (system.pue or 1.0) * seconds / JOULE
        if system.grid is None:
            unknown.append("grid")
        else:
            carbon = energy * system.grid / 1000
    return Costs(hours, money, energy, carbon, tuple(unknown))

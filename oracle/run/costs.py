"""Money, energy and carbon of a run, from its hours; unknown numbers of a machine stay unknown.

E = PUE (p (P_idle + (P_busy - P_idle) u) + nodes P_node) T        u: see `power`
money = p price T            CO₂ = E grid

A device with unknown idle power counts as busy, so that its part of E is an upper bound; E leaves
out an unknown power of a node's other parts and an unknown PUE, and `unknown` names them.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.run.power import Load
from oracle.spec.system import System

JOULE = 3.6e6  # of a kWh


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a run; None where the machine's spec lacks a number that they need."""

    device_hours: float
    money: float | None  # USD
    energy: float | None  # kWh, everything that the site draws for it
    carbon: float | None  # kg of CO₂
    unknown: tuple[str, ...]  # keys of the spec that would tell the rest
    energy_low: float | None = None  # with less load of the devices, in the same time
    energy_high: float | None = None


def price_of(system: System) -> float | None:
    """Return USD a second of one device: the system's price, or the device's rent."""
    return system.device.price if system.price is None else system.price


def price_source(system: System) -> str:
    """Return the source of the price."""
    if system.price is not None:
        return system.sources.get("price", "") or "as given"
    return system.device.price_source or "as given"


def costs(system: System, devices: float, seconds: float, busy: float | Load = 1.0) -> Costs:
    """Return the costs of devices for a time, under a load."""
    load = busy if isinstance(busy, Load) else Load(busy, busy, busy)
    hours, price, unknown = devices * seconds / 3600, price_of(system), []
    if price is None:
        unknown.append("device.price")
    money = None if price is None else devices * price * seconds
    power = system.device.power
    if power is None:
        return Costs(hours, money, None, None, (*unknown, "device.power"))
    floor, shares = power.idle or 0.0, (load.share, load.low, load.high)
    if power.idle is None:
        unknown.append("device.power.idle")
        shares = 1.0, load.low, 1.0
    site = {"node_power": system.node_power, "pue": system.pue, "grid": system.grid}
    unknown += [name for name, value in site.items() if value is None]
    rest = -(-devices // system.per_host) * (system.node_power or 0.0)
    mid, low, high = (
        (devices * (floor + (power.busy - floor) * share) + rest) * (system.pue or 1.0)
        * seconds / JOULE
        for share in shares
    )  # fmt: skip
    carbon = None if system.grid is None else mid * system.grid / 1000
    return Costs(hours, money, mid, carbon, tuple(unknown), low, high)

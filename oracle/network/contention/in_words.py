"""What limits a collective operation, in words."""

from __future__ import annotations

import numpy as np

from oracle.network.contention.groups import Pattern, seated
from oracle.network.contention.line import CostLine
from oracle.network.topology import network_of
from oracle.spec.system import System


def sentence(system: System, message: str, pattern: Pattern, devices: int, line: CostLine) -> str:
    """Say what limits a message: "4 groups leave each node over 2 ports: φ = 2".

    At φ = 1 links may be full and shared, but no flow is slower than it would be alone.
    """
    if not line.full:
        return f"{message}: nothing is sent"
    if line.phi < 1.005:
        return full(message, line)
    system, groups = seated(system, pattern, devices)
    topology = network_of(system, groups.reach)
    places = groups.devices_of(np.arange(devices))
    unit_name, _, direction = line.full[0].rpartition(" ")
    for fabric in topology.fabrics:
        inside = min(fabric.unit, devices)
        if fabric.unit_name == unit_name and fabric.port_links and inside > 1:
            ports = f"{fabric.ports:.3g} port" + ("s" if fabric.ports > 1 else "")
            together = places // fabric.unit == places[0] // fabric.unit
            inside, meeting = int(together.sum()), len(np.unique(groups.first[together]))
            senders = f"{meeting} groups" if meeting > 1 else f"{inside} members of one group"
            verb = "enter" if direction == "downlinks" else "leave"
            return f"{message}: {senders} {verb} each {unit_name} over {ports}: φ = {line.phi:.3g}"
    return full(message, line)


def full(message: str, line: CostLine) -> str:
    """Say which links a message fills, where nobody knows who else is on them."""
    if line.phi < 1.005:
        return f"{message}: no flow slows another; the {line.full[0]} set the pace (φ = 1)"
    return f"{message}: the {' and '.join(line.full)} are full: φ = {line.phi:.3g}"

"""Cost of copies over links that are no part of the mesh: between a device and its host."""

from __future__ import annotations

from collections.abc import Callable

from oracle.network.contention.line import CostLine
from oracle.spec.system import System

START = 10e-6  # of one copy: the driver's launch and the engine's start, assumed
PCIE = 12e9  # bytes a second that PCIe 3 x16 gives of its 15.75 GB/s, assumed where nothing is said


def host_line(system: System) -> CostLine:
    """A copy over a device's own link to the memory of its host, one way."""
    bandwidth, said = system.device.host_link or PCIE, system.device.host_link is not None
    origin = "datasheet" if said else "assumed"
    return CostLine("copy", START, 1 / bandwidth, full=("host link",), origin=origin)


LINKS: dict[str, Callable[[System], CostLine]] = {"host": host_line}


def link_line(system: System, over: str, what: str) -> CostLine:
    """The cost of a message that goes over such a link; an error where nothing prices it."""
    if over not in LINKS:
        raise NotImplementedError(f"`{what}` goes over `{over}`, which nothing prices")
    return LINKS[over](system)

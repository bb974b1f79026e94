"""Cost of copies over links that are no part of the mesh: to the host, its memory, its disks."""

from __future__ import annotations

from collections.abc import Callable

from oracle.network.contention.line import CostLine
from oracle.spec.doubt import SHORT
from oracle.spec.storage import HOST_BANDWIDTH
from oracle.spec.system import System

START = 10e-6  # of one copy: the driver's launch and the engine's start, assumed
PCIE = 12e9  # bytes a second that PCIe 3 x16 gives of its 15.75 GB/s, assumed where nothing is said
DISK = 2e9  # bytes a second of a node's disks: one of PCIe 3 x4, assumed where nothing is said
STREAMED = 0.8  # of what a host's modules could give, what a copy or an update gets: assumed


def host_line(system: System) -> CostLine:
    """A copy to the memory of the host or from there, over a device's share of its port."""
    host, own = system.host, system.device.host_link
    port = None if host is None or host.link is None else host.link / host.shared_by
    bandwidth = min((each for each in (own, port) if each is not None), default=PCIE)
    origin = "assumed" if own is None and port is None else "datasheet"
    return CostLine("copy", START, 1 / bandwidth, full=("host link",), origin=origin)


def memory_line(system: System) -> CostLine:
    """What passes through the memory of the host, of which each device of a node has a share."""
    known = None if system.host is None else system.host.bandwidth
    each = STREAMED * (known or HOST_BANDWIDTH) / system.per_host
    origin = "assumed" if known is None else "datasheet"
    return CostLine("copy", START, 1 / each, full=("host memory",), origin=origin,
                    short=SHORT["host"])  # fmt: skip


def disk_line(system: System) -> CostLine:
    """A copy to or from the disks of a node, of which each device has a share."""
    local = None if system.storage is None else system.storage.local
    slower = DISK if local is None else min(local.read, local.write or local.read)
    origin = "assumed" if local is None else "datasheet"
    return CostLine("copy", START, system.per_host / slower, full=("disk",), origin=origin,
                    short=SHORT["disk"])  # fmt: skip


LINKS: dict[str, Callable[[System], CostLine]] = {
    "host": host_line, "host memory": memory_line, "disk": disk_line,
}  # fmt: skip


def link_line(system: System, over: str, what: str) -> CostLine:
    """The cost of a message that goes over such a link; an error where nothing prices it."""
    if over not in LINKS:
        raise NotImplementedError(f"`{what}` goes over `{over}`, which nothing prices")
    return LINKS[over](system)

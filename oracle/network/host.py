"""Cost of copies over links that are no part of the mesh: to the host, its memory, its disks."""

from __future__ import annotations

from collections.abc import Callable

from oracle.network.contention.line import CostLine
from oracle.spec.doubt import SHORT
from oracle.spec.storage import HOST_BANDWIDTH
from oracle.spec.system import System

START = 10e-6  # seconds of one copy: the driver's launch and the engine's start, assumed
PCIE = 12e9  # B/s that PCIe 3 x16 gives of its 15.75 GB/s, assumed where a spec gives none
DISK = 2e9  # B/s of a node's disks: one of PCIe 3 x4, assumed where a spec gives none
STREAMED = 0.8  # part of what a host's modules could give that a copy or an update gets: assumed


def host_line(system: System) -> CostLine:
    """Return the line of a copy to or from the host's memory, over a device's share of its port."""
    host, device_link = system.host, system.device.host_link
    port = None if host is None or host.link is None else host.link / host.shared_by
    bandwidth = min((link for link in (device_link, port) if link is not None), default=PCIE)
    origin = "assumed" if device_link is None and port is None else "datasheet"
    return CostLine("copy", START, 1 / bandwidth, full=("host link",), origin=origin)


def memory_line(system: System) -> CostLine:
    """Return the line of what passes through a host's memory, which the devices of a node share."""
    bandwidth = None if system.host is None else system.host.bandwidth
    share = STREAMED * (bandwidth or HOST_BANDWIDTH) / system.per_host
    origin = "assumed" if bandwidth is None else "datasheet"
    return CostLine("copy", START, 1 / share, full=("host memory",), origin=origin,
                    short=SHORT["host"])  # fmt: skip


def disk_line(system: System) -> CostLine:
    """Return the line of a copy to or from the disks of a node, which its devices share."""
    local = None if system.storage is None else system.storage.local
    slower = DISK if local is None else min(local.read, local.write or local.read)
    origin = "assumed" if local is None else "datasheet"
    return CostLine("copy", START, system.per_host / slower, full=("disk",), origin=origin,
                    short=SHORT["disk"])  # fmt: skip


LINKS: dict[str, Callable[[System], CostLine]] = {
    "host": host_line, "host memory": memory_line, "disk": disk_line,
}  # fmt: skip


def link_line(system: System, over: str, message: str) -> CostLine:
    """Return the line of a message over the named link, or raise where nothing prices that."""
    if over not in LINKS:
        raise NotImplementedError(f"`{message}` goes over `{over}`, which nothing prices")
    return LINKS[over](system)

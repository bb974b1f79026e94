"""What a machine has, as its kernel says: processors, memory, network ports, disks, GPUs.

Read from /proc and /sys; nothing is timed here, and what a file does not say is left out. Names of
hosts, users and folders are not among it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oracle.spec.document import SpecError
from oracle.spec.files import LOG, read_text

GBIT, MBIT = 1e9 / 8, 1e6 / 8
SECTOR = 512  # bytes that /sys/block counts in, whatever the disk's own are
VIRTUAL = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")  # no disks of their own


def hardware(root: Path = Path("/")) -> dict[str, Any]:
    """All facts of this machine, as they go into JSON."""
    facts = {"processor": processor(root), "memory": memory(root)}
    facts |= {"ports": list(ports(root)), "disks": list(disks(root)), "gpus": gpus(root)}
    return facts


def kernel_text(path: Path) -> str:
    """The text of a file of the kernel; empty where it cannot be read."""
    try:
        return read_text(path, "file of the kernel", LOG, errors="replace").strip()
    except (SpecError, OSError):  # a port without a cable refuses to say its speed
        return ""


def available(root: Path = Path("/")) -> float:
    """Bytes of memory that processes may still take."""
    for line in kernel_text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable"):
            return number(line) * 1024
    return 0.0


def number(text: str) -> float:
    """The first number of a text; 0 where there is none."""
    match = re.search(r"-?\d+(\.\d+)?", text)
    return float(match[0]) if match else 0.0


def processor(root: Path) -> dict[str, Any]:
    """The processor's model, its cores, sockets, NUMA nodes, and largest cache."""
    lines = kernel_text(root / "proc/cpuinfo").splitlines()
    pairs = (line.partition(":") for line in reversed(lines) if ":" in line)
    words = {name.strip(): value.strip() for name, _, value in pairs}
    model = words.get("model name") or words.get("cpu") or words.get("CPU implementer") or ""
    threads = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*"))
    places = {
        tuple(kernel_text(path / "topology" / name) for name in ("physical_package_id", "core_id"))
        for path in threads
    } - {("", "")}
    cache_files = (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    caches = [_bytes(kernel_text(path)) for path in cache_files]
    nodes = [*(root / "sys/devices/system/node").glob("node[0-9]*")]
    return {
        "model": " ".join(model.split()),
        "threads": len(threads) or words_count(lines),
        "cores": len(places) or len(threads) or words_count(lines),
        "sockets": len({socket for socket, _ in places}) or 1,
        "numa_nodes": len(nodes) or 1,
        "cache": max(caches, default=0.0),
    }


def words_count(lines: list[str]) -> int:
    """Processors that /proc/cpuinfo lists."""
    return sum(line.startswith("processor") for line in lines) or 1


def _bytes(text: str) -> float:
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
    return number(text) * scale


def memory(root: Path) -> float:
    """Bytes of memory, or fewer where a control group allows fewer."""
    match = re.search(r"MemTotal:\s*(\d+) kB", kernel_text(root / "proc/meminfo"))
    total = float(match[1]) * 1024 if match else 0.0
    limits = (kernel_text(root / "sys/fs/cgroup/memory.max"),
              kernel_text(root / "sys/fs/cgroup/memory/memory.limit_in_bytes"))  # fmt: skip
    return min([total, *(float(text) for text in limits if text.isdigit())]) or total


def usable_cores(root: Path = Path("/")) -> int:
    """Processors that this process may use, by its affinity and its control group's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    allowed = quota(root)
    if allowed < math.inf:
        count = min(count or 1, max(1, round(allowed)))
    return count or 1


def quota(root: Path = Path("/")) -> float:
    """Processors' time a second that this process's control groups allow; infinite if they do not.

    A group is held to its own quota and to those of the groups that it is in.
    """
    smallest = math.inf
    for line in kernel_text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if number != "0" and "cpu" not in kinds.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("" if number == "0" else kinds)
        for depth in range(path.count("/") + 1):
            group = base / "/".join(path.strip("/").split("/")[:depth])
            words = kernel_text(group / "cpu.max").split()
            words = words or [kernel_text(group / f"cpu.cfs_{part}_us").strip()
                              for part in ("quota", "period")]  # fmt: skip
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
                smallest = min(smallest, float(words[0]) / float(words[1]))
    return smallest


def ports(root: Path) -> Iterator[dict[str, Any]]:
    """Network ports that are up: InfiniBand's first, then Ethernet's with a device of their own."""
    for port in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        rate = number(kernel_text(port / "rate")) * GBIT  # "200 Gb/sec (4X HDR)"
        if "ACTIVE" in kernel_text(port / "state") and rate > 0:
            card = port.parents[1]
            kind = kernel_text(port / "link_layer") or "InfiniBand"
            yield {"name": f"{card.name}/{port.name}", "kind": kind, "bandwidth": rate} | _near(
                card
            )
    for card in sorted((root / "sys/class/net").glob("*")):
        if not (card / "device").exists() or kernel_text(card / "operstate") != "up":
            continue
        speed = number(kernel_text(card / "speed")) * MBIT
        rate_fields = {"bandwidth": speed} if speed > 0 else {}
        yield {"name": card.name, "kind": "Ethernet"} | rate_fields | _near(card)


def _near(card: Path) -> dict[str, int]:
    node = kernel_text(card / "device/numa_node")
    return {"numa_node": int(node)} if node.isdigit() else {}


def disks(root: Path) -> Iterator[dict[str, Any]]:
    """Disks with their size, and whether they turn."""
    for disk in sorted((root / "sys/block").glob("*")):
        size = number(kernel_text(disk / "size")) * SECTOR
        if size > 0 and not disk.name.startswith(VIRTUAL):
            turns = kernel_text(disk / "queue/rotational") == "1"
            yield {"name": disk.name, "size": size, "rotational": turns}


def gpus(root: Path) -> int:
    """GPUs of NVIDIA's driver that a job may see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    installed = len([*(root / "proc/driver/nvidia/gpus").glob("*")])
    if visible is None:
        return installed
    listed = [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    return min(installed, len(listed))


def host_class(facts: dict[str, Any]) -> str:
    """A machine in a few words, without its name."""
    processor = facts["processor"]
    kind = facts.get("gpu") or processor["model"] or "processor of unknown model"
    if facts.get("gpu"):
        return f"{facts['gpus']} x {kind}"
    sockets = f" in {processor['sockets']} sockets" if processor["sockets"] > 1 else ""
    return f"{kind} of {processor['cores']} cores{sockets}"

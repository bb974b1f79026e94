"""Values of a spec that no machine is known to have: said, and used all the same.

The ranges hold everything from an Ethernet of 10 Gbit/s and a laptop to what is announced for the
next years, so that what lies outside is most likely a wrong prefix: Mbit for Gbit, ms for us.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from oracle.spec.dataset import Dataset
from oracle.spec.device import Device
from oracle.spec.running import Checkpoint, Power, Reliability
from oracle.spec.schema import Clash
from oracle.spec.storage import Disk, Host, SharedFiles
from oracle.spec.system import Level, System
from oracle.spec.units import show

# kind of spec -> field -> (least, most, unit)
RANGES: dict[type, dict[str, tuple[float, float, str]]] = {
    Level: {
        "bandwidth": (1e9, 10e12, "B/s"),
        "latency": (1e-9, 1e-3, "s"),
    },
    Device: {
        "memory": (2**30, 4 * 2**40, "B"),
        "memory_bandwidth": (10e9, 100e12, "B/s"),
        "peak": (10e9, 100e15, "FLOP/s"),
        "launch": (0.0, 1e-3, "s"),
        "reserve": (0.0, 32 * 2**30, "B"),
        "host_link": (1e9, 10e12, "B/s"),
        "price": (0.0, 1000 / 3600, "USD/s"),
    },
    System: {
        "dispatch": (0.0, 1e-3, "s"),
        "node_power": (1.0, 1e5, "W"),
        "grid": (0.0, 2000.0, "g/kWh"),
    },
    SharedFiles: {
        "bandwidth": (10e6, 1e15, "B/s"),
        "write": (10e6, 1e15, "B/s"),
        "per_node": (1e6, 1e12, "B/s"),
        "open": (1e-6, 1.0, "s"),
        "metadata": (100.0, 1e9, "/s"),
    },
    Disk: {
        "read": (10e6, 10e12, "B/s"),
        "write": (10e6, 10e12, "B/s"),
        "capacity": (2**30, 2**50, "B"),
        "open": (1e-7, 0.1, "s"),
    },
    Power: {"idle": (0.1, 1e4, "W"), "busy": (1.0, 1e5, "W")},
    Reliability: {
        "mtbf": (3.6e4, 3.6e10, "s"),
        "per_1000_node_days": (1e-2, 1e3, ""),
        "detect": (0.0, 1e5, "s"),
        "restart": (0.0, 1e5, "s"),
        "repair": (60.0, 1e7, "s"),
        "notice": (0.0, 1e5, "s"),
    },
    Checkpoint: {"every": (1.0, 1e6, "s")},
    Host: {"memory": (2**28, 2**46, "B"), "bandwidth": (1e9, 100e12, "B/s")},
    Dataset: {"size": (2**10, 2**60, "B")},
}


def warnings(spec: Any, inside: str = "") -> Iterator[Clash]:
    """Each value of a spec outside the range of its field, by its place: `levels.0.bandwidth`."""
    for name, (least, most, unit) in RANGES.get(type(spec), {}).items():
        value = getattr(spec, name)
        numbers = value if isinstance(value, dict) else {"": value}
        for key, number in numbers.items():
            if number is not None and not least <= number <= most:
                at = ".".join(word for word in (inside, name, key) if word)
                side, limit = ("below", least) if number < least else ("above", most)
                yield Clash(at, f"{show(number, unit)} is {side} {show(limit, unit)}",
                            "is the prefix right? it is used as it stands")  # fmt: skip
    if isinstance(spec, Device) and "NVIDIA" in spec.title and not spec.library:
        at = f"{inside}.library".lstrip(".")
        what = "not said of a device whose title names NVIDIA: no collective is priced as NCCL's"
        yield Clash(at, what, "`library: nccl`, and `generation:`, if it is one of theirs")
    for each in fields(spec):
        value = getattr(spec, each.name)
        if type(value) in RANGES or (each.name == "storage" and value is not None):
            yield from warnings(value, f"{inside}.{each.name}".lstrip("."))
        elif each.name == "levels":
            for i, level in enumerate(value):
                yield from warnings(level, f"{inside}.levels.{i}".lstrip("."))

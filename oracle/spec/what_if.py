"""What if: a system with its network, memory or kernels so many times what they are.

In the name of a system it is written `abci,network*=2,memory*=0.5`; a sweep says `network=2`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oracle.spec.document import refusal, suggest
from oracle.spec.system import System

TIMES = "*="  # in a change of a system's name: that field times a factor


def _bandwidth(system: System, k: float) -> System:
    levels = tuple(replace(level, bandwidth=level.bandwidth * k) for level in system.levels)
    joint = system.joint and replace(system.joint, bandwidth=system.joint.bandwidth * k)
    return replace(system, levels=levels, joint=joint)  # what was calibrated on it is scaled along


def _latency(system: System, k: float) -> System:
    levels = tuple(replace(level, latency=level.latency * k) for level in system.levels)
    joint = system.joint and replace(system.joint, latency=system.joint.latency * k)
    return replace(system, levels=levels, joint=joint)


def _kernels(system: System, k: float) -> System:
    device = system.device
    faster = tuple(replace(curve, start=curve.start / k) for curve in device.kernels)
    peak = {name: value * k for name, value in device.peak.items()}
    bandwidth = device.memory_bandwidth * k
    changed = replace(device, kernels=faster, peak=peak, memory_bandwidth=bandwidth)
    return replace(system, device=changed)


def _device(name: str) -> Callable[[System, float], System]:
    def change(system: System, k: float) -> System:
        value = getattr(system.device, name) * k
        return replace(system, device=replace(system.device, **{name: value}))

    return change


FACTORS: dict[str, tuple[str, Callable[[System, float], System]]] = {
    "network": ("bandwidth of every link", _bandwidth),
    "latency": ("α of every level", _latency),
    "memory": ("capacity of a device", _device("memory")),
    "memory-bandwidth": ("of a device", _device("memory_bandwidth")),
    "kernels": ("speed of every kernel", _kernels),
    "launch": ("host-side cost of a kernel", _device("launch")),
}


def supposed(system: System, what_if: str) -> System:
    """The system as it would be: `network=2,memory=0.5`; itself if nothing is supposed."""
    for word in what_if.split(","):
        if not word:
            continue
        name, _, text = word.partition("=")
        if name not in FACTORS:
            raise refusal(
                "what if", f"no factor is called `{name}`", suggest(name, FACTORS, "factors")
            )
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < 1e6:
            raise refusal("what if", f"`{word}` is not a factor above zero", f"e.g. `{name}=2`")
        system = _times(system, name, value)
    return system


def _times(system: System, name: str, value: float) -> System:
    change = FACTORS[name][1]
    return system.changed(lambda one: change(one, value))

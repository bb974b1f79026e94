"""What a plan keeps beside the device."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.plan.plan import Plan


@dataclass(frozen=True)
class Away:
    """The parts of a training that a plan keeps beside the device."""

    weights: bool = False
    optimizer: bool = False
    activations: bool = False
    disk: bool = False
    host_update: bool = False  # updated there
    delayed: bool = False
    prefetch: int = 1  # units of activations that come in ahead

    @classmethod
    def from_plan(cls, plan: Plan) -> Away:
        axis = plan.axis("offload")
        kinds = axis.word("what").split("+")
        optimizer = "optimizer" in kinds
        host_update = optimizer and axis.word("update") == "host"
        on_disk, delayed = axis.word("to") == "disk", axis.word("delayed") == "on"
        ahead = max(int(axis.prefetch[0, 0]), 1)
        weights, activations = "weights" in kinds, "activations" in kinds
        return cls(weights, optimizer, activations, on_disk, host_update, delayed, ahead)

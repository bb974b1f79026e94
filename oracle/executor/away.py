"""What of a training lies beside the device, as a plan says it."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.plan.plan import Plan


@dataclass(frozen=True)
class Away:
    """What a plan keeps beside the device."""

    weights: bool = False
    optimizer: bool = False
    activations: bool = False
    disk: bool = False
    there: bool = False  # updated there
    delayed: bool = False
    prefetch: int = 1  # units of activations that come in ahead

    @classmethod
    def of(cls, plan: Plan) -> Away:
        axis = plan.axis("offload")
        what = axis.word("what").split("+")
        optimizer = "optimizer" in what
        there = optimizer and axis.word("update") == "host"
        disk, delayed = axis.word("to") == "disk", axis.word("delayed") == "on"
        ahead = max(int(axis.prefetch[0, 0]), 1)
        return cls("weights" in what, optimizer, "activations" in what, disk, there, delayed, ahead)

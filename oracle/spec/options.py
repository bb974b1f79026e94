"""Options of a prediction beside the plan: precision, optimizer, assumptions, profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
SLOTS = {"sgd": 0, "momentum": 1, "adam": 2, "lars": 1, "lamb": 2}  # fp32 values per weight
MIXED = ("fp16", "bf16", "fp8")
# bytes of an activation between kernels: training in fp8 keeps them in 16 bits
ACTIVATION_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 2.0}


@dataclass(frozen=True)
class Options:
    """Options of a prediction beside the plan."""

    precision: str = "fp32"
    optimizer: str = "momentum"
    ideal: bool = False  # the assumptions of the published cost table
    max_memory: float | None = None  # bytes of a device; its own memory if not said
    gamma: float = 1.0  # memory reuse of the published table, with `ideal`
    algorithm: str | None = None  # of collectives; the best of the menu if not said
    edges: tuple[int, ...] = ()  # where a pipeline was cut, in units; () to cut it anew
    profile: Any = None  # a `kernels.profile.Profile`, where rows were measured

    @property
    def width(self) -> float:
        """δ, bytes per element of an activation."""
        return ACTIVATION_BYTES[self.precision]

    @property
    def mixed(self) -> bool:
        return self.precision in MIXED

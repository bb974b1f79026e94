"""Options of a prediction beside the plan: precision, optimizer, software, profile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oracle.spec.optimizer import Kfac
from oracle.spec.precision import ACTIVATION_BYTES, MIXED
from oracle.spec.software import PLAIN, Software

# values per weight; Muon has Adam's two where there is no matrix, or it is of words; K-FAC has
# factors beside its momentum
SLOTS = {"sgd": 0, "momentum": 1, "adam": 2, "lars": 1, "lamb": 2, "adam8": 2, "muon": 1,
         "kfac": 1}  # fmt: skip
RUN = ("sgd", "momentum", "adam", "lars", "lamb")  # by the executor, and what it measures
# bytes of each value, whatever the software's are: a byte, and four for a block of 2,048
# [dettmers2022, §2.1]
MOMENT_BYTES = {"adam8": 1 + 4 / 2048}


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
    units: tuple[str, ...] = ()  # what each did with its activations; () to choose anew
    profile: Any = None  # a `kernels.profile.Profile`, where rows were measured
    software: Software = PLAIN  # what runs the training
    risk: float = 0.5  # of running out of memory that is taken; 0.5: what is expected must fit
    any_plan: bool = False  # plans that the software cannot be told are looked at too
    reading: str = "none"  # how samples are got: a mode of `oracle.storage`, best, or not counted
    shuffle: str = "global"  # whose samples come to whom in the next epoch
    epochs: float | None = None  # of the training, over which what is done once is spread
    kfac: Kfac = field(default_factory=Kfac)  # knobs, where that is the optimizer

    @property
    def width(self) -> float:
        """δ, bytes per element of an activation."""
        return ACTIVATION_BYTES[self.precision]

    @property
    def optimizer_text(self) -> str:
        """The optimizer with its knobs, as it is written."""
        return str(self.kfac) if self.optimizer == "kfac" else self.optimizer

    @property
    def mixed(self) -> bool:
        return self.precision in MIXED

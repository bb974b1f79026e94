"""Accelerators that MLPerf Storage emulates, and what they get from a store.

Each of n ranks asks for a batch, sleeps as long as an accelerator would compute, and waits for
all others (argonne-lcf/dlio_benchmark). Reading goes on while it sleeps; handing a batch over does
not, nor is it as fast on all ranks:

    T = max( compute + hand (1 + variation E[greatest of n]),  T_load )
    samples/s = n batch / T            utilisation = compute / T

`hand` is one workload's, `variation` that of ranks: both are fitted to few accelerators. T_load is
what `oracle.storage` says of a store of which but the bandwidth is known.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oracle.kernels.slowest import greatest
from oracle.spec.storage import Host, SharedFiles
from oracle.storage import MODES, Machine, Question, Samples, loader

DATA = Path(__file__).parent / "data" / "mlperf_storage.csv"
FEW = 8  # accelerators on which numbers are fitted, at most


@dataclass(frozen=True, slots=True)
class Workload:
    """What an emulated accelerator asks for: argonne-lcf/dlio_benchmark, configs/workload."""

    batch: int
    compute: dict[str, float]  # seconds of a step by accelerator
    nbytes: float  # of a sample
    spread: float  # of samples' sizes
    per_file: int  # samples of a file


WORKLOADS = {
    "cosmoflow": Workload(1, {"h100": 3.50e-3, "a100": 5.51e-3}, 2_828_486, 0.0252, 1),
    "unet3d": Workload(7, {"h100": 0.323, "a100": 0.636}, 146_600_628, 0.466, 1),
    "resnet50": Workload(400, {"h100": 0.224, "a100": 0.435}, 114_660.07, 0.0, 1251),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One result."""

    org: str
    system: str
    model: str
    accelerator: str
    n: int
    rate: float  # samples a second
    au: float  # utilisation

    @property
    def work(self) -> Workload:
        return WORKLOADS[self.model]

    @property
    def compute(self) -> float:
        return self.work.compute[self.accelerator]

    @property
    def step(self) -> float:
        """Seconds."""
        return self.n * self.work.batch / self.rate

    @property
    def asked(self) -> float:
        """B/s that accelerators would read if they never waited."""
        return self.n * self.work.batch * self.work.nbytes / self.compute


def rows() -> list[Row]:
    """All results."""
    lines = [line for line in DATA.read_text("utf-8").splitlines() if not line.startswith("#")]
    return [
        Row(row["org"], row["system"], row["model"], row["accelerator"], int(row["n"]),
            float(row["samples_s"]), float(row["au"]))
        for row in csv.DictReader(lines)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hand:
    """Seconds of a step in which a batch is handed over, and how they vary among ranks."""

    seconds: float
    variation: float

    def of(self, n: int) -> float:
        """Those that all n ranks wait for."""
        return self.seconds * (1 + self.variation * greatest(float(n)))


def fitted(few: list[Row]) -> Hand:
    """The hand and its variation that few accelerators say, by least squares."""
    beyond = np.array([row.step - row.compute for row in few])
    form = np.stack([np.ones(len(few)), [greatest(float(row.n)) for row in few]], axis=1)
    (seconds, slope), *_ = np.linalg.lstsq(form, beyond, rcond=None)
    return Hand(float(seconds), float(slope / seconds))


def alike(few: list[Row], variation: float) -> Hand:
    """The hand that rows say on average if ranks vary so much."""
    each = [(row.step - row.compute) / (1 + variation * greatest(float(row.n))) for row in few]
    return Hand(float(np.mean(each)), variation)


def load(row: Row, bandwidth: float) -> float:
    """Seconds in which `oracle.storage` reads the batches of a step from a store so fast."""
    work = row.work
    shared = SharedFiles(bandwidth, write=bandwidth, per_node=bandwidth, streams=1, open=0.0,
                         metadata=1e12)  # fmt: skip
    host = Host(1e12, 4, "four threads a rank", share_for_loading=1.0, bandwidth=1e12)
    data = Samples(1e7, 1e7 * work.nbytes, 1e7 / work.per_file, spread=work.spread)
    machine = Machine(shared, None, host, bandwidth, 0.0)
    asked = Question(machine, data, float(row.n * work.batch), float(row.n), float(row.n))
    return float(np.ravel(MODES["shared"](asked).load)[0])


def predicted(row: Row, hand: Hand, bandwidth: float | None = None) -> float:
    """Seconds of a step."""
    reads = load(row, bandwidth) if bandwidth else 0.0
    return float(loader.step(row.compute + hand.of(row.n), reads))

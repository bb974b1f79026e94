"""Whether this installation is sound: numbers known from elsewhere, recomputed here in seconds.

The tests of the repository say far more; these need nothing but the package.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.ask.progress import counted
from oracle.models.model import Model
from oracle.models.model import model as load_model
from oracle.network import topology
from oracle.network.collectives import named
from oracle.network.contention import RankGroups, schedule_cost
from oracle.plan.strategies import strategies
from oracle.predict.defaults import options_for
from oracle.predict.estimate import Estimate
from oracle.predict.estimate import estimate as predict
from oracle.spec import catalogue
from oracle.spec.system import System
from oracle.spec.tabular import Tabular

PLANS = ("data:16", "data:4 filter:4", "pipeline:4,segments=8 data:4", "spatial:4x4")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried."""

    check: str
    sound: bool
    words: str
    seconds: float


@dataclass(frozen=True, repr=False)
class Selftest(Tabular):
    """Everything that was tried."""

    checks: tuple[Check, ...]
    of: str = "this installation"
    on_ranks: float = 0.0  # seconds that checks on ranks took, all together

    @property
    def seconds(self) -> float:
        """Seconds that all took."""
        return self.on_ranks + sum(one.seconds for one in self.checks)

    @property
    def sound(self) -> bool:
        return all(one.sound for one in self.checks)

    def says(self) -> str:
        """What was found, in a line."""
        wrong = [one.check for one in self.checks if not one.sound]
        return f"{self.of}: {len(self.checks)} checks, " + (", ".join(wrong) or "all sound")

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a check."""
        return [{"check": one.check, "sound": one.sound, "words": one.words,
                 "seconds": one.seconds} for one in self.checks]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The same for another program."""
        return {"sound": self.sound, "checks": self.rows()}


def selftest() -> Selftest:
    """Try everything, whatever fails on the way."""
    return Selftest(tuple(_tried(name, check) for name, check in counted(CHECKS.items())))


def _tried(name: str, check: Callable[[], tuple[bool, str]]) -> Check:
    begin = time.perf_counter()
    try:
        sound, words = check()
    except Exception as error:  # a broken installation may fail in any way; all is listed
        sound, words = False, f"{type(error).__name__}: {error}".splitlines()[0]
    return Check(name, bool(sound), words, time.perf_counter() - begin)


def _specs() -> tuple[bool, str]:
    read: dict[str, Callable[[str], object]] = {
        "models": load_model, "systems": catalogue.system, "devices": catalogue.device,
        "datasets": catalogue.dataset,
    }  # fmt: skip
    count = sum(
        bool(open_(name)) for kind, open_ in read.items() for name in catalogue.shipped(kind)
    )
    return count > 0, f"{count} shipped files read"


def _table() -> tuple[bool, str]:
    """Data parallelism of the published cost table [kahira2021, Table III], VGG-16, 64 devices.

    T = B/p (FW + BW) + WU + 2(p - 1)(α + δ|w| / p β)      M = 2δ(B/p Σ(|x| + |y|) + |w|)
    """
    batch, p, delta = 4096, 64, 4.0
    model, system = load_model("vgg16"), catalogue.system("abci")
    pairs = list(zip(model.rows, model.repeat, strict=True))
    layers = [(row, n) for row, n in pairs if row.work in ("conv", "gemm") or row.kind == "pool"]
    weights = sum(n * row.weights for row, n in pairs)
    peak = system.device.peak["fp32"]
    forward = float(2 * model.repeat @ model.mac) / peak
    level = next(level for level in system.levels if level.devices >= p)
    compute = batch / p * 3 * forward + 2 * weights / peak
    sent = 2 * (p - 1) * (level.latency + delta * weights / p / level.bandwidth)
    held = sum(n * (row.given.size + row.made.size) for row, n in layers)
    memory = 2 * delta * (batch / p * held + weights)
    options = options_for(model, system, "fp32", "sgd", ideal=True)
    found = predict(model, system, f"data:{p}", batch, options)
    off = max(abs(found.seconds[0] / (compute + sent) - 1), abs(found.memory[0] / memory - 1))
    return off < 1e-9, f"data parallelism agrees with the published table to {off:.0e}"


def _simulated() -> Iterator[tuple[str, float, float]]:
    """SimGrid 3.32, model CM02 with all factors 1: 256 MiB over links of 12.5 GB/s and 1 µs."""
    flat = topology.crossbar(64, 12.5e9, 1e-6)
    yield "ring of 64 on one switch", 0.04240474555, _ours(flat, "ring", ((64, 1),))
    fly = topology.dragonfly(4, 4, 4, 12.5e9, 1e-6)
    yield "8 groups on a dragonfly", 0.3436034758, _ours(fly, "halving_doubling", ((8, 8),))


def _ours(net: Any, algorithm: str, pattern: tuple[tuple[int, int], ...]) -> float:
    steps = named("allreduce", algorithm).schedule(pattern[0][0], 1)
    cost = schedule_cost(net, RankGroups(pattern, 64), steps)
    return float(cost.start + cost.per_byte * 2**28)


def _network() -> tuple[bool, str]:
    found = list(_simulated())
    off = max(abs(ours / theirs - 1) for _, theirs, ours in found)
    names = " and ".join(name for name, _, _ in found)
    return off < 1e-5, f"{names} agree with SimGrid to {off:.0e}"


def _estimate(model: Model, system: System, plans: str | Sequence[str], batch: int) -> Estimate:
    return predict(model, system, plans, batch, options_for(model, system))


def _rows() -> tuple[bool, str]:
    model, system = load_model("resnet50"), catalogue.system("abci")
    together = _estimate(model, system, PLANS, 256)
    alone = [_estimate(model, system, plan, 256) for plan in PLANS]
    off = max(abs(one.seconds[0] / together.seconds[i] - 1) for i, one in enumerate(alone))
    return off < 1e-9, f"a table of {len(PLANS)} plans is its rows, to {off:.0e}"


def _ones() -> tuple[bool, str]:
    model, system = load_model("resnet50"), catalogue.system("abci")
    serial = _estimate(model, system, "serial", 64)
    plain = [f"{name}:1" for name, new in strategies().items() if new.degrees]
    found = _estimate(model, system, plain, 64)
    same = bool(np.all(found.seconds == serial.seconds) and np.all(found.memory == serial.memory))
    return same, f"{len(plain)} strategies of degree 1 change nothing"


def _monotone() -> tuple[bool, str]:
    from oracle.spec.what_if import supposed

    model, system = load_model("resnet50"), catalogue.system("abci")
    slow = supposed(system, "network=0.5")
    pairs = [_estimate(model, where, PLANS, 256).seconds for where in (system, slow)]
    return bool(np.all(pairs[0] <= pairs[1])), "no plan is faster on a slower network"


CHECKS = {
    "spec files": _specs,
    "cost table": _table,
    "network": _network,
    "rows": _rows,
    "degree one": _ones,
    "monotone": _monotone,
}

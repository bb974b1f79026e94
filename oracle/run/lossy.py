"""Further epochs of replicas that agree on less than their gradients: assumed, with a wide spread.

Published runs met their targets in as many epochs with 16 bits, with PowerSGD of rank 4, with 1-bit
Adam after a dense start and with the largest 0.1 % of gradients, where the rest is kept for the
next step [lin2018; vogels2019; tang2021]. Other models may differ, so each way has a spread of its
own, and ways that keep no rest, run ahead of others or average weights are expected to take longer.

It names `data`, whose knobs say all that.

    e'(B) = f e(B),   T = (w T_dense + (1 − w) T) S       w, the share of dense steps first
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oracle.plan.plan import Plan
from oracle.plan.strategies.data import Data

WARM_UP = 0.2  # of the steps of 1-bit Adam: 15 to 25 % [tang2021, §7]
ROUGH = math.log(2) / 1.645  # 1σ: a factor of 2 either way, nine times in ten
# factor and 1σ of its logarithm: with the rest kept for the next step, and without
PUBLISHED = {
    "fp16": ((1.0, 0.01), (1.0, 0.01)), "bf16": ((1.0, 0.02), (1.0, 0.02)),
    "int8": ((1.0, 0.05), (1.0, 0.05)), "fp8": ((1.0, 0.05), (1.0, 0.05)),
    "onebit": ((1.0, 0.06), (1.4, ROUGH)), "powersgd": ((1.0, 0.06), (1.4, ROUGH)),
    "topk": ((1.0, 0.06), (1.5, ROUGH)),
}  # fmt: skip
LEAST_RANK, LEAST_DENSITY = 4, 1e-3  # of published runs; below, both factor and spread grow
STALE = 0.1  # for each doubling of the updates that gradients are late by
BETWEEN_AVERAGES = 0.02  # for each doubling of the steps between averages [stich2019]


@dataclass(frozen=True, slots=True)
class Lossy:
    """The factor of the epochs, its relative 1σ, and the share of dense steps at the start."""

    factor: float = 1.0
    deviation: float = 0.0
    warm_up: float = 0.0
    why: str = ""

    @property
    def words(self) -> str:
        """The factor in the words of an answer."""
        low, high = (self.factor * math.exp(end * 1.645 * self.deviation) for end in (-1, 1))
        return f"{self.why}: × {self.factor:.3g} ({low:.2g} to {high:.2g}) epochs, assumed"


NOTHING = Lossy()


def lossy(plan: Plan) -> Lossy:
    """Return the factor of one plan."""
    data: Data = plan.axis("data")
    if float(data.degree[0, 0]) <= 1:
        return NOTHING
    if (word := data.word("compress")) != "none":
        return _compressed(data, word)
    if data.servers[0, 0] > 0:
        return _served(data)
    if (every := float(data.sync[0, 0])) > 1:
        doublings = math.log2(every)
        return Lossy(1 + BETWEEN_AVERAGES * doublings, 0.05 * doublings, 0.0,
                     f"weights averaged every {every:g} steps")  # fmt: skip
    return NOTHING


def _compressed(data: Data, word: str) -> Lossy:
    keeps_rest = data.word("feedback") == "on"
    factor, spread = PUBLISHED[word][0 if keeps_rest else 1]
    short = 0.0  # doublings below the published runs
    if word == "powersgd":
        short = max(0.0, math.log2(LEAST_RANK / float(data.rank[0, 0])))
    elif word == "topk":
        short = max(0.0, math.log2(LEAST_DENSITY / float(data.density[0, 0])))
    warm = WARM_UP if word == "onebit" else 0.0
    return Lossy(factor * (1 + 0.05 * short), spread * (1 + short), warm, f"gradients by {word}")


def _served(data: Data) -> Lossy:
    workers, late = float(data.degree[0, 0]), float(data.backups[0, 0])
    if data.word("mode") == "async":
        doublings = math.log2(workers)
        return Lossy(1 + STALE * doublings, ROUGH, 0.0,
                     f"gradients late by {workers - 1:g} updates")  # fmt: skip
    if late:
        used = (workers - late) / workers
        return Lossy(1 / used, 0.0, 0.0, f"{used:.0%} of a batch used [chen2016backup]")
    return NOTHING

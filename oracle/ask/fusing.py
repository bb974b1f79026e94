"""Gradients in pieces of what size: small ones start early and often, large ones late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from oracle.models.model import Model
from oracle.predict.estimate import estimate
from oracle.spec.formula import Formula
from oracle.spec.gradients import Pieces
from oracle.spec.options import Options
from oracle.spec.system import System

SIZES = tuple(2.0**k for k in range(18, 31))  # 256 KiB to 1 GiB


@dataclass(frozen=True, slots=True)
class Bucket:
    """A size of pieces, and the seconds of an iteration whose gradients are cut so."""

    nbytes: float
    seconds: float


def buckets(
    model: Model, system: System, plan: str, batch: int, options: Options,
    sizes: Sequence[float] = SIZES,
) -> list[Bucket]:  # fmt: skip
    """One plan with its gradients in pieces of each size, the fastest first.

    The framework looks as often at what is ready as it says (`exchange.cycle`).
    """
    found = []
    for size in sizes:
        said = options.software
        cut = replace(said.exchange, pieces=Pieces(bytes=Formula.of(f"{size:.0f}")))
        other = replace(options, software=said.but(exchange=cut))
        seconds = float(estimate(model, system, plan, batch, other).seconds[0])
        found.append(Bucket(size, seconds))
    return sorted(found, key=lambda one: one.seconds)

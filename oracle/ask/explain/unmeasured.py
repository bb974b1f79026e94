"""Families of kernels that nobody measured on a device, and what would settle what they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.kernels.counted import SETTLED_BY
from oracle.kernels.provenance import assumed
from oracle.kernels.rows import passes
from oracle.models.model import Model
from oracle.plan.plan import Plan
from oracle.predict.workload import split
from oracle.spec.options import Options
from oracle.spec.system import System

LEAST = 0.02  # of the passes, of what is worth telling


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A family whose curve is assumed."""

    family: str
    share: float  # of the seconds of all passes
    settled_by: str


def unmeasured(
    model: Model, systems: Sequence[System], plan: Plan, options: Options
) -> tuple[Unmeasured, ...]:
    """The families of a plan's kernels that are assumed on any of these, the longest first."""
    if options.ideal:
        return ()
    model = model.under(options.software.kernels)
    shard = split(model, plan, options)
    shares: dict[str, float] = {}
    for device in (system.device for system in systems):
        times = passes(shard, device, options.precision, options.profile)
        for family, share in assumed(shard, times, device, options).items():
            shares[family] = max(share, shares.get(family, 0.0))
    found = sorted(shares.items(), key=lambda item: -item[1])
    return tuple(
        Unmeasured(family, share, SETTLED_BY[family]) for family, share in found if share >= LEAST
    )

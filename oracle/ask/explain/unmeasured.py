"""Families of kernels that nobody measured on a device, and what would settle what they take."""

from __future__ import annotations

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
    model: Model, system: System, plan: Plan, options: Options
) -> tuple[Unmeasured, ...]:
    """The families of a plan's kernels that are assumed, the longest first."""
    if options.ideal:
        return ()
    model = model.under(options.software.kernels)
    shard = split(model, plan, options)
    times = passes(shard, system.device, options.precision, options.profile)
    shares = assumed(shard, times, system.device, options)
    found = sorted(shares.items(), key=lambda item: -item[1])
    return tuple(
        Unmeasured(family, share, SETTLED_BY[family]) for family, share in found if share >= LEAST
    )

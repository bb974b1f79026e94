"""What would change the ranking: how much faster or slower each part of the machine must be.

The machine is scaled, not the seconds: a plan whose kernels are short stays launch-bound on
faster units. The smallest factor between 1/16 and 16 is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np

from oracle.ask import search
from oracle.ask.explain.factors import Anatomy, unchanged
from oracle.ask.progress import counted
from oracle.ask.ranking import Ranking
from oracle.models.model import Model
from oracle.network import contention
from oracle.plan.plan import Plan, even
from oracle.predict import evaluate
from oracle.spec.device import Device
from oracle.spec.options import Options
from oracle.spec.system import System

WIDEST = 16.0
GRID = (1 / 16, 1 / 4, 4.0, 16.0)
NEAR = 0.02  # a factor is told to this precision
MOST = 12  # rivals that are held against a plan
NEAREST = 3  # of them, where each is priced by several machines


@dataclass(frozen=True, slots=True)
class Flip:
    """A change of the machine at which another plan takes the lead."""

    cause: str
    factor: float  # of its speed: 2 is twice as fast
    winner: str
    loser: str

    @property
    def words(self) -> str:
        """As one would say it."""
        size = self.factor if self.factor > 1 else 1 / self.factor
        way = "faster" if self.factor > 1 else "slower"
        return f"{self.cause} {size:.2g} × {way}: {self.winner} overtakes {self.loser}"


@dataclass(frozen=True, eq=False)
class Contest:
    """A plan and its rivals: products of the same devices and batch that fit, best first."""

    ranking: Ranking
    place: int  # of the plan among all that fit, from 1
    better: str | None  # the same product with better knobs, where that matters
    rivals: tuple[str, ...]
    seconds: tuple[float, ...]
    flips: tuple[Flip, ...]


def contest(
    model: Model, system: System, own: Anatomy, batch: int, options: Options
) -> Contest | None:
    """Hold a plan against the best of all others; None where it cannot run at all."""
    devices = int(own.plan.devices[0, 0])
    if devices > system.devices:
        return None
    ranking = search.recommend(model, system, devices, batch, options, top=MOST + 1)
    shown, mine = ranking.estimate, degrees(own.plan)
    plans = [work.plan for work in shown.work]
    others = [row for row, plan in enumerate(plans) if degrees(plan) != mine]
    same = [row for row, plan in enumerate(plans) if degrees(plan) == mine]
    better = None
    if same and shown.seconds[same[0]] < 0.995 * own.shown.seconds[0]:
        better = shown.plans[same[0]]
    place = 1 + sum(bool(shown.seconds[row] < own.shown.seconds[0]) for row in others)
    names = tuple(shown.plans[row] for row in others)
    flips: tuple[Flip, ...] = ()
    if others and own.shown.feasible[0]:
        near = others[:NEAREST] if system.partitions else others
        table = [even(own.plan), *(even(plans[row]) for row in near)]
        mine_text = own.shown.plans[0]
        flips = tuple(_flips(model, system, table, (mine_text, *names), options))
    return Contest(
        ranking, place, better, names, tuple(float(shown.seconds[r]) for r in others), flips
    )


def degrees(plan: Plan) -> tuple[tuple[str, float], ...]:
    """A product of strategies, whatever its knobs."""
    pairs = ((axis.name, float(np.max(axis.degree))) for axis in plan.axes if axis.degrees)
    return tuple(sorted(pair for pair in pairs if pair[1] > 1))


def machines(system: System, options: Options) -> dict[str, Callable[[float], tuple[Any, Any]]]:
    """Cause -> how a machine is made whose speed in that respect is a factor of this one's."""
    base = contention.alone if options.ideal else contention.lines

    def network(factor: float) -> tuple[System, Any]:
        def lines(there: System, *rest: Any) -> Any:
            return contention.Offer(
                replace(line, start=line.start / factor, per_byte=line.per_byte / factor)
                for line in base(there, *rest)
            )

        return system, lines

    def with_device(
        change: Callable[[Device, float], dict[str, Any]], dispatch: bool = False
    ) -> Any:
        def machine(factor: float) -> tuple[System, Any]:
            def other(one: System) -> System:
                own = options.software.host.dispatched(one)
                device = replace(one.device, **change(one.device, factor))
                return replace(one, dispatch=own / factor if dispatch else own, device=device)

            return system.changed(other), unchanged(system, base)

        return machine

    return {
        "network": network,
        "memory bandwidth": with_device(
            lambda one, f: {"memory_bandwidth": one.memory_bandwidth * f}
        ),
        "kernels": with_device(
            lambda one, f: {
                "peak": {name: rate * f for name, rate in one.peak.items()},
                "kernels": tuple(replace(k, start=k.start / f) for k in one.kernels),
            }
        ),
        "launches": with_device(lambda one, f: {"launch": one.launch / f}, dispatch=True),
    }


def _flips(
    model: Model, system: System, table: Sequence[Plan], names: Sequence[str], options: Options
) -> list[Flip]:  # fmt: skip
    """Flips nearest to the machine as it is, by cause and direction, nearest first."""
    found: list[Flip] = []
    now: tuple[float, int] | None = None  # on the machine as it is, whatever the cause
    for cause, machine in counted(machines(system, options).items()):

        def lead(factor: float, machine: Any = machine) -> tuple[float, int]:
            """By how much the plan lags behind the best rival (log), and which that is."""
            other, lines = machine(factor)
            seconds = evaluate.seconds(model, other, table, options, lines)
            rival = 1 + int(np.argmin(seconds[1:]))
            return log(seconds[0] / seconds[rival]), rival

        now = now or lead(1.0)
        for way in (GRID[1::-1], GRID[2:]):
            near, near_lag = 1.0, now
            for far in way:
                lag = lead(far)
                if (lag[0] > 0) != (now[0] > 0):
                    factor, rival = _bisect(lead, near, far, near_lag, lag)
                    # who leads now loses; the rival is the one it meets at the crossing
                    sides = (names[rival], names[0]) if now[0] <= 0 else (names[0], names[rival])
                    found.append(Flip(cause, factor, *sides))
                    break
                near, near_lag = far, lag
    return sorted(found, key=lambda flip: abs(log(flip.factor)))


def _bisect(
    lead: Callable[[float], tuple[float, int]], near: float, far: float,
    near_lag: tuple[float, int], far_lag: tuple[float, int],
) -> tuple[float, int]:  # fmt: skip
    """The factor at which the sign turns, between one on each side."""
    low, high = log(near), log(far)
    while abs(high - low) > NEAR:
        middle = (low + high) / 2
        lag = lead(exp(middle))
        if (lag[0] > 0) == (near_lag[0] > 0):
            low, near_lag = middle, lag
        else:
            high, far_lag = middle, lag
    return exp((low + high) / 2), far_lag[1] if near_lag[0] <= 0 else near_lag[1]


__all__ = ["Contest", "Flip", "contest", "degrees", "machines"]

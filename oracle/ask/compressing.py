"""Ranking with plans that compress gradients, and from which bandwidth on that pays.

The plans that fit are priced once more with each setting that a strategy names as `lossy`. A
setting counts as its seconds times the epochs that it may take more, 1σ beyond what is assumed, so
that nobody trades what is learned for less than its doubt. The bandwidth at
which the best of either kind are as fast is found by bisection over all links that the plans cross.
It names `data`, whose replicas agree on whole gradients otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import exp, inf, log

import numpy as np

from oracle.ask.compression import Compression
from oracle.ask.joined import joined
from oracle.ask.ranking import Ranking
from oracle.plan.plan import Plan
from oracle.plan.strategies import strategies
from oracle.predict.estimate import Estimate, estimate
from oracle.run.lossy import lossy
from oracle.spec.system import Level, System

LOOKED_AT = 40  # plans whose gradients are compressed in every way
RIVALS = 4  # of either kind that are followed over bandwidths
WIDEST = 256.0  # times the bandwidth that there is, either way
NEAR = 0.02


def compressed(search: Callable[[int], Ranking], top: int) -> Ranking:
    """The ranking of `search`, which is asked for so many plans, with compressed ones in it."""
    found = search(max(top, LOOKED_AT))
    shown = found.estimate
    variants = [plan for row in range(len(shown)) for plan in _variants(shown.work[row].plan)]
    if not variants:
        return _shorter(found, top)
    packed = estimate(shown.model, shown.system, variants, float(found.batch), shown.options)
    packed = packed.take(np.flatnonzero(packed.feasible).tolist())
    value = [*_values(shown), *_values(packed)]
    order = sorted(range(len(value)), key=lambda at: value[at])
    best: list[int] = []
    products: set[tuple[tuple[str, float], ...]] = set()
    for at in order:  # each product once
        work = (shown.work[at] if at < len(shown) else packed.work[at - len(shown)]).plan
        if degrees(work) not in products:
            products.add(degrees(work))
            best.append(at)
    both = joined([shown, packed])
    return replace(
        found, estimate=both.take(best[:top]), rivals=both.take(best[top : top + LOOKED_AT]),
        fastest=both.take(best[:1]), compression=_crossing(shown, packed, found.devices),
    )  # fmt: skip


def _shorter(found: Ranking, top: int) -> Ranking:
    rows = range(len(found.estimate))
    return replace(found, estimate=found.estimate.take(rows[:top]))


def _variants(plan: Plan) -> Iterator[Plan]:
    """One plan with each lossy setting of each of its axes."""
    for name, new in strategies().items():
        axis = plan.axis(name)
        if not axis.degrees or float(axis.degree[0, 0]) <= 1:
            continue
        for setting in new.lossy():
            turned = replace(axis, **{k: np.full((1, 1), float(v)) for k, v in setting.items()})
            yield Plan(plan.batch, tuple(turned if a is axis else a for a in plan.axes))


def _whole(plan: Plan) -> Plan:
    """The same with state that replicas do not share out, as compressed ones have it."""
    data = plan.axis("data")
    whole = replace(data, zero=0 * data.degree)
    return Plan(plan.batch, tuple(whole if axis is data else axis for axis in plan.axes))


def _values(shown: Estimate) -> list[float]:
    """Seconds, times the epochs that each may take more: what is assumed, and 1σ beyond."""
    less = [lossy(work.plan) for work in shown.work]
    return [
        float(seconds) * one.factor * exp(one.deviation)
        for seconds, one in zip(shown.seconds, less, strict=True)
    ]


def _crossing(shown: Estimate, packed: Estimate, devices: int) -> Compression | None:
    if not len(packed) or not len(shown):
        return None
    system, batch = shown.system, float(shown.batch[0])
    wholes, parts = _values(shown), _values(packed)
    first = [sorted(range(len(each)), key=lambda at, each=each: each[at])[:RIVALS]  # type: ignore[misc]
             for each in (wholes, parts)]  # fmt: skip
    products = {degrees(packed.work[at].plan) for at in first[1]}
    near = [[work.plan for work in table.work if degrees(work.plan) in products]
            for table in (shown, packed)]  # fmt: skip
    plain = [*(shown.work[at].plan for at in first[0]), *near[0], *map(_whole, near[0])]
    other = near[1]
    level = spanned(system, devices)

    def gain(factor: float) -> float:
        """By how much compressing is ahead (log) on links so many times as fast."""
        machine = on_links(system, devices, factor)
        found = estimate(shown.model, machine, [*plain, *other], batch, shown.options)
        value = _values(found)
        return log(min(value[: len(plain)]) / min(value[len(plain) :]))

    one, two = first[0][0], first[1][0]
    now = log(wholes[one] / parts[two])
    return Compression(
        now > 0, shown.plans[one], packed.plans[two], exp(now), level.name, level.bandwidth,
        level.bandwidth * _turn(gain, now), lossy(packed.work[two].plan).words,
    )  # fmt: skip


def _turn(gain: Callable[[float], float], now: float) -> float:
    """The factor at which gains turn to losses: 0 where it never pays, infinite where always."""
    near, far = 1.0, 1.0
    while 1 / WIDEST < far < WIDEST or far == 1.0:
        near, far = far, far * (4.0 if now > 0 else 0.25)
        if (gain(far) > 0) != (now > 0):
            break
    else:
        return inf if now > 0 else 0.0
    low, high = sorted((log(near), log(far)))
    while high - low > NEAR:
        middle = (low + high) / 2
        low, high = (middle, high) if gain(exp(middle)) > 0 else (low, middle)
    return exp((low + high) / 2)


def degrees(plan: Plan) -> tuple[tuple[str, float], ...]:
    """The product of strategies that a plan is, whatever its knobs and their order."""
    wide = ((axis.name, float(axis.degree[0, 0])) for axis in plan.axes if axis.degrees)
    return tuple(sorted(pair for pair in wide if pair[1] > 1))


def spanned(system: System, devices: int) -> Level:
    """The level that holds so many devices."""
    return next((one for one in system.levels if one.devices >= devices), system.levels[-1])


def on_links(system: System, devices: int, factor: float) -> System:
    """The system with other links from its nodes to the level that holds so many devices.

    Latencies go with them: on a network that is faster both are.
    """
    last = system.levels.index(spanned(system, devices))
    crossed = range(min(system.inside, last), last + 1)
    levels = (
        replace(level, bandwidth=level.bandwidth * factor, latency=level.latency / factor)
        if at in crossed
        else level
        for at, level in enumerate(system.levels)
    )
    return replace(system, levels=tuple(levels))

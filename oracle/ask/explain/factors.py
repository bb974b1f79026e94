"""What limits a plan, in the words of the published table "what limits what" [kahira2021].

A step's seconds are taken apart by asking what it would be without each cause: the same plan on
a host that launches for nothing, without its `pipeline` (whose micro-batches `data` then has),
and the whole job on one device, `on` the same partition. What `recompute` costs is named with the
rest that is redundant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp
from typing import Any

import numpy as np

from oracle.ask.explain.failing import of_failing
from oracle.ask.explain.reading import of_reading
from oracle.ask.explain.stages import of_stages
from oracle.ask.explain.uneven import Evened, Fair, even_out, fairly
from oracle.ask.explain.unmeasured import Unmeasured, unmeasured
from oracle.models.model import Model
from oracle.models.shard import serial
from oracle.network import contention
from oracle.plan.laid import as_used
from oracle.plan.plan import Plan
from oracle.plan.strategies.data import Data
from oracle.plan.strategies.pipeline import Pipeline
from oracle.predict.block import Work
from oracle.predict.estimate import Estimate
from oracle.predict.estimate import estimate as predict
from oracle.predict.exchange import Exchange
from oracle.predict.limits import FULL
from oracle.predict.offers import Lines
from oracle.predict.sides import parts_of
from oracle.spec.doubt import NINETY
from oracle.spec.options import Options
from oracle.spec.partitions import counterpart
from oracle.spec.system import System
from oracle.spec.units import show
from oracle.spec.used import counts_of, using

# why updating takes its time, by optimizer
UPDATES = {
    "": "reads and writes its state: memory-bound",
    "kfac": "builds factors, inverts them, preconditions gradients: products",
    "muon": "makes the update of each matrix orthogonal: products",
}


@dataclass(frozen=True, slots=True)
class Factor:
    """One cause of a step's time, in the table's words."""

    name: str
    seconds: float
    words: str


@dataclass(frozen=True, slots=True)
class Talk:
    """One exchange of a plan, with the network it meets."""

    exchange: Exchange
    kind: str  # gradient exchange, layer-wise exchange or point-to-point cost
    exposed: float  # seconds that nothing hides
    crowded: float  # seconds of it that links shared with its own kind cost
    sentence: str


@dataclass(frozen=True, eq=False)
class Anatomy:
    """One plan, taken apart."""

    shown: Estimate
    plan: Plan
    factors: tuple[Factor, ...]  # largest first; they add up to the step
    talks: tuple[Talk, ...]
    whole: tuple[dict[str, Any], ...]
    notes: tuple[Factor, ...]  # limits that cost no seconds
    unmeasured: tuple[Unmeasured, ...]  # families of kernels that are assumed
    evened: Evened | None = None  # what would have partitions wait less for each other


def anatomy(
    model: Model, system: System, text: str | Plan, batch: int, options: Options
) -> Anatomy:
    """Take a plan apart."""
    shown = predict(model, system, [text], batch, options)
    plan = shown.work[0].plan
    lines = unchanged(system, contention.alone if options.ideal else contention.lines)
    job = parts_of(system, plan)
    talks = tuple(
        _talks(shown.work[0], job[0].view if job else as_used(system, plan), len(job) > 1)
    )
    flat, alone = _flat(plan), Plan.of(batch, plan.axis("on"))  # on the same device
    free = system.changed(_at_once)
    even = free.changed(lambda one: replace(one, device=replace(one.device, variation=0.0)))

    def at_home(on: System, plans: list[Plan]) -> Estimate:
        return predict(model, on, plans, batch, options, lines)

    alike, unlike = at_home(even, [plan, flat, alone]), at_home(free, [plan])
    sides = alike.work[0].sides
    fair = fairly(model, even, sides, batch, options) if sides else None
    factors = sorted(_factors(shown, alike, unlike, plan, talks, fair),
                     key=lambda one: -one.seconds)  # fmt: skip
    notes = tuple(_notes(shown, alike, plan, model, options))
    whole = tuple(_whole(model, plan, options))
    guessed = unmeasured(model, [one.view for one in job] or [system], plan, options)
    evened = even_out(model, system, shown, options)
    return Anatomy(shown, plan, tuple(factors), talks, whole, notes, guessed, evened)


def unchanged(system: System, lines: Lines) -> Lines:
    """The network of a machine, for machines that differ from it in their devices alone."""
    if system.partitions:
        return lambda view, *rest: lines(counterpart(system, view), *rest)
    return lambda there, *rest: lines(using(system, counts_of(there)), *rest)


def _at_once(system: System) -> System:
    """The machine with a host that launches for nothing."""
    return replace(system, dispatch=0.0, device=replace(system.device, launch=0.0))


def _flat(plan: Plan) -> Plan:
    """The same plan on the devices of one stage, micro-batches and all."""
    pieces = plan.axis("pipeline").segments
    ones = np.ones_like(plan.batch)
    axes = []
    for axis in plan.axes:
        if isinstance(axis, Pipeline):
            axis = Pipeline(*(ones * value for value in vars(Pipeline()).values()))
        elif isinstance(axis, Data):
            axis = replace(axis, accumulate=axis.accumulate * pieces)
        axes.append(axis)
    return Plan(plan.batch, tuple(axes))


def _talks(work: Work, system: System, several: bool) -> Iterator[Talk]:
    """Each exchange; of several partitions, whose networks differ, with the links alone."""
    row = work.row
    for priced, one in work.messages:
        kind = (
            "host link" if not priced.meshed
            else "point-to-point cost" if one.op in ("halo", "sendrecv")
            else "gradient exchange" if priced.when == "step" else "layer-wise exchange"
        )  # fmt: skip
        exposed, line = float(one.exposed[row]), priced.line(work.at)
        if line is None:
            yield Talk(one, kind, exposed, 0.0, f"{one.what}: past the system's end")
            continue
        moving = line.per_byte * float(one.nbytes[row])
        part = moving / max(line.start + moving, 1e-30) * (1 - 1 / max(line.phi, 1.0))
        said = f"{one.what}: over the host link of each device"
        if priced.meshed:
            said = contention.full(one.what, line) if several else contention.sentence(
                system, one.what, *priced.pattern(work.at), line)  # fmt: skip
        yield Talk(one, kind, exposed, exposed * part, said)


def _factors(
    shown: Estimate, alike: Estimate, unlike: Estimate, plan: Plan, talks: tuple[Talk, ...],
    fair: Fair | None,
) -> Iterator[Factor]:  # fmt: skip
    devices = float(plan.devices[0, 0])
    # of plan, flat plan, one device, were devices alike and the host at once; and as they are
    work, slowest = (one.compute["forward"] + one.compute["backward"] for one in (alike, unlike))
    again = float(shown.compute["recompute"][0])
    busy = float(shown.compute["forward"][0] + shown.compute["backward"][0])
    stages = float(plan.axis("pipeline").degree[0, 0])
    mean = float(work[1]) / stages
    useful = min(float(work[2]) / devices if fair is None else fair.seconds, busy)
    device = min(max(float(work[0]), useful), busy)  # without what the host holds up
    waited = min(max(float(slowest[0] - work[0]), 0.0), busy - device)
    lost = max(device - max(mean, useful), 0.0) if stages > 1 else 0.0
    if fair is not None:
        lost = min(fair.lost, device - useful)
    redundant = device - useful - lost
    serially = show(float(work[2]), "s")
    yield Factor("useful computation", useful, fair.words if fair else
                 f"an even share of the {serially} that one device would need")  # fmt: skip
    yield Factor("computation redundancy", redundant + again,
                 "work done more than once, and kernels that shrink less than their share"
                 + (f"; recomputation {show(again, 's')}" if again else ""))  # fmt: skip
    bubble = float(shown.compute["bubble"][0])
    who = "the slowest stage sets" if fair is None else f"devices of {fair.slowest} set"
    fills = f", and the pipeline fills and drains ({show(bubble, 's')})" if stages > 1 else ""
    yield Factor("workload balance", lost + bubble,
                 f"{who} the pace (+{show(lost, 's')}){fills}")  # fmt: skip
    yield Factor("unequal devices", waited,
                 f"the slowest of {devices:g} sets the pace")  # fmt: skip
    yield Factor("host-bound launches", busy - device - waited,
                 "kernels end before the host has launched the next")  # fmt: skip
    optimizer = shown.options.optimizer
    yield Factor("weight update", float(shown.compute["update"][0]),
                 f"{optimizer} {UPDATES.get(optimizer, UPDATES[''])}")  # fmt: skip
    for kind in ("gradient exchange", "layer-wise exchange", "point-to-point cost", "host link"):
        mine = [talk for talk in talks if talk.kind == kind]
        seconds = sum(t.exposed - t.crowded for t in mine)
        names = ", ".join(t.exchange.what for t in mine)
        if mine:
            yield Factor(kind, seconds, names)
    crowded = sum(talk.crowded for talk in talks)
    yield Factor("congestion", crowded, "its own groups meet on the same links")
    if (read := shown.reading[0]) is not None:
        yield Factor("I/O", read["exposed"], f"reading {read['mode']} waits for {read['cause']}")


def _notes(
    shown: Estimate, free: Estimate, plan: Plan, model: Model, options: Options
) -> Iterator[Factor]:
    """Limits that show in bytes or counts, not in seconds."""
    devices = float(plan.devices[0, 0])
    for what, kinds in (("weights and their state", ("weights", "gradients", "optimizer")),
                        ("activations", ("activations",))):  # fmt: skip
        held = sum(float(free.memory_kinds[kind][0]) for kind in kinds)
        once = sum(float(free.memory_kinds[kind][2]) for kind in kinds)
        copies = devices * held / max(once, 1.0)
        if copies > 1.25:
            yield Factor("memory redundancy", 0.0, f"{what}: {copies:.3g} times what one device "
                         f"would hold, {show(held, 'B')} each")  # fmt: skip
    if shown.work[0].block.choice is not None:
        done = Counter(shown.work[0].words)
        yield Factor("units", 0.0, ", ".join(f"{count} {word}" for word, count in done.items())
                     + ", by the room there is")  # fmt: skip
    capacity = float(shown.capacity[0])
    need = float(shown.memory[0])
    if need > FULL * capacity:
        yield Factor("fragmentation", 0.0, f"{show(need, 'B')} of {show(capacity, 'B')}: an "
                     "allocator that fragments may fail where the sum fits")  # fmt: skip
    yield from (Factor("I/O", 0.0, words) for words in of_reading(shown))
    yield from (Factor(name, 0.0, words) for name, words in of_failing(shown))
    if (slower := float(shown.interference[0])) > 1:
        half, most = _crowded(shown)
        yield Factor("congestion", 0.0, f"other jobs make messages {half:.3g} × as long at the "
                     f"median, {most:.3g} × at the 99th percentile, and the step up to "
                     f"{slower:.3g} × (in the interval only)")  # fmt: skip
    yield from (Factor("network varies", 0.0, words) for words in _moments(shown))
    yield from (Factor("workload balance", 0.0, words) for words in of_stages(shown))
    for axis in plan.axes:
        degree = float(np.max(axis.degree))
        if axis.degrees and degree > 1:
            most = float(np.max(axis.limit(model, plan.batch)))
            at = "; it is there" if 2 * degree > most else ""
            words = f"{axis.name}: {degree:.0f} of at most {most:.0f} ({axis.bound}){at}"
            yield Factor("number of devices", 0.0, words)


def _moments(shown: Estimate) -> Iterator[str]:
    """How much longer and shorter messages take, where the network was measured at many moments."""
    work = shown.work[0]
    for message, exchange in work.messages:
        line = message.line(work.at)
        if line is None or line.origin != "fitted" or not line.short:
            continue
        least = exp(-NINETY * line.uncertainty)
        most = 1 + NINETY * (line.uncertainty + line.short)
        yield (f"{message.what} among {exchange.group[work.row]:.0f} ranks: {least:.2g} to "
               f"{most:.2g} × as long, nine times of ten (in the interval only)")  # fmt: skip


def _crowded(shown: Estimate) -> tuple[float, float]:
    """(p50, p99) of the message that other jobs slow most."""
    work = shown.work[0]
    parts = parts_of(shown.system, work.plan)
    views = [one.view for one in parts] or [as_used(shown.system, work.plan)]
    every = [contention.interference(view, *one.pattern(work.at), short) for view in views
             for one, _ in work.messages if one.meshed for short in ("", one.op)]  # fmt: skip
    return max(every, key=lambda factors: factors[::-1], default=(1.0, 1.0))


def _whole(model: Model, plan: Plan, options: Options) -> Iterator[dict[str, Any]]:
    """Rows that an axis leaves as they are, where others are cut."""
    full = np.broadcast_to(serial(model, plan.batch, 4.0).work, (1, len(model)))
    for axis in plan.axes:
        if not (axis.degrees and np.max(axis.degree) > 1 and axis.leaves):
            continue
        alone = axis.split(serial(model, plan.batch, 4.0, options.ideal))
        same = np.broadcast_to(alone.work, (1, len(model)))[0] >= full[0]
        if not same.any() or same.all():
            continue
        kinds: dict[str, int] = {}
        for row, count in zip(np.flatnonzero(same), model.repeat[same], strict=True):
            kind = str(model.rows[row].kind)
            kinds[kind] = kinds.get(kind, 0) + int(count)
        yield {
            "strategy": axis.name, "rows": int(model.repeat[same].sum()),
            "of": int(model.repeat.sum()), "kinds": kinds,
            "weights": float((model.repeat * model.w)[same].sum() / (model.repeat @ model.w)),
            "why": axis.leaves,
        }  # fmt: skip

"""Plans in, estimate out: the one path every prediction takes, for one plan or ten million.

    split   every axis cuts the shard                 oracle.strategies
    price   the machine prices what is left           oracle.compute
    talk    every axis says what it must exchange     oracle.strategies
    price   the network prices the messages           oracle.contention
    add up  over layers, micro-batches and stages     here

Rows of a table that differ only in *when* things happen share the same prices: each distinct
shard is priced once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from oracle import compute, memory
from oracle.collectives import Message
from oracle.compute.rows import AROUND, Passes, passes
from oracle.mesh import Groups, distinct
from oracle.models import Model
from oracle.plan import Plan
from oracle.shard import Array, Shard, serial
from oracle.specs import System
from oracle.stages import Stages

BLOCK = 2048  # plans at a time, so that the temporaries of a block stay in cache
STEP = 0.07  # relative 1σ of a step whose kernels were known exactly: what is not modelled
CALL = 2  # a collective costs the host as much as this many kernels
BUCKET = 25e6  # bytes of gradients exchanged at once while the backward pass runs
WIDTH = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 2.0}  # of an activation
MIXED = ("fp16", "bf16", "fp8")

Lines = Callable[..., Any]  # contention.lines or contention.alone


@dataclass(frozen=True)
class Options:
    """What is decided beside the plan."""

    precision: str = "fp32"
    optimizer: str = "momentum"
    ideal: bool = False
    max_memory: float | None = None
    gamma: float = 1.0
    algorithm: str | None = None  # of collectives; the best of the menu if not said
    clip: bool = True  # the norm of the gradients is taken, and checked for overflow if mixed

    @property
    def mixed(self) -> bool:
        return self.precision in MIXED


@dataclass(frozen=True)
class Exchange:
    """One kind of message in an iteration, (plans,) each."""

    what: str  # "data: gradients"
    op: str
    group: Array
    calls: Array
    nbytes: Array  # of one call
    seconds: Array  # sent in all, on the busiest device
    exposed: Array  # of that, what nothing hides
    phi: Array
    algorithm: Array  # index into `names`
    names: tuple[str, ...]
    full: tuple[tuple[str, ...], ...] = ()  # links that set the pace, by name index
    deviation: Array = 0.0  # 1σ of `exposed`, seconds


@dataclass(frozen=True)
class Block:
    """The estimate of some plans, before it is joined to a whole."""

    plan: Plan
    compute: dict[str, Array]  # forward backward update bubble recompute
    exchange: list[Exchange]
    held: memory.Held
    seconds: Array
    deviation: Array  # 1σ, seconds
    limits: dict[str, tuple[Array, Array]]  # rule -> (wanted, allowed)
    stage: Array  # which stage sets the pace

    @property
    def feasible(self) -> Array:
        return np.logical_and.reduce(
            [wanted <= allowed for wanted, allowed in self.limits.values()]
        )


def blocks(
    model: Model, system: System, plan: Plan, options: Options, lines: Lines | None = None
) -> Iterator[tuple[Array, Block]]:
    """(row numbers, estimate) of at most BLOCK plans at a time that share a pipeline's shape."""
    if lines is None:
        from oracle import contention

        lines = contention.alone if options.ideal else contention.lines
    pipeline = plan.axis("pipeline")
    shared = np.hstack([pipeline.degree, pipeline.interleave, pipeline.cuts])
    kinds, kind = np.unique(shared, axis=0, return_inverse=True)
    for number in range(len(kinds)):
        found = np.flatnonzero(kind.reshape(-1) == number)
        for i in range(0, len(found), BLOCK):
            rows = found[i : i + BLOCK]
            yield rows, block(model, system, plan[rows], options, lines)


def block(model: Model, system: System, plan: Plan, options: Options, lines: Lines) -> Block:
    """Estimate plans that share degree, interleave and cuts of their pipeline."""
    timing = {axis.name: axis.timing for axis in plan.axes}
    keys = plan.columns(lambda axis, knob: knob not in timing[axis.name])
    first, same = distinct(keys)
    few = plan[first]

    shard = split(model, few, options)
    times = passes(shard, system.device, options.precision)
    stages = _stages(model, few, times)
    flow = _flow(shard, stages, times, system, options)
    groups = Groups(few)
    talk = [
        _priced(message, axis.name, shard, groups, stages, times, system, options, lines)
        for axis in few.axes
        for message in axis.talk(shard)
        if groups(message.axes).talk and np.any(message.calls)
    ]
    return _assemble(plan, same, shard, stages, flow, talk, system, model, options)


def split(model: Model, plan: Plan, options: Options) -> Shard:
    """What one device of each plan is left with."""
    delta = WIDTH[options.precision]
    shard = serial(model, plan.batch, delta, options.ideal)
    for axis in sorted(plan.axes, key=lambda axis: axis.nearness):
        shard = axis.split(shard)
    return shard


def _stages(model: Model, plan: Plan, times: Passes) -> Stages:
    pipeline = plan.axis("pipeline")
    p, v = int(pipeline.degree[0, 0]), int(pipeline.interleave[0, 0])
    load = times.forward + times.data + times.weight
    return Stages(model, p, v, not pipeline.cuts[0, 0], load)


@dataclass(frozen=True)
class _Flow:
    """Seconds of each stage, per micro-batch and per iteration: (plans, p)."""

    forward: Array
    backward: Array
    again: tuple[Array, ...]  # forward of what each kind of recomputation makes again
    update: Array
    host: tuple[Array, Array]  # what the host needs to launch forward and backward
    redone: tuple[Array, ...]  # and what each kind of recomputation makes again
    launch: float  # of one kernel
    rough: float  # relative 1σ of compute


def _flow(shard: Shard, stages: Stages, times: Passes, system: System, options: Options) -> _Flow:
    device, model = system.device, shard.model
    launch = 0.0 if shard.ideal else device.launch + system.dispatch
    ahead, back = times.kernels
    parts = recomputed(model)
    each = np.ones((len(times.forward), 1))
    host = (
        (stages.total(ahead * each) + AROUND) * launch,
        stages.total(back * each) * launch,
    )
    forward = stages.total(times.forward)
    backward = stages.total(times.data + times.weight)
    weights = stages.total(shard.w * np.ones_like(shard.batch)) * shard.stated
    if shard.ideal:
        from oracle.compute.curve import precision_on

        rate = device.peak[precision_on(device, options.precision)]
        update = 2 * weights / rate
    else:
        grows = shard.segments > 1  # gradients of micro-batches are added up
        added = compute.stream(device, 12.0 * stages.total(shard.w), queued=True) * grows
        backward = backward + added
        update = _update(weights, stages, device, model, options)
    return _Flow(
        forward, backward, tuple(stages.total(times.forward * part) for part in parts),
        update, host, tuple(stages.total(ahead * part * each) * launch for part in parts),
        launch, _rough(model, device, options),
    )  # fmt: skip


def recomputed(model: Model) -> tuple[Array, Array, Array]:
    """Shares of each row's forward pass made again: selective, full, by operators."""
    inside = model.folded if model.folded.any() else np.ones(len(model), bool)
    core = model.mask(lambda row: row.work == "attention")
    matrices = model.weighted & inside
    return 1.0 * core, 1.0 * inside, inside * np.where(core, 0.0, np.where(matrices, 0.5, 1.0))


def _chosen(mode: Array, parts: tuple[Array, ...], same: Array) -> Array:
    """What each plan's kind of recomputation makes again, of all kinds."""
    found = 0.0
    for kind, part in enumerate(parts, 1):
        found = found + (mode == kind) * part[same]
    return found


def _update(weights: Array, stages: Stages, device: Any, model: Model, options: Options) -> Array:
    """The optimizer's passes, and what mixed precision and clipping add to them."""
    tensors = stages.total(np.where(model.w > 0, 2.0, 0.0)[None, :])
    seconds = compute.update(device, options.precision, options.optimizer, weights, tensors)
    # cast gradients up, unscale them, cast weights down; read them for their norm: bytes a weight
    casts = (6 + 8 + 6) if options.mixed else 0
    clipped = 4 if options.clip and options.optimizer in ("adam", "lamb") else 0
    return seconds + compute.stream(device, weights * (casts + clipped), queued=True)


def _rough(model: Model, device: Any, options: Options) -> float:
    """Relative 1σ of compute: kernels err independently, the model of a step errs as a whole."""
    if options.ideal:
        return 0.0
    from oracle.compute.curve import origin

    spread = {}
    for name in ("gemm", "conv", "attention", "stream"):
        known = origin(device, name, "" if name == "stream" else options.precision)
        # most of a fitted family's spread is shape by shape; what is assumed errs as a whole
        spread[name] = known.uncertainty / (3 if known.kind == "fitted" else 1.5)
    work = model.repeat * (model.mac + model.y)
    common = float(work @ np.array([spread[row.work] for row in model.rows]) / work.sum())
    return float(np.hypot(common, STEP))


@dataclass(frozen=True)
class _Priced:
    """A message with its price on each stage, per micro-batch or per iteration."""

    message: Message
    name: str
    group: Array  # (u, 1)
    nbytes: Array  # (u,) of the largest call
    calls: Array  # (u, p)
    seconds: Array  # (u, p); per micro-batch, or per iteration for `step` and per crossing
    exposed: Array
    phi: Array
    best: Array  # index into names
    names: tuple[str, ...]
    full: tuple[tuple[str, ...], ...]
    rough: Array  # relative 1σ


def _priced(
    message: Message, axis: str, shard: Shard, groups: Groups, stages: Stages, times: Passes,
    system: System, options: Options, lines: Lines,
) -> _Priced:  # fmt: skip
    found = groups(message.axes)
    row, group = found.row, found.size
    menu = [
        lines(system, message.op, pattern, devices, options.algorithm)
        # what reaches past the system is not priced: it is infeasible, and says so
        if pattern and devices <= system.devices
        else ()
        for pattern, devices in found.patterns
    ]
    size = len(group)
    nbytes = np.broadcast_to(message.nbytes, (size, len(shard.model)))
    calls = np.broadcast_to(np.asarray(message.calls, float), nbytes.shape) * (group > 1)
    pieces = np.ones(1)
    if message.when == "step":
        nbytes = stages.total(nbytes)
        calls = np.broadcast_to(np.max(calls, axis=-1, keepdims=True), nbytes.shape)
        if message.hides and not shard.ideal:
            pieces = np.maximum(1.0, np.ceil(nbytes / BUCKET))
            calls, nbytes = calls * pieces, nbytes / pieces
    elif message.when.startswith("unit"):
        nbytes = stages.units(nbytes)
        calls = np.broadcast_to(np.max(calls, axis=-1, keepdims=True), nbytes.shape) * (nbytes > 0)
    elif message.when == "border":
        nbytes = stages.borders(nbytes)
        calls = np.ones_like(nbytes)
    columns = np.flatnonzero((calls > 0).any(axis=0))
    each = np.zeros(nbytes.shape)
    each[:, columns], best, names, phi, full, rough = _menu(menu, row, nbytes[:, columns])
    sent = calls * each
    largest = np.where(calls > 0, nbytes, 0.0).max(axis=-1, initial=0.0)
    left = None
    if message.when in ("forward", "backward"):
        per_stage, count = stages.total(sent), stages.total(calls)
        if message.hides in ("data", "weight"):  # under a product of the row that sends
            left = stages.total(np.maximum(sent - getattr(times, message.hides), 0.0))
    elif message.when.startswith("unit"):
        per_stage, count = stages.gather(sent), stages.gather(calls)
    elif message.when == "border":
        worst = each.max(axis=-1, keepdims=True) if each.size else np.zeros((size, 1))
        per_stage, count = np.repeat(worst, stages.p, axis=1), np.ones((size, stages.p))
    else:
        per_stage, count = sent, calls
    return _Priced(
        message, f"{axis}: {message.what}", group, largest, count,
        per_stage, per_stage if left is None else left, phi, best, names, full, rough,
    )  # fmt: skip


def _menu(menu: list[Any], row: Array, nbytes: Array) -> tuple[Array, ...]:
    """The cheapest line of each row's menu at each size, and which it was at the largest."""
    names: list[str] = []
    full: list[tuple[str, ...]] = []
    most = max((len(options) for options in menu), default=0)
    table = np.full((4, len(menu), max(most, 1)), np.inf)
    table[2:] = 0.0
    index = np.zeros((len(menu), max(most, 1)), int)
    for i, options in enumerate(menu):
        if not options:
            table[:2, i, 0] = 0.0
        for j, line in enumerate(options):
            if (line.algorithm, line.full) not in list(zip(names, full, strict=True)):
                names.append(line.algorithm)
                full.append(tuple(line.full))
            index[i, j] = list(zip(names, full, strict=True)).index((line.algorithm, line.full))
            table[:, i, j] = line.start, line.per_byte, line.phi, line.uncertainty
    largest = nbytes.max(axis=-1, initial=0.0)
    price, at = None, np.zeros(len(row), int)
    lowest = np.full(len(row), np.inf)
    for j in range(table.shape[2]):
        start, slope = table[0, row, j], table[1, row, j]
        with np.errstate(invalid="ignore"):
            line = start[:, None] + np.where(nbytes > 0, slope[:, None] * nbytes, 0.0)
            top = start + np.where(largest > 0, slope * largest, 0.0)
        price = line if price is None else np.minimum(price, line)
        at = np.where(top < lowest, j, at)
        lowest = np.minimum(top, lowest)
    found = index[row, at] if names else np.zeros(len(row), int)
    return (price, found, tuple(names), table[2, row, at], tuple(full), table[3, row, at])


def _assemble(
    plan: Plan, same: Array, shard: Shard, stages: Stages, flow: _Flow, talk: list[_Priced],
    system: System, model: Model, options: Options,
) -> Block:  # fmt: skip
    """From prices of stages to seconds of an iteration, plan by plan."""
    n, p = len(plan), stages.p
    ideal = options.ideal
    S = np.broadcast_to(shard.segments, (len(flow.forward), 1))[same]
    forward, backward = flow.forward[same], flow.backward[same]
    mode = plan.axis("recompute").mode
    again = _chosen(mode, flow.again, same)
    in_forward, in_backward, after = (np.zeros((n, p)) for _ in range(3))
    border = np.zeros((n, 1))
    said = [np.zeros((n, p)), np.zeros((n, p))]  # host seconds to launch exchanges, either pass
    parts: list[tuple[_Priced, Array, Array, Array]] = []  # price, seconds, exposed, calls
    for one in talk:
        seconds, when = one.seconds[same], one.message.when
        hidden = _overlap(plan, one)
        exposed = seconds
        if one.message.hides in ("data", "weight"):
            exposed = np.where(hidden > 0, one.exposed[same], seconds)
        elif one.message.hides == "forward":
            exposed = np.where(hidden > 0, _ahead(seconds, forward, one, stages, same), seconds)
        elif one.message.hides == "backward" and when != "step":
            exposed = np.where(hidden > 0, _ahead(seconds, backward, one, stages, same), seconds)
        elif one.message.hides == "backward" and not ideal:
            calls = one.calls[same]
            last = seconds / np.maximum(calls, 1)
            window = backward * (1 - 1 / np.maximum(calls, 1))  # the first bucket must fill first
            exposed = np.where(hidden > 0, np.maximum(seconds - window, last), seconds)
            exposed = np.where(calls > 0, exposed, 0.0)
        if when in ("forward", "unit forward"):
            in_forward = in_forward + exposed
            said[0] = said[0] + CALL * flow.launch * one.calls[same]
            # a full recomputation says it all again
            if not ideal:
                in_backward = in_backward + np.where(mode == 2, exposed, 0.0)
                said[1] = said[1] + (mode == 2) * CALL * flow.launch * one.calls[same]
        elif when in ("backward", "unit backward"):
            in_backward = in_backward + exposed
            said[1] = said[1] + CALL * flow.launch * one.calls[same]
        elif when == "step":
            after = after + exposed
        else:
            border = seconds[:, :1]
        parts.append((one, seconds, exposed, one.calls[same]))
    # a pass is a mix of short kernels, for which the device waits for the host, and long ones,
    # under which the host runs ahead: neither hides wholly under the other
    host = [seconds[same] for seconds in flow.host]
    redone = _chosen(mode, flow.redone, same)
    ahead, back = forward + in_forward, backward + again + in_backward
    waits = (
        _mixed(ahead, host[0] + said[0]) - ahead,
        _mixed(back, host[1] + said[1] + redone) - back,
    )
    forward, backward = forward + waits[0], backward + waits[1]
    f, b = forward + in_forward, backward + again + in_backward
    v = stages.v
    crossings = 2 * (p + S - 2) * v if p > 1 else np.zeros_like(S)
    if ideal:
        busy = S * (f.max(-1, keepdims=True) + b.max(-1, keepdims=True))
        steady = busy * (p + S - 1) / S
        tail = flow.update[same].max(-1, keepdims=True) + after.max(-1, keepdims=True)
        worst = np.argmax(f + b, axis=-1)[:, None]
        end = np.argmax(flow.update[same], axis=-1)[:, None]
    else:
        each = f + b
        worst = np.argmax(each, axis=-1)[:, None]
        slowest = np.take_along_axis(each, worst, -1)
        fill = (each.sum(-1, keepdims=True) - slowest) / v
        busy, steady = S * slowest, S * slowest + fill
        tails = flow.update[same] + after
        end = np.argmax(tails, axis=-1)[:, None]
        tail = np.take_along_axis(tails, end, -1)
    sends = crossings * border
    seconds = (steady + tail + sends)[:, 0]

    def at(values: Array, stage: Array) -> Array:
        return np.take_along_axis(np.broadcast_to(values, (n, p)), stage, -1)[:, 0]

    s = S[:, 0]
    parts_of = {
        "forward": s * at(forward, worst),
        "backward": s * at(backward, worst),
        "update": at(flow.update[same], end),
        "bubble": (steady - busy)[:, 0],
        "recompute": s * at(again, worst),
    }
    if ideal:  # eq. 12 takes the slowest stage of each pass by itself
        parts_of["forward"] = s * f.max(-1) - s * at(in_forward, np.argmax(f, -1)[:, None])
        parts_of["backward"] = s * b.max(-1) - s * at(in_backward, np.argmax(b, -1)[:, None])
    variance = (flow.rough * sum(parts_of.values())) ** 2
    exchange = []
    for one, total, exposed, calls in parts:
        when, twice = one.message.when, 1.0
        if when in ("step",):
            stage, times = end, np.ones(n)
        elif when == "border":
            stage, times = worst, crossings[:, 0]
        else:
            stage, times = worst, s
            if when in ("forward", "unit forward") and not ideal:
                twice = np.where(mode[:, 0] == 2, 2.0, 1.0)
        shown = times * twice * at(exposed, stage)
        deviation = one.rough[same] * shown
        variance = variance + deviation**2
        exchange.append(
            Exchange(
                one.name, one.message.op, one.group[same][:, 0], times * twice * at(calls, stage),
                one.nbytes[same], times * twice * at(total, stage), shown, one.phi[same],
                one.best[same], one.names, one.full, deviation,
            )
        )  # fmt: skip
    held = _held(plan, shard, stages, same, system, options)
    return Block(
        plan, parts_of, exchange, held, seconds, np.sqrt(variance),
        _limits(plan, model, system, held, options), worst[:, 0],
    )  # fmt: skip


def _mixed(device: Array, host: Array) -> Array:
    """Seconds of a pass in which device and host take turns to be the slower: their 3-norm."""
    return np.where(host > 0, np.cbrt(device**3 + host**3), device)


def _overlap(plan: Plan, one: _Priced) -> Array:
    """Whether the axis that sends may hide its messages, plan by plan: prices leave that open."""
    return np.asarray(getattr(plan.axis(one.name.split(":")[0]), "overlap", 1.0), float)


def _ahead(seconds: Array, work: Array, one: _Priced, stages: Stages, same: Array) -> Array:
    """What is left of messages sent ahead of the work they hide under: the first, and the rest."""
    calls = np.maximum(one.calls[same], 1)
    return np.where(one.calls[same] > 0, np.maximum(seconds - work, seconds / calls), 0.0)


def _held(
    plan: Plan, shard: Shard, stages: Stages, same: Array, system: System, options: Options
) -> memory.Held:  # fmt: skip
    """Memory is of the plan, not of the distinct shard: schedule and recomputation decide it."""
    timing = plan.columns(
        lambda axis, knob: axis.name in ("recompute", "pipeline") and knob in ("mode", "schedule")
    )
    both = np.hstack([same[:, None].astype(float), timing])
    first, kind = distinct(both)
    spread = _take(shard, same[first])
    cut = Stages.__new__(Stages)
    cut.__dict__.update(stages.__dict__)
    if len(stages.cuts) > 1:
        cut.cuts = stages.cuts[same[first]]
    found = memory.held(
        spread, plan[first], cut, system.device, options.mixed, options.optimizer, options.gamma
    )
    return memory.Held({k: v[kind] for k, v in found.kinds.items()}, found.stage[kind])


def _take(shard: Shard, rows: Array) -> Shard:
    """The same shard for a selection of plans."""

    def pick(value: Any) -> Any:
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            return tuple(pick(v) for v in value)
        if isinstance(value, np.ndarray) and value.ndim == 2 and len(value) > 1:
            return value[rows]
        return value

    names = ["batch", "channels", "filters", "heads", "kv_heads", "given", "made", "x", "y", "w", "kept", "kept_bytes", "work", "visits", "segments", "stored", "graded", "stated", "slices", "parts", "long", "spread", "expert"]  # fmt: skip
    return replace(shard, **{name: pick(getattr(shard, name)) for name in names})


def _limits(
    plan: Plan, model: Model, system: System, held: memory.Held, options: Options
) -> dict[str, tuple[Array, Array]]:
    """Rule in words -> (what the plan wants, what is allowed), (plans,) each."""
    found: dict[str, tuple[Array, Array]] = {}
    batch = plan.batch
    for axis in plan.axes:
        if axis.degrees:
            allowed = np.broadcast_to(axis.limit(model, batch), batch.shape)
            found[f"{axis.name} degree: {axis.bound}"] = (axis.degree[:, 0], allowed[:, 0])
    data, sharded = plan.axis("data"), plan.axis("sharded")
    pipeline = plan.axis("pipeline")
    replicas = data.degree * sharded.degree
    found["replicas: samples in the batch"] = (replicas[:, 0], batch[:, 0])
    pieces = replicas * pipeline.segments * data.accumulate
    found["micro-batches: samples of a device"] = (pieces[:, 0], np.maximum(batch, replicas)[:, 0])
    found["experts: devices of the data axis"] = (
        plan.axis("expert").degree[:, 0],
        data.degree[:, 0],
    )
    uneven = (data.degree % plan.axis("expert").degree != 0) * 1.0
    found["experts: a divisor of the data axis"] = (uneven[:, 0], np.zeros(len(plan)))
    ragged = ((pipeline.interleave > 1) & (pipeline.segments % pipeline.degree != 0)) * 1.0
    found["interleave: segments a multiple of the stages"] = (ragged[:, 0], np.zeros(len(plan)))
    found["devices of the system"] = (plan.devices[:, 0], np.full(len(plan), float(system.devices)))
    capacity = options.max_memory or system.device.memory
    found["memory"] = (held.total, np.full(len(plan), float(capacity)))
    return found


__all__ = ["Block", "Exchange", "Options", "block", "blocks", "field", "split"]

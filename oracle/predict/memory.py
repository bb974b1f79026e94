"""Bytes per device by kind, at the worst moment of an iteration.

    M = weights + gradients + optimizer + activations in flight + workspace + buffers + reserve

Activations are what the backward pass wants, kept from the forward pass until it is used: a
tensor once, whoever wants it (`oracle.predict.alive`). `oracle.predict.allocation` plays the same
in time, tensor by tensor. It names `data`, whose gradients are in buckets, `expert`, whose tokens
have buffers, and `tensor`, where what a pass scatters may stay until it was sent.
The published M = 2γδ Σ (B(|x| + |y|) + |w|) is the *ideal* form [kahira2021, Table III].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from oracle.models.shard import Array, Shard
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.predict import alive, encoding, second_order
from oracle.predict.carried import waiting
from oracle.predict.row_bytes import handed_rows, kept_rows, made_rows, working_rows
from oracle.predict.workload import Rows, Workload
from oracle.spec.device import Device
from oracle.spec.options import Options
from oracle.spec.system import System

ASSUMED = ("workspace", "buffers", "reserve")  # what nobody can count from shapes
# 1σ of each kind, relative: what is counted from shapes is known, what is kept depends on a
# framework's version, what libraries take nobody says; and of all together, holes between blocks
UNSURE = {"weights": 0.01, "gradients": 0.01, "optimizer": 0.01, "activations": 0.05,
          "workspace": 0.25, "buffers": 0.25, "reserve": 0.3}  # fmt: skip
# of 0.045, 0.05 and 0.055 the least by which intervals hold in every table of `benchmarks.doubt`;
# all but BLOOM's held by 0.045
TOGETHER = 0.055
TIE = 1e-12  # relative
KINDS = ("weights", "gradients", "optimizer", "activations", "workspace", "buffers", "reserve")


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes by kind on the worst device, (plans,) each, and which stage that is."""

    kinds: dict[str, Array]
    stage: Array
    cached: Array | float = 0.0  # what an allocator may keep beside, and gives up when asked
    doubt: float = 0.0  # relative 1σ for want of a framework that is known
    beside: Array | float = 0.0  # bytes that lie outside the device, of the fullest stage's
    on_disk: Array | float = 0.0  # where they lie on disks instead of in the host's memory
    first: Array | float = 0.0  # what the first stage's allocator holds, as rank 0 logs it

    @property
    def total(self) -> Array:
        return np.asarray(np.sum(list(self.kinds.values()), axis=0))

    @property
    def deviation(self) -> Array:
        """1σ of the total, bytes."""
        return _deviation(self.kinds, self.total, self.doubt)


@dataclass(frozen=True, slots=True)
class Left:
    """What a choice of each unit leaves on a device, (u, p), where workloads have any."""

    moved: Array  # whether anything is sent out or made again on a stage
    peak: Array  # bytes at the worst moment; imaginary those that live only then
    away: Array  # bytes that lie beside the device, of all micro-batches in flight


def held_bytes(
    load: Workload, plan: Plan, same: Array, device: Device, options: Options,
    left: Left | None = None, among: Array | None = None, lead: Array | float = 1.0,
) -> Held:  # fmt: skip
    """Peak bytes of the fullest stage of each plan, by kind; `among` some of them alone.

    `lead` is the share of a pass forward that the host is ahead of the device.
    Distinct workloads are few; schedule and recomputation choose among what each may keep.
    """
    shard, stages = load.shard, load.stages
    alike = load.kinds.row[same]
    if options.ideal:
        worst_bytes = _ideal(shard, stages, options.gamma, among)
        return Held(
            {kind: values[same] for kind, values in worst_bytes.kinds.items()},
            worst_bytes.stage[same],
        )
    stand, sent = standing(load, options, 0.0), _lingering(load)
    sent = np.broadcast_to(sent, stand.buffers.shape)[same] * lead
    early, later = alive.peaks(shard, plan, alike, stages, load.times.workspace)
    outside = stand.beside
    if left is not None:
        early, later = (np.where(left.moved[same], left.peak[same], moment_bytes)
                        for moment_bytes in (early, later))  # fmt: skip
        outside = outside + left.away
    # three moments: nothing has a gradient yet, or the loss alone; or a layer runs back, with its
    # gradients on their way; or weights are updated, each device its own
    nothing, gathered = np.zeros((1, stages.devices)), stand.gathered[same]
    moments = [
        {"weights": gathered, "activations": early.real - early.imag, "workspace": early.imag,
         "buffers": stand.waiting[same] + sent},
        {"weights": gathered, "activations": later.real - later.imag, "workspace": later.imag,
         "buffers": stand.buffers[same] + sent},
        {"weights": nothing, "activations": nothing, "workspace": nothing,
         "buffers": stand.update[same]},
    ]  # fmt: skip
    base = np.sum(list(stand.fixed.values()), axis=0)[same]
    totals = [base + sum(moment.values(), np.zeros(1)) for moment in moments]
    stage_bytes = np.maximum.reduce(totals)
    first_bytes = (1 + options.software.state.slack) * stage_bytes[:, 0]
    if among is not None:
        stage_bytes = np.where(among, stage_bytes, 0.0)
    # of stages that tie the first is named
    stage = np.argmax(stage_bytes >= stage_bytes.max(axis=-1, keepdims=True) * (1 - TIE), axis=-1)
    worst_place = np.arange(len(plan)), stage
    which = np.argmax([total[worst_place] for total in totals], axis=0)
    worst = {kind: values[same, stage] for kind, values in stand.fixed.items()}
    for kind in moments[0]:
        moment_bytes = [
            np.broadcast_to(moment[kind], stage_bytes.shape)[worst_place] for moment in moments
        ]
        worst[kind] = worst.get(kind, 0.0) + np.choose(which, moment_bytes)
    worst["reserve"] = device.reserve + options.software.state.slack * stage_bytes[worst_place]
    # the update's blocks are too large for what the passes leave free, so both stay allocated
    cached = (
        np.maximum(totals[0], totals[1])[worst_place]
        + stand.taken[same][worst_place]
        - stage_bytes[worst_place]
    )
    disk = np.broadcast_to(np.asarray(load.state.on_disk), (len(outside), 1))
    away, doubt = outside[same].max(axis=-1), options.software.memory_doubt
    return Held({kind: worst[kind] for kind in KINDS}, stage, np.maximum(cached, 0.0),
                doubt, away, disk[same, 0], first_bytes)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing:
    """Bytes of each stage that no micro-batch brings, (plans, p) each."""

    fixed: dict[str, Array]  # by kind, all the time
    gathered: Array  # units of weights, while passes run
    buffers: Array  # gradients on their way, while layers run back
    update: Array  # while weights are updated
    taken: Array  # of those, what the update takes for itself
    beside: Array  # outside the device
    waiting: Array  # tensors for stages far ahead, while passes run


def standing(load: Workload, options: Options, lead: float = 1.0) -> Standing:
    """What weights and their gradients take of each stage's device.

    `lead` is the share of a pass forward that the host is ahead of the device.
    """
    software, precision = options.software, options.precision
    # 16-bit weights have masters beside them; gradients are added up in a buffer of their own
    shard, stages, state = load.shard, load.stages, load.state
    width = shard.model.column(lambda row: software.state.kept(precision, row.narrow, row.frozen))
    weights_here, state_here, updated_here = (
        1 - np.asarray(part_away)
        for part_away in (state.weights_away, state.state_away, state.updated_away)
    )
    graded_here = np.maximum(updated_here, 1.0 * (software.offload.sums == "device"))
    # the unit at work and those that come next
    ahead = 1 + software.gather.prefetch
    whole = np.asarray(state.whole) > 0
    gathered = np.where(whole, load.gathered(), ahead * _gathered(load)) * load.shard.gathered
    fixed = {
        "weights": load.weights_of("stored", width) * weights_here,
        "gradients": load.weights_of("graded") * software.exchange.buffer(precision) * graded_here
        + encoding.rest_bytes(load, options),
        "optimizer": load.weights_of("stated", shard.slots) * state_here,
    }
    if software.exchange.flat:
        agree = (np.asarray(state.parts) > 1) & (np.asarray(state.zero) == 0)
        fixed["gradients"] = fixed["gradients"] + (
            software.exchange.flat * load.total(shard.learned) * agree
        )
    if software.convolution.shared and (every := load.times.workspace) is not None:
        fixed["workspace"] = load.total(every[0] + every[1])  # dealt out once to all of a stage
    if software.experts.dispatcher == "hybridep" and load.plan.axis("expert").wide:
        fixed["buffers"] = _expert_buffers(load)
    if software.tensor.library is not None:
        several = (load.plan.axis("tensor").degree > 1) * np.ones((1, stages.devices))
        several = load.kinds.spread(np.broadcast_to(several, (len(load.plan), stages.devices)))
        fixed["buffers"] = fixed.get("buffers", 0.0) + software.tensor.library * several
    if software.tensor.buffers:
        gathered_bytes = software.tensor.buffers * _gathered_tensor(load)
        fixed["buffers"] = fixed.get("buffers", 0.0) + gathered_bytes
    if options.optimizer == "kfac":
        fixed["optimizer"] = fixed["optimizer"] + second_order.factor_bytes(load, options)
    # beside the device gradients are fp32, of what is renewed there
    beside_bytes = load.weights_of("stored", width) * (1 - weights_here) + (
        load.weights_of("stated", shard.beside) * (1 - state_here)
        + load.weights_of("stated", 4.0) * (1 - updated_here)
    )
    copies = load.total(shard.learned) * software.state.copies(precision)
    update_bytes = load.weights_of("stated") * software.state.updating(precision) * updated_here
    # gradients are scattered as they are sent, and added up as they are kept
    scattered = min(software.exchange.buffer(precision), software.exchange.sent(precision))
    # whole gradients are added up unit by unit
    per_weight = np.where(whole, shard.delta, ahead * scattered)
    buffers = per_weight * _gathered(load, trained=True) + copies
    buffers = buffers + _buckets(load, options)
    sent = lead * _lingering(load)
    buffers = buffers + sent
    if options.optimizer == "kfac":
        buffers = buffers + second_order.unfolded(load)
    late: Array = np.zeros((1, stages.devices))
    if not stages.plain and not shard.model.training.forward:
        output_bytes, S = made_rows(shard, shard.model), np.asarray(shard.segments)
        late, back = map(load.kinds.spread, waiting(output_bytes, kept_rows(shard), S, stages))
        buffers = buffers + late + back
    late = np.broadcast_to(late + sent, buffers.shape)
    return Standing(
        fixed, gathered, buffers, copies + update_bytes, update_bytes, beside_bytes, late
    )


def room(
    load: Workload, plan: Plan, same: Array, system: System, options: Options
) -> tuple[Array, Array]:  # fmt: skip
    """(n, p) bytes that each stage has for activations and what lives while they are used, and
    what of it is over if all are kept; less than none where it is short of them.

    As surely as is asked for.
    """
    stand, capacity = standing(load, options), float(options.max_memory or system.device.memory)
    sure = NormalDist().inv_cdf(1 - options.risk) if options.risk != 0.5 else 0.0
    bounds_found: list[Array] = []
    peaks = alive.peaks(load.shard, plan, load.kinds.row[same], load.stages, load.times.workspace)
    for peak, buffers in zip(peaks, (0.0 * stand.buffers, stand.buffers), strict=True):
        kinds = {kind: values[same] for kind, values in stand.fixed.items()}
        kinds["weights"] = kinds["weights"] + stand.gathered[same]
        kinds["buffers"] = kinds.get("buffers", 0.0) + buffers[same]
        kinds["workspace"] = kinds.get("workspace", 0.0) + peak.imag
        base = sum(kinds.values(), np.zeros(1)) - peak.imag
        kind_variance = _variance(kinds)
        low, high = np.zeros((2, *np.broadcast_shapes(base.shape, peak.shape)))
        high = high + capacity
        for _ in range(50):  # what is unsure grows with what is held: by halves
            more = (low + high) / 2
            reserve = system.device.reserve + options.software.state.slack * (base + more)
            total = base + more + reserve
            grown = {"activations": more - peak.imag, "reserve": reserve}
            unsure = _deviation(grown, total, options.software.memory_doubt, kind_variance)
            fits = total + sure * unsure <= capacity
            low, high = np.where(fits, more, low), np.where(fits, high, more)
        bounds_found += [low, low - peak.real]
    return np.minimum(bounds_found[0], bounds_found[2]), np.minimum(
        bounds_found[1], bounds_found[3]
    )


def least_bytes(load: Rows, device: Device, options: Options) -> Array:
    """(kinds,) bytes that a device must have for plans of these rows, as surely as is asked for.

    Whatever lies beside it, is made again or is on another stage: while a row runs back there are
    its gradients, and what it keeps but for what it made for those behind it. How much of it is
    workspace is not known, which leaves least doubt if shared as `UNSURE` has it.
    """
    if options.ideal or options.risk > 0.5:  # where less may be asked for than is held
        return np.zeros(1)
    shard = load.shard
    moving = working_rows(shard, load.times.workspace)
    kept_bytes = np.atleast_2d(kept_rows(shard))
    kept_bytes = kept_bytes - np.minimum(handed_rows(shard), kept_bytes)
    row_bytes = (kept_bytes + moving).max(axis=-1)
    reserve = options.software.state.slack * row_bytes + device.reserve
    shared = row_bytes / np.hypot(1 / UNSURE["activations"], 1 / UNSURE["workspace"])
    total, doubt = row_bytes + reserve, options.software.memory_doubt
    unsure = _deviation({"reserve": reserve}, total, doubt, shared**2)
    return np.asarray(total + NormalDist().inv_cdf(1 - options.risk) * unsure)


def _deviation(
    kinds: Mapping[str, Array], total: Array, doubt: float, more_variance: Array | float = 0.0
) -> Array:
    """1σ of a total, bytes: of each kind by itself, of more that is known, and of all together."""
    return np.asarray(
        np.sqrt(more_variance + _variance(kinds) + (np.hypot(TOGETHER, doubt) * total) ** 2)
    )


def _variance(kinds: Mapping[str, Array]) -> Array:
    return np.asarray(
        sum(((UNSURE[kind] * kind_bytes) ** 2 for kind, kind_bytes in kinds.items()), np.zeros(1))
    )


def _gathered(load: Workload, trained: bool = False) -> Array:
    """(plans, p): weights of the largest unit that is gathered before it is used."""
    stages, spread = load.stages, load.kinds.spread
    (rest, share), *experts = load.shares("stored", trained)
    away = load.state.updated_away if trained else load.state.weights_away
    lies_beside = np.asarray(away) > 0
    unit_weights = spread(stages.most(stages.units(np.atleast_2d(rest)))) * (
        (share < 1) | lies_beside
    )
    for w, alone in experts:  # whole where one device holds them, however many share the rest
        with_experts = spread(stages.most(stages.units(np.atleast_2d(rest + w))))
        unit_weights = np.where((alone < 1) | lies_beside, with_experts, unit_weights)
    return unit_weights


def _expert_buffers(load: Workload) -> Array:
    """(plans, p): what HybridEP registers on each device for tokens that are sent to experts.

    As many tokens as all p devices of a group have, in 16 bits on the way out and back in one
    buffer, with a weight for each expert and a scale for each 128 channels, if all were to come:
    T p (2 h + 4 E + 4 h / 128) (deepseek-ai/DeepEP, @017a5202 csrc/hybrid_ep/hybrid_ep.cu).
    """
    shard, model = load.shard, load.shard.model
    columns = np.flatnonzero(model.mask(lambda row: row.role == "dispatch"))
    degree = np.asarray(load.plan.axis("expert").degree)
    experts = model.column(lambda row: row.experts)
    tokens = shard.micro * shard.x / model.channels
    token_bytes = model.channels * (2 + 4 / 128) + 4 * experts
    group_bytes = (tokens * token_bytes * degree * (degree > 1))[:, columns]
    return load.kinds.spread(load.stages.largest(group_bytes, columns))


def _lingering(load: Workload) -> Array:
    """(plans, p): what a forward pass scatters, where the host frees it before it was sent."""
    if not load.shard.software.tensor.lingers:
        return np.zeros((1, 1))
    return load.total(sum(_by_tensor_ranks(load, "reduce_scatter"), _no_bytes(load)))


def _gathered_tensor(load: Workload) -> Array:
    """(plans, p): the largest tensor that a forward pass gathers among tensor ranks."""
    largest = np.maximum.reduce([_no_bytes(load), *_by_tensor_ranks(load, "allgather", each=True)])
    return load.kinds.spread(load.stages.largest(largest, np.arange(len(load.shard.model))))


def _no_bytes(load: Workload) -> Array:
    return np.zeros((len(load.plan), len(load.shard.model)))


def _by_tensor_ranks(load: Workload, op: str, each: bool = False) -> list[Array]:
    """Bytes of a forward pass's messages of an operation among tensor ranks; of `each`, once."""
    return [
        message.nbytes * (np.minimum(message.calls, 1) if each else message.calls)
        for message in load.plan.axis("tensor").talk(load.shard)
        if message.op == op and message.when == "forward"
    ]


def _buckets(load: Workload, options: Options) -> Array:
    """(plans, p): gradient buckets beside the gradients, where replicas exchange them."""
    software, plan, stages, learned = options.software, load.plan, load.stages, load.shard.learned
    degree, width = plan.axis("data").degree, software.exchange.buffer(options.precision)
    spread = load.kinds.spread
    # gradients that are not kept whole are in a piece of their own until they are scattered
    several = np.maximum(software.state.buckets, load.state.zero == 2)
    if not several.any():
        return np.zeros((1, 1))
    if software.exchange.by_unit:
        largest = width * stages.most(stages.units(np.atleast_2d(learned)))
        # where units' weights are gathered, their gradients have been counted beside them
        not_gathered = load.gathered(trained=True) == 0
        return np.asarray(several * spread((degree > 1) * largest) * not_gathered)
    buffer = np.where(degree > 1, width * stages.total(learned), 0.0)
    size = software.exchange.piece(
        software.exchange.sent(options.precision), {"data": degree, "devices": plan.devices}
    )
    return np.asarray(np.minimum(spread(buffer), several * spread(np.minimum(size, buffer))))


def _ideal(shard: Shard, stages: Stages, gamma: float, among: Array | None) -> Held:
    delta = shard.delta
    tensors = (
        2 * gamma * delta * stages.total(shard.batch * (shard.x + shard.y) * shard.model.layers)
    )
    weights = gamma * delta * stages.total(shard.w * shard.stored * np.ones_like(shard.batch))
    stage_bytes = tensors + 2 * weights
    if among is not None:
        stage_bytes = np.where(among, stage_bytes, 0.0)
    stage = np.argmax(stage_bytes, axis=-1)
    kinds = {"weights": weights, "gradients": weights, "activations": tensors}
    worst = {
        k: np.take_along_axis(v + 0 * stage_bytes, stage[:, None], -1)[:, 0]
        for k, v in kinds.items()
    }
    return Held({k: worst.get(k, np.zeros(len(stage))) for k in KINDS}, stage)

"""Each stage's own work: its passes, what recomputation runs again, the update, the host's part.

It names `recompute`, which says what runs again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from oracle import kernels
from oracle.kernels.curve import precision_on
from oracle.kernels.rows import CAST
from oracle.models import masks
from oracle.models.model import Flags, Model
from oracle.models.shard import Array, Shard
from oracle.plan.plan import Plan
from oracle.plan.strategies.recompute import BEST, FULL, STAGE, recomputed
from oracle.predict import encoding, played, second_order
from oracle.predict.graphs import launched_in
from oracle.predict.overlap import Cover, longer_by
from oracle.predict.resident import Choice
from oracle.predict.workload import Workload
from oracle.spec.options import Options
from oracle.spec.precision import NARROW
from oracle.spec.system import System

# seconds of the host for each of 128 to 256 products of 128 to 256 tokens in Transformer Engine's
# loop, on a node of B200s (MooreThreads/SimuMax@4dcaae5, configs/system/b200_bf16_ceperm.json)
PRODUCT_ALONE = 9e-6
CLIPPED = ("adam", "lamb", "adam8", "muon")  # optimizers that gradients are clipped for


@dataclass(frozen=True)
class StageWork:
    """Seconds of each stage's own work, per micro-batch and per iteration: (u, p)."""

    forward: Array
    backward: Array
    weight: Array  # of the backward pass, the gradient of the weights
    recomputed: dict[int, Array]  # forward again, of each kind of recomputation
    update: Array
    host: tuple[Array, Array]  # what the host needs to launch forward and backward
    host_weight: Array  # and of the latter the gradient of the weights
    host_recomputed: dict[int, Array]  # and what each kind of recomputation runs again
    segments: Array  # (u, 1)


def work_of(
    load: Workload, system: System, options: Options, modes: Iterable[int] = ()
) -> StageWork:  # fmt: skip
    """What each stage computes and updates; `modes` are recomputations of parts of layers."""
    shard, state, times = load.shard, load.state, load.times
    device, model = system.device, shard.model
    launch = 0.0 if shard.ideal else options.software.host.launch(system)
    called = times.kernels[0] + around_products(shard, launch, options), times.kernels[1]
    ahead, back = (launched_in(model, options.software.host.graphs, calls) + more_calls
                   for calls, more_calls in zip(called, by_expert(shard, system, options),
                                                strict=True))  # fmt: skip
    remade = recomputed(model, modes)
    parts = [part * (not model.training.forward) for part in remade.values()]
    present = load.kinds.spread(load.stages.there)
    made_anew = [each * part for each in (times.forward, ahead) for part in parts]
    seconds = [times.forward, times.data + times.weight, times.weight]
    launches = [ahead, back, back * model.weighted]
    totals = load.totals([*seconds, *launches, shard.learned, *made_anew])
    forward, backward, weight, ahead, back, weighted, trained = totals[:7]
    recomputed_seconds, recomputed_calls = totals[7 : 7 + len(parts)], totals[7 + len(parts) :]
    host = (ahead + options.software.host.around * present) * launch, back * launch
    if options.software.kernels.optimizer == "apart" and not model.training.forward:
        # launched once the last backward pass is, while the device is still busy with it
        calls = (
            kernels.update_calls(options.optimizer) * tensors_of(load) * present / state.segments
        )
        host = host[0], host[1] + calls * launch
    weights = load.weights_of("stated")
    if shard.ideal:
        rate = device.peak[precision_on(device, options.precision)]
        update = 2 * weights / rate
    else:
        # micro-batches' gradients, or their shards, are read and added up in fp32, unless their
        # product does it
        software, precision = options.software, options.precision
        buffer, gradient_width = software.exchange.buffer(precision), shard.delta
        alone = np.where(adding(model), 0.0, 1.0 - model.training.forward)
        added_up = load.weights_of("graded", alone)
        each = 2 * buffer + gradient_width  # read, added up, written
        added = present * kernels.stream(
            device, each * added_up * (state.segments > 1), queued=True
        )
        # ZeRO-3 copies what it gathers into its place, unless it is gathered there, and gradients
        # to where they are summed up; once a step where they stay
        often = np.where(np.asarray(state.whole) > 0, 1 / state.segments, 1.0)
        gathered, graded = often * load.gathered(), often * load.gathered(trained=True)
        shared = gathered > 0
        moved = (gradient_width + buffer) * graded
        if software.gather.placed:
            placed = 2 * gradient_width * gathered
            forward = forward + kernels.stream(device, placed, queued=True) * shared
            moved = moved + placed
        weight = weight + added
        backward = backward + added + kernels.stream(device, moved, queued=True) * shared
        update = _update(weights, load, device, options) * (weights > 0)
        # those of the only micro-batch are cast up, unless they have been
        lifted = added_up * (state.segments == 1) * ~shared * (gradient_width < buffer)
        lift = kernels.stream(device, (gradient_width + buffer) * lifted, queued=True)
        update = update + np.where(lifted > 0, lift, 0.0)
        if (
            software.exchange.passes
        ):  # gradients are packed, scaled and unpacked where replicas agree
            packed = software.exchange.passes * buffer * trained
            packing = kernels.stream(device, packed, queued=True) * (packed > 0)
            update = update + packing * (state.parts > 1)
        update = update * (1 - np.asarray(state.updated_away))  # the host's work, not the device's
        update = update + encoding.seconds(load, device, options)
    return StageWork(
        forward, backward, weight, dict(zip(remade, recomputed_seconds, strict=True)),
        update, host, 0.5 * weighted * launch,
        {kind: calls * launch for kind, calls in zip(remade, recomputed_calls, strict=True)},
        state.segments * np.ones((len(weights), 1)),
    )  # fmt: skip


def chosen(work: StageWork, choice: Choice | None) -> StageWork:
    """With what units make again where each chooses, and as much of what the host launches."""
    if choice is None:
        return work
    most_seconds, launched = work.recomputed[BEST], work.host_recomputed[BEST]
    share = np.divide(
        choice.again, most_seconds, out=np.zeros_like(choice.again), where=most_seconds > 0
    )
    remade, host = ({**work.recomputed, BEST: choice.again},
                    {**work.host_recomputed, BEST: launched * share})  # fmt: skip
    return replace(work, recomputed=remade, host_recomputed=host)


def repeated(kind: Array, work: StageWork, same: Array) -> Array:
    """The share of a forward pass's messages that its recomputation sends once more, (n, p)."""
    all_remade, chosen_remade = work.recomputed[FULL][same], work.recomputed[BEST][same]
    part = np.divide(
        chosen_remade,
        all_remade,
        out=np.zeros_like(all_remade + chosen_remade),
        where=all_remade > 0,
    )
    sends_all = (kind == FULL) | (kind == STAGE)
    return np.asarray(np.where(kind == BEST, np.minimum(part, 1.0), 1.0 * sends_all))


def made_again(mode: Array, parts: dict[int, Array], same: Array) -> Array:
    """What each plan's kind of recomputation makes again, of all kinds."""
    remade: Any = 0.0
    for kind, part in parts.items():
        if (mode == kind).any():
            remade = remade + (mode == kind) * part[same]
    return np.asarray(remade)


def cover_of(work: StageWork, plan: Plan, model: Model) -> Cover:
    """What messages may hide under: either pass, and what of it some of the plans make apart."""
    passes = {"forward": work.forward, "backward": work.backward}
    host = dict(zip(passes, work.host, strict=True))
    parts: dict[tuple[str, str], Array] = {}
    within: dict[str, tuple[str, ...]] = {}
    modes = np.unique(plan.axis("recompute").mode.astype(int))
    for kind in modes[modes > 0].tolist():
        name = longer_by(kind)
        passes[name] = work.backward + work.recomputed[kind]
        host[name] = work.host[1] + work.host_recomputed[kind]
        within["backward"] = (*within.get("backward", ()), name)
    if FULL in modes or BEST in modes:
        passes["again"] = work.recomputed[FULL]
        within["again"] = (longer_by(FULL),) if FULL in modes else ()
        parts["again", "forward"] = recomputed(model)[FULL]
    if played.split(plan):
        passes["input"] = work.backward - work.weight
        parts["input", "weight"] = np.zeros(len(model))
    return Cover(passes, host, parts, within)


def around_products(shard: Shard, launch: float, options: Options) -> Array:
    """Launches forward, (rows,), that the host's own work around products in 8 or 4 bits is as
    long as: scales, largest numbers and casts are looked after in Python.
    """
    host, model = options.software.host, shard.model
    if not launch or options.precision not in NARROW:
        return np.zeros(len(model))
    return model.column(lambda row: row.narrow) * host.narrow * host.times / launch


def by_expert(shard: Shard, system: System, options: Options) -> tuple[Array, Array]:
    """Launches forward and backward, (k, rows), that products of experts need one by one.

    A product forward and two backward, each with a cast of what comes in if operands are narrow,
    in the library's own loop (NVIDIA/TransformerEngine, v2.9 transformer_engine/common/gemm/
    cublaslt_gemm.cu:924-966, pytorch/csrc/extensions/cast.cpp:103-148): the driver alone takes time
    for a cast, for a product its choice of an algorithm too. Of 64 experts that is 1.8 ms forward
    and 2.9 back where a driver takes 5 us; on the host of a GB200 even fused ones took 1.2 and 2.1
    (NVIDIA/TransformerEngine, issue 2897).
    """
    model, host = shard.model, options.software.host
    alone = options.software.kernels.grouped == "each" and not shard.ideal
    if not alone or host.graphs == "iteration":
        return np.zeros((1, 1)), np.zeros((1, 1))
    experts = model.column(lambda row: row.experts) * model.weighted
    others = np.maximum(experts / shard.visits - 1.0, 0.0)
    driver = system.device.launch
    others = others * host.times / host.launch(system)
    product, cast = max(driver, PRODUCT_ALONE), driver * (options.precision in NARROW)
    return others * (product + cast), others * (2 * product + cast)


@lru_cache(masks.MODELS)
def adding(model: Model) -> Flags:
    """Rows whose product adds the weights' gradient up."""
    return model.mask(lambda row: row.adds)


def tensors_of(load: Workload) -> Array:
    """Of each stage's trained weights: two a row, the weights and their biases."""
    model = load.shard.model
    return np.maximum(load.total(np.where(model.w * model.trained > 0, 2.0, 0.0)), 1.0)


def _update(weights: Array, load: Workload, device: Any, options: Options) -> Array:
    """The optimizer's passes, and what mixed precision and clipping add to them."""
    tensors, fused = tensors_of(load), options.software.kernels.optimizer == "fused"

    def price(device: Any, precision: str, weights: Array) -> Array:
        # tensor by tensor weights are as wide as their gradients: nothing is cast on the way
        width = precision if fused else "fp32"
        seconds = kernels.update(
            device, width, options.optimizer, weights, tensors, fused=fused, queued=not fused
        )
        # cast narrow gradients up, unscale them, cast weights down; read them for their norm: bytes
        casts = options.software.state.cast(precision)
        clipped = 4 if options.optimizer in CLIPPED else 0
        if precision in CAST and options.software.state.fp8_casts == "step":
            casts = casts + CAST[precision]
        return seconds + kernels.stream(device, weights * (casts + clipped), queued=True)

    extra_seconds: Array | float = 0.0
    if options.optimizer == "muon":
        extra_seconds = _orthogonal(load, device)
    elif options.optimizer == "kfac":
        extra_seconds = second_order.seconds(load, device, options)
    if options.profile is None:
        return price(device, options.precision, weights) + extra_seconds
    return np.asarray(
        options.profile.update(options.optimizer, weights, device, options.precision, price)
        + extra_seconds
    )


def _orthogonal(load: Workload, device: Any) -> Array:
    """Muon's iterations on the matrices whose state is here, as tensor parallelism cut them.

    Where state is shared out it is dealt in whole matrices [liu2025, §2.3]; a matrix that tensor
    ranks have parts of is made orthogonal part by part.
    """
    shard, model = load.shard, load.shard.model
    experts_held = np.maximum(model.column(lambda row: row.experts) / shard.visits, 1.0)
    columns = shard.channels * model.column(lambda row: float(np.prod(row.window)) / row.groups)
    seconds = kernels.orthogonal(device, shard.filters, columns, experts_held) * masks.matrices(
        model
    )
    shares = load.shares("stated")
    return sum((load.total(seconds * (w > 0)) * share for w, share in shares), np.zeros(1))

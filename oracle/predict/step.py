"""An iteration from the seconds of its stages: passes, schedule, exchange, update.

What does not depend on the schedule or on recomputation is priced once for each distinct shard
(u of them); `same` says which of them each of the n plans has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oracle import kernels
from oracle.kernels.curve import precision_on
from oracle.kernels.passes import Passes
from oracle.kernels.rows import AROUND
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.plan.strategies.recompute import inside
from oracle.predict.exchange import Exchange, Priced, together
from oracle.predict.uncertainty import Margin, Sources, messages, paced
from oracle.spec.options import MIXED, Options
from oracle.spec.system import System

CALL = 2  # a collective costs the host as much as this many kernels


@dataclass(frozen=True)
class Flow:
    """Seconds of each stage, per micro-batch and per iteration: (u, p)."""

    forward: Array
    backward: Array
    again: tuple[Array, ...]  # forward of what each kind of recomputation makes again
    update: Array
    host: tuple[Array, Array]  # what the host needs to launch forward and backward
    redone: tuple[Array, ...]  # and what each kind of recomputation makes again
    segments: Array  # (u, 1)


@dataclass(frozen=True)
class Sent:
    """Exchanges added up by when they happen, (u, p): seconds exposed, host seconds."""

    forward: Array
    backward: Array
    after: Array
    border: Array  # ideally each crossing; else what comes in for a backward pass
    ahead: Array  # … and for a forward pass
    launches: tuple[Array, Array]  # host seconds of either pass


def flow(shard: Shard, stages: Stages, times: Passes, system: System, options: Options) -> Flow:
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
    held = stages.total(shard.w * np.ones_like(shard.batch))
    weights = held * shard.stated
    if shard.ideal:
        rate = device.peak[precision_on(device, options.precision)]
        update = 2 * weights / rate
    else:
        # micro-batches' gradients are read and added up in fp32, unless their product does it
        grows = (shard.segments > 1) * ~model.mask(lambda row: row.adds)
        added = kernels.stream(device, 10.0 * stages.total(shard.w * grows), queued=True)
        # ZeRO-3 copies what it gathers into its place, and gradients to where they are summed up
        shared = np.asarray(shard.stored) < 1
        forward = forward + kernels.stream(device, 2 * shard.delta * held, queued=True) * shared
        moved = (3 * shard.delta + 4) * held
        backward = backward + added + kernels.stream(device, moved, queued=True) * shared
        update = _update(weights, stages, device, model, options)
    return Flow(
        forward, backward, tuple(stages.total(times.forward * part) for part in parts),
        update, host, tuple(stages.total(ahead * part * each) * launch for part in parts),
        shard.segments * each,
    )  # fmt: skip


def recomputed(model: Model) -> tuple[Array, Array, Array]:
    """Shares of each row's forward pass made again: selective, full, by operators."""
    again = inside(model)
    core = model.mask(lambda row: row.work == "attention")
    matrices = model.weighted & again
    return 1.0 * core, 1.0 * again, again * np.where(core, 0.0, np.where(matrices, 0.5, 1.0))


def _update(weights: Array, stages: Stages, device: Any, model: Model, options: Options) -> Array:
    """The optimizer's passes, and what mixed precision and clipping add to them."""
    tensors = stages.total(np.where(model.w > 0, 2.0, 0.0)[None, :])

    def price(device: Any, precision: str, weights: Array) -> Array:
        seconds = kernels.update(device, precision, options.optimizer, weights, tensors)
        # cast gradients up, unscale them, cast weights down; read them for their norm: bytes
        casts = (6 + 8 + 6) if precision in MIXED else 0
        clipped = 4 if options.optimizer in ("adam", "lamb") else 0
        return seconds + kernels.stream(device, weights * (casts + clipped), queued=True)

    if options.profile is None:
        return price(device, options.precision, weights)
    return options.profile.update(options.optimizer, weights, device, options.precision, price)


def sent(talk: list[Priced], flow: Flow, system: System, ideal: bool) -> Sent:
    """What all messages come to on each stage."""
    shape = flow.forward.shape
    launch = 0.0 if ideal else CALL * (system.device.launch + system.dispatch)
    found = {when: np.zeros(shape) for when in ("forward", "backward", "step", "border")}
    host = {when: np.zeros(shape) for when in ("forward", "backward")}
    ahead = np.zeros(shape)
    for one in talk:
        when = one.when
        found[when] = found[when] + one.exposed - one.ahead
        ahead = ahead + one.ahead
        if when in host:
            host[when] = host[when] + launch * one.calls
    return Sent(
        found["forward"], found["backward"], found["step"], found["border"],
        ahead, (host["forward"], host["backward"]),
    )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """The seconds of an iteration of each plan, (n,) each, and the stages that set them."""

    compute: dict[str, Array]  # forward backward update bubble recompute
    seconds: Array
    stage: Array  # which sets the pace
    paces: tuple[Array, Array]  # which sets that of either pass: two where passes run apart
    end: Array  # which ends last
    talk: list[Priced]
    same: Array
    segments: Array
    crossings: Array
    bare: Array  # of what is exchanged after a step, what no other stage's work hides
    twice: Array  # forward messages are said again where everything is recomputed
    launched: Array  # what it would take longer for a relative change of the host's work
    sources: Callable[[], Sources]

    @cached_property
    def margin(self) -> Margin:
        """How far each plan's seconds can be trusted; worked out where anybody asks."""
        times = {"forward": self.segments * self.twice, "backward": self.segments,
                 "step": self.bare, "border": self.crossings}  # fmt: skip
        ahead, back = self.paces
        stage = {"forward": ahead, "backward": back, "step": self.end, "border": back}
        talked, unmeasured = messages(self.talk, times, stage, self.same)
        work = sum(self.compute.values())
        return Margin(
            self.seconds, work, talked, unmeasured, self.launched, self.same, self.sources
        )

    @cached_property
    def exchange(self) -> list[Exchange]:
        """Each kind of message over a whole iteration, on the stages that set the pace."""
        return [self._whole(one) for one in self.talk]

    def _whole(self, one: Priced) -> Exchange:
        same = self.same
        calls, seconds = (
            self._over(one.when, *values) for values in ((one.calls,), (one.seconds, one.ahead))
        )
        exposed = self._over(one.when, one.exposed, one.ahead)
        exposed = exposed * self.bare if one.when == "step" else exposed
        return Exchange(
            one.what, one.op, one.group[same], calls, one.nbytes[same], seconds, exposed,
            one.phi[same], one.best[same], one.names, one.full, one.rough[same] * exposed,
            one.origins, one.outside[same],
        )  # fmt: skip

    def _over(self, when: str, values: Array, before: Any = 0.0) -> Array:
        """What comes up each time, over an iteration; `before` of it belongs to the pass ahead."""
        same, (ahead, back) = self.same, self.paces
        if when == "step":
            return values[same, self.end]
        if when == "forward":
            return self.segments * (values[same, ahead] + (self.twice - 1) * values[same, back])
        times = self.crossings if when == "border" else self.segments
        if np.ndim(before) < 2:
            return times * values[same, back]
        return times * ((values - before)[same, back] + before[same, ahead])


def step(
    plan: Plan, same: Array, stages: Stages, flow: Flow, talk: list[Priced], system: System,
    options: Options, sources: Callable[[], Sources],
) -> Step:  # fmt: skip
    """Fill, work and drain the pipeline, then exchange what is left and update.

        T = S max (FW_i + BW_i) + Σ_others (FW_i + BW_i)/v      (gpipe: max FW_i + max BW_i)
          + max_i (exchange_i + WU_i - Σ_{j<i} BW_j/v)

    FW_i and BW_i hold what stage i waits for: a transfer begins when its receiver is there too,
    and both ways of a border are used at once. A stage exchanges its gradients while those
    before it still drain. [narayanan2021, §2.2] counts the fill, not the transfers.
    """
    n, p, ideal = len(plan), stages.p, options.ideal
    said = sent(talk, flow, system, ideal)
    S, mode = flow.segments[same], plan.axis("recompute").mode
    forward, backward = flow.forward[same], flow.backward[same]
    into, back = said.forward[same], said.backward[same]
    again = _chosen(mode, flow.again, same)
    redone = flow.host[1][same] + said.launches[1][same] + _chosen(mode, flow.redone, same)
    if not ideal:  # a full recomputation says everything again
        back = back + (mode == 2) * into
        redone = redone + (mode == 2) * said.launches[0][same]
    # a pass is a mix of short kernels, for which the device waits for the host, and long ones,
    # under which the host runs ahead: neither hides wholly under the other
    ahead, border = said.ahead[same], (0.0 if ideal else said.border[same])
    launched = (flow.host[0] + said.launches[0])[same]
    f = together(forward + into + ahead, launched)
    b = together(backward + again + back + border, redone)
    update, v = flow.update[same], stages.v
    tails = update + said.after[same]
    # all forward, then all back (gpipe)?
    apart = plan.axis("pipeline").schedule == 0
    if p > 1:  # a stage is done before those ahead of it have drained
        tails = tails - (np.cumsum(b, axis=-1) - b) / v
        if apart.any():
            later = np.maximum.accumulate(b[:, ::-1], axis=-1)[:, ::-1]
            tails = tails - apart * (S - 1) * (later[:, :1] - later) / v
    rows = np.arange(n)
    stage = np.argmax(f + b, axis=-1)
    end = np.argmax(update if ideal else tails, axis=-1)
    if ideal:  # eq. 12 takes the slowest stage of each pass by itself
        slow = np.argmax(f, axis=-1), np.argmax(b, axis=-1)
        busy = S[:, 0] * (f.max(-1) + b.max(-1))
        steady = busy * (p + S[:, 0] - 1) / S[:, 0]
        tail = update.max(-1) + said.after[same].max(-1)
        crossings = 2 * (p + S[:, 0] - 2) * v if p > 1 else np.zeros(n)
        waits, renewed, bare = crossings * said.border[same, 0], update[rows, end], np.ones(n)
        paces = stage, stage
    else:
        # the slowest of either pass; in turns the slowest of both together
        slow = tuple(np.where(apart[:, 0], np.argmax(one, axis=-1), stage) for one in (f, b))
        paces = slow
        slowest = f[rows, slow[0]] + b[rows, slow[1]]
        busy = S[:, 0] * slowest
        steady = busy + ((f + b).sum(-1) - slowest) / v
        tail, crossings, waits = tails[rows, end], S[:, 0], 0.0
        renewed, after = np.minimum(update[rows, end], tail), said.after[same, end]
        bare = np.divide(tail - renewed, after, out=np.ones(n), where=after > 0)
    seconds = steady + tail + waits
    s = S[:, 0]
    parts = {
        "forward": s * (f - into - ahead)[rows, slow[0]],
        "backward": s * (b - back - again - border)[rows, slow[1]],
        "update": renewed,
        "bubble": steady - busy,
        "recompute": s * np.broadcast_to(again, b.shape)[rows, paces[1]],
    }
    twice = np.where((mode[:, 0] == 2) & (not ideal), 2.0, 1.0)
    waited = s * (paced(f, launched) + paced(b, redone))[rows, stage]
    return Step(
        parts, seconds, stage, paces, end, talk, same, s, crossings, bare, twice, waited, sources
    )  # fmt: skip


def _chosen(mode: Array, parts: tuple[Array, ...], same: Array) -> Array:
    """What each plan's kind of recomputation makes again, of all kinds."""
    found: Any = 0.0
    for kind, part in enumerate(parts, 1):
        if (mode == kind).any():
            found = found + (mode == kind) * part[same]
    return found

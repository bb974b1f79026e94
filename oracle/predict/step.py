"""An iteration from the seconds of its stages: passes, schedule, exchange, update.

What does not depend on the schedule or on recomputation is priced once for each distinct shard
(u of them); `same` says which of them each of the n plans has. It names the `pipeline` and
`recompute`, which say when work is done and how often, not what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from oracle.kernels.profile.factors import NOTHING, Factors
from oracle.models.model import Flags
from oracle.models.shard import Array
from oracle.plan.plan import Plan
from oracle.plan.stages import Stages
from oracle.plan.strategies.recompute import STAGE, Recompute
from oracle.predict import played
from oracle.predict.exchange import Exchange, Priced
from oracle.predict.overlap import OTHER, longer, longer_by, together
from oracle.predict.stage_work import StageWork, made_again, repeated
from oracle.predict.uncertainty import Sources, Uncertainty, after_step, host_share, messages
from oracle.spec.options import Options
from oracle.spec.software import Software
from oracle.spec.system import System


@dataclass(frozen=True)
class StageMessages:
    """Exposed seconds of each stage's messages by when they are sent, and the host's: (u, p)."""

    forward: Array
    backward: Array
    again: Array  # of those of the forward pass, what recomputation sends once more
    input: Array  # of those backward, beside the gradient of the input alone
    after: tuple[Array, ...]  # by the kind of recomputation that they hide beside, none first
    border: Array  # ideally each crossing; else receive time before a backward pass
    ahead: Array  # receive time before a forward pass
    # seconds to launch those of either pass, and those that recomputation sends once more
    host: tuple[Array, Array, Array]
    whole: Array  # of those of the forward pass, what a stage that runs it again sends once more


def messages_of(talk: list[Priced], work: StageWork) -> StageMessages:
    """What all messages come to on each stage."""
    shape = work.forward.shape
    found = {when: np.zeros(shape) for when in ("forward", "backward", "border")}
    host = {when: np.zeros(shape) for when in ("forward", "backward", "again")}
    whole, ahead, later = (
        np.zeros(shape),
        np.zeros(shape),
        {when: np.zeros(shape) for when in OTHER},
    )
    after = [np.zeros(shape) for _ in range(1 + len(work.recomputed))]
    for one in talk:
        when = one.when
        if when in found:
            found[when] = found[when] + one.exposed - one.ahead
        ahead = ahead + one.ahead
        repeated = when == "forward" and not one.stays
        for each in (when, "again") if repeated else (when,):
            if each in host:
                host[each] = host[each] + one.host
        if repeated:
            whole = whole + one.exposed
        if when in later and not one.stays:
            later[when] = later[when] + one.left(OTHER[when])
        if when == "step":
            after = [each + one.left(longer_by(kind)) for kind, each in enumerate(after)]
    return StageMessages(
        found["forward"], found["backward"], later["forward"], later["backward"], tuple(after),
        found["border"], ahead, (host["forward"], host["backward"], host["again"]), whole,
    )  # fmt: skip


@dataclass(frozen=True)
class StagePasses:
    """Seconds of either pass of a micro-batch on each stage, through all its chunks.

    Plans that recompute alike have the same passes: r of them are distinct, (r, p) each.
    """

    row: Array  # (n,) which of them each plan has
    forward: Array
    backward: Array
    input: Array  # of the backward pass where it is in two parts, the gradient of the input
    weight: Array  # and that of the weights, under which no message hides
    forward_messages: Array  # of it, what messages take that nothing hides
    backward_messages: Array
    input_messages: Array
    recomputed: Array  # of the backward pass
    forward_host: Array  # what the host needs to launch it, beside the device
    backward_host: Array
    crossed: Array  # what messages at borders make both passes longer

    def kinds(self, row: Array) -> dict[str, Array]:
        """By the kind of turn; a backward pass is taken whole or in its two parts."""
        return {"forward": self.forward[row], "backward": self.backward[row],
                "input": self.input[row], "weight": self.weight[row]}  # fmt: skip


def passes_of(
    recompute: Recompute, same: Array, work: StageWork, sent: StageMessages, ideal: bool
) -> StagePasses:
    """Work and messages of a pass, beside its host.

    A pass is a mix of short kernels, for which the device waits for the host, and long ones,
    under which the host runs ahead: neither hides wholly under the other. Recomputation and
    messages belong to the gradient of the input.
    """
    size = len(work.segments)
    both = recompute.mode[:, 0].astype(int) * size + same
    used = np.zeros(both.max() + 1, bool)
    used[both] = True
    pairs, row = np.flatnonzero(used), (np.cumsum(used) - 1)[both]
    kind, same = (pairs // size)[:, None], pairs % size
    again = np.zeros_like(work.forward[same]) + made_again(kind, work.recomputed, same)
    ahead, border = sent.ahead[same], (0.0 if ideal else sent.border[same])
    back, apart = sent.backward[same] + border, sent.input[same] + border
    host_ahead, host = (
        (own + other)[same] for own, other in zip(work.host, sent.host[:2], strict=True)
    )
    host = host + made_again(kind, work.host_recomputed, same)
    if not ideal:  # a full recomputation sends everything again but weights that are there
        part = repeated(kind, work, same)
        once_more = np.where(kind == 1 + STAGE, sent.whole[same], part * sent.again[same])
        back, apart = back + once_more, apart + once_more
        host = host + part * sent.host[2][same]
    weight, late = work.weight[same], work.host_weight[same]
    crossed = longer(work.forward[same] + sent.forward[same], ahead, host_ahead)
    crossed = crossed + longer(work.backward[same] + again + back - border, 0 * back + border, host)
    return StagePasses(
        row, together(work.forward[same] + sent.forward[same] + ahead, host_ahead),
        together(work.backward[same] + again + back, host),
        together(work.backward[same] - weight + again + apart, host - late),
        together(weight, late), sent.forward[same] + ahead, back, apart, again, host_ahead, host,
        crossed,
    )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """The seconds of an iteration of each plan, (n,) each, and the stages that set them."""

    compute: dict[str, Array]  # forward backward update bubble recompute
    seconds: Array
    stage: Array  # which sets the pace
    paces: tuple[Array, Array]  # which sets that of either pass: two where passes run apart
    slow: tuple[Array, Array]  # the slowest of either pass
    end: Array  # which ends last
    talk: list[Priced]
    same: Array
    segments: Array
    crossings: Array
    shown: Array  # of crossings, those that nothing hides
    uncovered: Array  # of what is exchanged after a step, what no other stage's work hides
    repeats: Array  # times that forward messages are sent: 2 where everything is recomputed
    recompute: Array  # the kind of recomputation
    launched: Array  # what it would take longer for a relative change of the host's work
    passes: StagePasses
    update: Array  # (u, p)
    fed: Array | float  # that a host takes for what a device is fed
    software: Software
    sources: Callable[[], Sources]
    factors: Factors = NOTHING  # of runs that were logged

    @property
    def even(self) -> Array:
        """Seconds if stages were equal and none waited: cuts, chunks and order make it no less."""
        each, (ahead, back) = self.passes, self.slow
        slowest = each.forward[each.row, ahead] + each.backward[each.row, back]
        mean = (each.forward + each.backward).mean(axis=-1)[each.row]
        waited = self.compute["bubble"] + self.segments * (slowest - mean)
        return np.asarray(self.seconds - waited)

    def take(self, rows: Array) -> Step:
        """The same of some plans."""
        each = {name: getattr(self, name)[rows] for name in (
            "seconds", "stage", "end", "same", "segments", "crossings", "shown", "uncovered",
            "repeats", "recompute", "launched")}  # fmt: skip
        compute = {name: values[rows] for name, values in self.compute.items()}
        paces, slow = ((ahead[rows], back[rows]) for ahead, back in (self.paces, self.slow))
        eats = np.broadcast_to(self.fed, self.seconds.shape)[rows]
        passes = replace(self.passes, row=self.passes.row[rows])
        return replace(self, compute=compute, paces=paces, slow=slow, fed=eats, passes=passes,
                       **each)  # fmt: skip

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """How far each plan's seconds can be trusted; worked out where anybody asks."""
        again = self.segments * (self.repeats - 1)
        times = {"forward": self.segments, "backward": self.segments, "again": again,
                 "step": self.uncovered, "border": self.shown}  # fmt: skip
        ahead, back = self.paces
        stage = {"forward": ahead, "backward": back, "step": self.end, "border": back,
                 "again": back}  # fmt: skip
        talked, short, sent = messages(self.talk, times, stage, self.same, self.recompute)
        work = np.sum(list(self.compute.values()), axis=0)
        exposed = sum((one.exposed for one in self.exchange), np.zeros(len(self.seconds)))
        return Uncertainty(self.seconds, work, talked, exposed, short, self.launched, self.fed,
                           self.software, self.same, self.sources, self.factors, sent)  # fmt: skip

    @cached_property
    def exchange(self) -> list[Exchange]:
        """Each kind of message over a whole iteration, on the stages that set the pace."""
        return [self._whole(one) for one in self.talk]

    def _whole(self, one: Priced) -> Exchange:
        same = self.same
        calls = self._over(one, one.calls, one.ahead_calls)
        seconds = self._over(one, one.seconds, one.ahead)
        if one.when == "step":
            exposed = self.uncovered * after_step(one, self.recompute, same, self.end)
        else:
            exposed = self._over(one, one.exposed, one.ahead, one.left("again"))
        if one.when == "border":
            exposed = exposed * np.divide(self.shown, self.crossings, out=np.ones(len(same)),
                                          where=self.crossings > 0)  # fmt: skip
        return Exchange(
            one.what, one.op, one.group[same], calls, self._largest(one), seconds, exposed,
            one.phi[same], one.best[same], one.names, one.full, one.rough[same] * exposed,
            one.origins, one.outside[same],
        )  # fmt: skip

    def _largest(self, one: Priced) -> Array:
        """Bytes of the largest of the calls that `_over` adds up."""
        same, (ahead, back) = self.same, self.paces
        if one.sides is not None:
            return np.maximum(one.sides[0][same, ahead], one.sides[1][same, back])
        if one.when == "forward":
            again = np.where(self._repeated(one) > 1, one.nbytes[same, back], 0.0)
            return np.maximum(one.nbytes[same, ahead], again)
        return np.asarray(one.nbytes[same, self.end if one.when == "step" else back])

    def _repeated(self, one: Priced) -> Array | float:
        """Times that a message of the forward pass is sent."""
        return 1.0 if one.stays else self.repeats

    def _over(
        self, one: Priced, values: Array, before: Any = 0.0, later: Array | None = None
    ) -> Array:
        """What comes up each time, over an iteration; `before` of it belongs to the pass ahead.

        What a forward pass sends comes up `later` too, where all of it is recomputed.
        """
        same, (ahead, back), when = self.same, self.paces, one.when
        if when == "step":
            return np.asarray(values[same, self.end])
        if when == "forward":
            more, again = self._repeated(one) - 1, (values if later is None else later)[same, back]
            again = np.where(self.recompute == 1 + STAGE, values[same, back], again)
            return np.asarray(self.segments * (values[same, ahead] + more * again))
        times = self.crossings if when == "border" else self.segments
        if np.ndim(before) < 2:
            return times * values[same, back]
        return np.asarray(times * ((values - before)[same, back] + before[same, ahead]))


def step(
    plan: Plan, same: Array, stages: Stages, work: StageWork, talk: list[Priced], system: System,
    options: Options, sources: Callable[[], Sources], fed: Array | float = 0.0,
    unlike: Flags | None = None,
) -> Step:  # fmt: skip
    """Fill, work and drain the pipeline, then exchange what is left and update.

        T = S max (FW_i + BW_i) + Σ_others (FW_i + BW_i)/v      (gpipe: max FW_i + max BW_i)
          + max_i (exchange_i + WU_i - Σ_{j<i} BW_j/v)

    FW_i and BW_i hold what stage i waits for: a transfer begins when its receiver is there too,
    and both ways of a border are used at once. A stage exchanges its gradients while those
    before it still drain. [narayanan2021, §2.2] counts the fill, not the transfers.
    """
    sent = messages_of(talk, work)
    recompute, S = plan.axis("recompute"), work.segments[same][:, 0]
    beside = options.software.borders.hide(stages.v) and not options.ideal
    waits = replace(sent, border=0 * sent.border, ahead=0 * sent.ahead) if beside else sent
    passes = passes_of(recompute, same, work, waits, options.ideal)
    taken = _published if options.ideal else _overlapped
    time = taken(plan, same, stages, S, passes, work.update, waits, unlike)
    if beside:
        whole = passes_of(recompute, same, work, sent, options.ideal)
        time = _filled(time, same, sent, whole.crossed.sum(axis=-1)[passes.row] / stages.v)
    row, (slow_ahead, slow_back) = passes.row, time.slow
    parts = {
        "forward": S * (passes.forward - passes.forward_messages)[row, slow_ahead],
        "backward": S * (passes.backward - passes.backward_messages - passes.recomputed)[
            row, slow_back],
        "update": time.renewed,
        "bubble": time.steady - time.busy,
        "recompute": S * passes.recomputed[row, time.paces[1]],
    }  # fmt: skip
    kind = recompute.mode[:, :1].astype(int)
    repeats = repeated(kind, work, same)[np.arange(len(plan)), time.paces[1]]
    repeats = 1.0 + repeats * (not options.ideal)
    launched = host_share(passes.forward, passes.forward_host)
    launched = launched + host_share(passes.backward, passes.backward_host)
    return Step(
        parts, time.seconds, time.stage, time.paces, time.slow, time.end, talk, same, S,
        time.crossings, time.shown, time.uncovered, repeats,
        recompute.mode[:, 0].astype(int),
        S * launched[row, time.stage], passes, work.update, fed, options.software, sources,
        NOTHING if options.profile is None else options.profile.factors,
    )  # fmt: skip


@dataclass(frozen=True)
class Time:
    """The seconds of an iteration and which stages set them, (n,) each."""

    seconds: Array
    busy: Array  # of the stage that sets the pace, in its passes
    steady: Array  # with the fill and the drain of the pipeline
    renewed: Array  # the update that nothing hides
    uncovered: Array
    crossings: Array
    shown: Array  # of crossings, those that nothing hides
    stage: Array
    slow: tuple[Array, Array]  # the slowest stage of either pass
    paces: tuple[Array, Array]  # the stages whose messages count in either pass
    end: Array


def _overlapped(
    plan: Plan, same: Array, stages: Stages, S: Array, passes: StagePasses, update: Array,
    sent: StageMessages, unlike: Flags | None,
) -> Time:  # fmt: skip
    """Transfers are part of the passes; stages drain, exchange and update beside each other.

    In closed form for GPipe and 1F1B; any other schedule is played, and any of `unlike` stages.
    """
    row, f, b, p, v = passes.row, passes.forward, passes.backward, stages.p, stages.v
    gpipe = plan.axis("pipeline").says("schedule", "gpipe")  # all forward, then all back
    after = sent.after[0][same]
    if (kind := plan.axis("recompute").mode.astype(int)).any():
        after = np.select([kind == at for at in range(len(sent.after))],
                          [each[same] for each in sent.after])  # fmt: skip
    ends = update[same] + after
    tails = ends
    if p > 1:  # a stage is done before those ahead of it have drained
        tails = tails - ((np.cumsum(b, axis=-1) - b) / v)[row]
        if gpipe.any():
            later = np.maximum.accumulate(b[:, ::-1], axis=-1)[:, ::-1]
            tails = tails - gpipe * (S[:, None] - 1) * (later[:, :1] - later)[row] / v
    stage = np.argmax(f + b, axis=-1)[row]
    # the slowest of either pass; in turns the slowest of both together
    slow_ahead, slow_back = (
        np.where(gpipe[:, 0], np.argmax(x, axis=-1)[row], stage) for x in (f, b)
    )
    slowest = f[row, slow_ahead] + b[row, slow_back]
    busy = S * slowest
    steady = busy + ((f + b).sum(-1)[row] - slowest) / v
    for at, done in played.done(plan, stages, lambda at: passes.kinds(row[at]), unlike):
        # of turns without a gap it is the work of the slowest, to the last digit
        steady[at] = np.maximum(done.max(axis=-1), busy[at])
        tails[at] = ends[at] + done - steady[at, None]
    end = np.argmax(tails, axis=-1)
    tail = tails[np.arange(len(plan)), end]
    renewed, exchanged = np.minimum(update[same, end], tail), after[np.arange(len(plan)), end]
    uncovered = np.divide(tail - renewed, exchanged, out=np.ones(len(plan)), where=exchanged > 0)
    slow = slow_ahead, slow_back
    return Time(steady + tail, busy, steady, renewed, uncovered, S, S, stage, slow, slow, end)


def _filled(time: Time, same: Array, sent: StageMessages, wait: Array) -> Time:
    """The same with borders that are crossed beside work: only fill and drain wait for them.

    The first micro-batch goes through the first chunk of each stage, the last comes back so. They
    wait for what their passes take longer with the borders than without.
    """
    ahead, back = time.paces
    once = sent.ahead[same, ahead] + sent.border[same, back]
    shown = np.divide(wait, once, out=np.zeros_like(wait), where=once > 0)
    return replace(time, seconds=time.seconds + shown * once, shown=shown)


def _published(
    plan: Plan, same: Array, stages: Stages, S: Array, passes: StagePasses, update: Array,
    sent: StageMessages, unlike: Flags | None,
) -> Time:  # fmt: skip
    """Equations 12 and 13 as published: p + S - 1 slots of the slowest stage of each pass."""
    f, b, p, n = passes.forward[passes.row], passes.backward[passes.row], stages.p, len(plan)
    update, after, border = update[same], sent.after[0][same], sent.border[same]
    busy = S * (f.max(-1) + b.max(-1))
    steady = busy * (p + S - 1) / S
    tail = update.max(-1) + after.max(-1)
    crossings = 2 * (p + S - 2) * stages.v if p > 1 else np.zeros(n)
    stage, end = np.argmax(f + b, axis=-1), np.argmax(update, axis=-1)
    slow = np.argmax(f, axis=-1), np.argmax(b, axis=-1)
    return Time(
        steady + tail + crossings * border[:, 0], busy, steady, update[np.arange(n), end],
        np.ones(n), crossings, crossings, stage, slow, (stage, stage), end,
    )  # fmt: skip

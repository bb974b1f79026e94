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
from oracle.plan.strategies.recompute import NONE, STAGE
from oracle.predict import played
from oracle.predict.exchange import Exchange, Priced
from oracle.predict.passes import StageMessages, StagePasses, messages_of, passes_of
from oracle.predict.stage_work import StageWork, repeated
from oracle.predict.uncertainty import Sources, Uncertainty, after_step, host_share, messages
from oracle.spec.options import Options
from oracle.spec.software import Software


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
    stages: Array  # of its pipeline
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
        passes, (ahead, back) = self.passes, self.slow
        slowest = passes.forward[passes.row, ahead] + passes.backward[passes.row, back]
        mean = (passes.forward + passes.backward).sum(axis=-1)[passes.row] / self.stages
        waited = self.compute["bubble"] + self.segments * (slowest - mean)
        return np.asarray(self.seconds - waited)

    @property
    def lead(self) -> Array:
        """(n, p) share of a pass forward that the host is ahead of the device at its end.

        All of it where micro-batches follow each other; none where the only one follows a loss that
        was read. At borders the host waits, so it gains no more than a pass leaves it.
        """
        follows = 1.0 * (self.segments > 1)[:, None]
        return follows * np.where(self.stages[:, None] > 1, self.passes.lead, 1.0)

    def take(self, rows: Array) -> Step:
        """The same of some plans."""
        columns = {name: getattr(self, name)[rows] for name in (
            "seconds", "stage", "end", "same", "stages", "segments", "crossings", "shown",
            "uncovered", "repeats", "recompute", "launched")}  # fmt: skip
        compute = {name: values[rows] for name, values in self.compute.items()}
        paces, slow = ((ahead[rows], back[rows]) for ahead, back in (self.paces, self.slow))
        eats = np.broadcast_to(self.fed, self.seconds.shape)[rows]
        passes = replace(self.passes, row=self.passes.row[rows])
        return replace(self, compute=compute, paces=paces, slow=slow, fed=eats, passes=passes,
                       **columns)  # fmt: skip

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """How far each plan's seconds can be trusted; worked out where anybody asks."""
        sent_again = self.segments * (self.repeats - 1)
        times = {"forward": self.segments, "backward": self.segments, "again": sent_again,
                 "step": self.uncovered, "border": self.shown}  # fmt: skip
        ahead, back = self.paces
        stage = {"forward": ahead, "backward": back, "step": self.end, "border": back,
                 "again": back}  # fmt: skip
        talked, short, sent = messages(self.talk, times, stage, self.same, self.recompute)
        work = np.sum(list(self.compute.values()), axis=0)
        exposed = sum((exchange.exposed for exchange in self.exchange), np.zeros(len(self.seconds)))
        return Uncertainty(self.seconds, work, talked, exposed, short, self.launched, self.fed,
                           self.software, self.same, self.sources, self.factors, sent)  # fmt: skip

    @cached_property
    def exchange(self) -> list[Exchange]:
        """Each kind of message over a whole iteration, on the stages that set the pace."""
        return [self._exchange(priced) for priced in self.talk]

    def _exchange(self, priced: Priced) -> Exchange:
        same = self.same
        calls = self._over(priced, priced.calls, priced.ahead_calls)
        seconds = self._over(priced, priced.seconds, priced.ahead)
        if priced.when == "step":
            exposed = self.uncovered * after_step(priced, self.recompute, same, self.end)
        else:
            exposed = self._over(priced, priced.exposed, priced.ahead, priced.left("again"))
        if priced.when == "border":
            exposed = exposed * np.divide(self.shown, self.crossings, out=np.ones(len(same)),
                                          where=self.crossings > 0)  # fmt: skip
        return Exchange(
            priced.what, priced.op, priced.group[same], calls, self._largest(priced), seconds,
            exposed, priced.phi[same], priced.best[same], priced.names, priced.full,
            priced.rough[same] * exposed, priced.origins, priced.outside[same],
        )  # fmt: skip

    def _largest(self, priced: Priced) -> Array:
        """Bytes of the largest of the calls that `_over` adds up."""
        same, (ahead, back) = self.same, self.paces
        if priced.sides is not None:
            return np.maximum(priced.sides[0][same, ahead], priced.sides[1][same, back])
        if priced.when == "forward":
            sent_again = np.where(self._repeated(priced) > 1, priced.nbytes[same, back], 0.0)
            return np.maximum(priced.nbytes[same, ahead], sent_again)
        return np.asarray(priced.nbytes[same, self.end if priced.when == "step" else back])

    def _repeated(self, priced: Priced) -> Array | float:
        """Times that a message of the forward pass is sent."""
        return 1.0 if priced.stays else self.repeats

    def _over(
        self, priced: Priced, values: Array, before: Any = 0.0, later: Array | None = None
    ) -> Array:
        """What comes up each time, over an iteration; `before` of it belongs to the pass ahead.

        What a forward pass sends comes up `later` too, where all of it is recomputed.
        """
        same, (ahead, back), when = self.same, self.paces, priced.when
        if when == "step":
            return np.asarray(values[same, self.end])
        if when == "forward":
            more, sent_again = (
                self._repeated(priced) - 1,
                (values if later is None else later)[same, back],
            )
            sent_again = np.where(self.recompute == STAGE, values[same, back], sent_again)
            return np.asarray(self.segments * (values[same, ahead] + more * sent_again))
        times = self.crossings if when == "border" else self.segments
        if np.ndim(before) < 2:
            return times * values[same, back]
        return np.asarray(times * ((values - before)[same, back] + before[same, ahead]))


def step(
    plan: Plan, same: Array, work: StageWork, talk: list[Priced], options: Options,
    sources: Callable[[], Sources], fed: Array | float = 0.0, unlike: Flags | None = None,
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
    pipeline = plan.axis("pipeline")
    crosses_beside_work = options.software.borders.hide(pipeline.interleave) & (not options.ideal)
    waits = sent
    if crosses_beside_work.any():
        waits_shown = np.ones((len(work.segments), 1))
        waits_shown[same] = ~crosses_beside_work
        waits = replace(sent, border=waits_shown * sent.border, ahead=waits_shown * sent.ahead)
    passes = passes_of(recompute, same, work, waits, options.ideal)
    time_of = _published if options.ideal else _overlapped
    time = time_of(plan, same, S, passes, work.update, waits, unlike)
    if crosses_beside_work.any():
        unhidden_passes = passes_of(recompute, same, work, sent, options.ideal)
        wait = unhidden_passes.crossed.sum(axis=-1)[passes.row] / pipeline.interleave[:, 0]
        time = _filled(time, same, sent, wait, crosses_beside_work[:, 0])
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
        parts, time.seconds, time.stage, time.paces, time.slow, time.end, talk, same,
        pipeline.degree[:, 0], S,
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
    plan: Plan, same: Array, S: Array, passes: StagePasses, update: Array,
    sent: StageMessages, unlike: Flags | None,
) -> Time:  # fmt: skip
    """Transfers are part of the passes; stages drain, exchange and update beside each other.

    In closed form for GPipe and 1F1B; any other schedule is played, and any of `unlike` stages.
    """
    row, f, b, pipeline = passes.row, passes.forward, passes.backward, plan.axis("pipeline")
    v = pipeline.interleave
    gpipe = pipeline.says("schedule", "gpipe")  # all forward, then all back
    after = sent.after[NONE][same]
    if (kind := plan.axis("recompute").mode.astype(int)).any():
        after = np.select([kind == remade for remade in sent.after],
                          [after_kind[same] for after_kind in sent.after.values()])  # fmt: skip
    ends = update[same] + after
    tails = ends
    if f.shape[1] > 1:  # a stage is done before those ahead of it have drained
        tails = tails - (np.cumsum(b, axis=-1) - b)[row] / v
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
    steady = busy + ((f + b).sum(-1)[row] - slowest) / v[:, 0]
    for rows, done in played.done(plan, lambda rows: passes.kinds(row[rows]), unlike):
        # of turns without a gap it is the work of the slowest, to the last digit
        steady[rows] = np.maximum(done.max(axis=-1), busy[rows])
        its_stages = slice(done.shape[1])
        tails[rows, its_stages] = ends[rows, its_stages] + done - steady[rows, None]
    end = np.argmax(tails, axis=-1)
    tail = tails[np.arange(len(plan)), end]
    renewed, exchanged = np.minimum(update[same, end], tail), after[np.arange(len(plan)), end]
    uncovered = np.divide(tail - renewed, exchanged, out=np.ones(len(plan)), where=exchanged > 0)
    slow = slow_ahead, slow_back
    return Time(steady + tail, busy, steady, renewed, uncovered, S, S, stage, slow, slow, end)


def _filled(
    time: Time, same: Array, sent: StageMessages, wait: Array, crosses_beside_work: Flags
) -> Time:  # fmt: skip
    """The same of plans whose borders are crossed beside work: only fill and drain wait for them.

    The first micro-batch goes through the first chunk of each stage, the last comes back so. They
    wait for what their passes take longer with the borders than without.
    """
    ahead, back = time.paces
    once = sent.ahead[same, ahead] + sent.border[same, back]
    filled = np.divide(wait, once, out=np.zeros_like(wait), where=once > 0)
    seconds = time.seconds + np.where(crosses_beside_work, filled * once, 0.0)
    return replace(time, seconds=seconds, shown=np.where(crosses_beside_work, filled, time.shown))


def _published(
    plan: Plan, same: Array, S: Array, passes: StagePasses, update: Array,
    sent: StageMessages, unlike: Flags | None,
) -> Time:  # fmt: skip
    """Equations 12 and 13 as published: p + S - 1 slots of the slowest stage of each pass."""
    f, b, n = passes.forward[passes.row], passes.backward[passes.row], len(plan)
    pipeline = plan.axis("pipeline")
    p, v = pipeline.degree[:, 0], pipeline.interleave[:, 0]
    update, after, border = update[same], sent.after[NONE][same], sent.border[same]
    busy = S * (f.max(-1) + b.max(-1))
    steady = busy * (p + S - 1) / S
    tail = update.max(-1) + after.max(-1)
    crossings = np.where(p > 1, 2 * (p + S - 2) * v, 0.0)
    stage, end = np.argmax(f + b, axis=-1), np.argmax(update, axis=-1)
    slow = np.argmax(f, axis=-1), np.argmax(b, axis=-1)
    return Time(
        steady + tail + crossings * border[:, 0], busy, steady, update[np.arange(n), end],
        np.ones(n), crossings, crossings, stage, slow, (stage, stage), end,
    )  # fmt: skip

"""One iteration in time: when each stage runs each pass, waits, exchanges and updates.

The schedule of the `pipeline` is played with the seconds of the stages that the estimate adds up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oracle.models.shard import Array
from oracle.plan.player import Span, play
from oracle.plan.schedule import Turn
from oracle.predict.block import Work
from oracle.predict.overlap import OTHER, longer_by


@dataclass(frozen=True)
class Sending:
    """One kind of message on one stage: seconds each time, and of them those that nothing hides."""

    what: str
    seconds: float
    exposed: float


@dataclass(frozen=True)
class Trace:
    """The seconds of each stage's turns, and what is sent in them."""

    schedule: str
    micro_batches: int
    chunks: int
    passes: dict[str, Array]  # kind of turn -> (stages,) seconds of one micro-batch, all chunks
    computed: dict[str, Array]  # of them, without the messages
    sent: dict[str, list[list[Sending]]]  # kind of turn, or "step" -> stage -> what is sent in it
    update: Array  # (stages,)
    late: float = 0.0  # seconds that all stages wait for the samples of the step

    @property
    def stages(self) -> int:
        return len(self.update)

    @cached_property
    def spans(self) -> list[Span]:
        """Every turn as it is played, once the samples are there."""
        found = play(self.schedule, self.stages, self.micro_batches, self.chunks, self._seconds)
        return [one._replace(start=one.start + self.late, end=one.end + self.late) for one in found]

    def _seconds(self, stage: int, turn: Turn) -> float:
        return float(self.passes[turn.kind][stage]) / self.chunks

    @cached_property
    def done(self) -> Array:
        """When each stage has ended its last pass."""
        found = np.zeros(self.stages)
        for span in self.spans:
            found[span.stage] = max(found[span.stage], span.end)
        return found

    @cached_property
    def end(self) -> float:
        """When the last stage has exchanged and updated."""
        exposed = [sum(one.exposed for one in each) for each in self.sent["step"]]
        return float((self.done + np.array(exposed) + self.update).max())

    @cached_property
    def waiting(self) -> float:
        """Part of the passes' time in which stages wait for each other."""
        busy = sum(span.end - span.start for span in self.spans)
        return 1 - busy / (self.stages * float(self.done.max()))


def trace(work: Work) -> Trace:
    """The iteration of one plan."""
    step, row, at = work.block.step, work.row, work.at
    passes, plan = step.passes, work.plan
    pipeline = plan.axis("pipeline")
    mine = passes.row[row]
    kept = passes.kinds(mine)
    stages, read = len(kept["forward"]), work.block.read
    late = 0.0 if read is None else max(float(read.seconds[row] - step.seconds[row]), 0.0)
    messages = {"forward": passes.forward_messages, "backward": passes.backward_messages,
                "input": passes.input_messages,
                "weight": np.zeros_like(passes.weight)}  # fmt: skip
    return Trace(
        str(pipeline.word("schedule")) if stages > 1 else "1f1b",
        max(1, round(float(step.segments[row]))),
        int(pipeline.interleave[0, 0]) if stages > 1 else 1, kept,
        {kind: seconds - np.broadcast_to(messages[kind][mine], seconds.shape)
         for kind, seconds in kept.items()},
        {when: [_sent(work, when, stage, at) for stage in range(stages)]
         for when in (*kept, "step")},
        np.broadcast_to(step.update[at], kept["forward"].shape), late,
    )  # fmt: skip


def _sent(work: Work, when: str, stage: int, at: int) -> list[Sending]:
    """What a stage sends in one pass of a micro-batch, or once a step."""
    pass_, apart = ("backward", True) if when == "input" else (when, False)
    step = work.block.step
    again = step.repeats[work.row] > 1 and pass_ == "backward"
    place = longer_by(int(step.recompute[work.row])) if when == "step" else OTHER.get(pass_, "")
    apart = apart or when == "step"
    found = []
    for one, _ in work.messages:
        if one.when == pass_:
            part = one.seconds[at, stage], (one.left(place) if apart else one.exposed)[at, stage]
        elif again and one.when == "forward" and not one.stays:
            part = one.seconds[at, stage], one.left("again")[at, stage]
        elif one.when == "border" and pass_ in ("forward", "backward"):
            ahead = np.broadcast_to(one.ahead, one.seconds.shape)[at, stage]
            part = (ahead, ahead) if pass_ == "forward" else (
                one.seconds[at, stage] - ahead, one.exposed[at, stage] - ahead)  # fmt: skip
        else:
            continue
        if part[0] > 0:
            found.append(Sending(one.what, float(part[0]), float(part[1])))
    return found

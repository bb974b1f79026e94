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
        played = play(self.schedule, self.stages, self.micro_batches, self.chunks, self._seconds)
        return [
            span._replace(start=span.start + self.late, end=span.end + self.late) for span in played
        ]

    def _seconds(self, stage: int, turn: Turn) -> float:
        return float(self.passes[turn.kind][stage]) / self.chunks

    @cached_property
    def done(self) -> Array:
        """When each stage has ended its last pass."""
        done_at = np.zeros(self.stages)
        for span in self.spans:
            done_at[span.stage] = max(done_at[span.stage], span.end)
        return done_at

    @cached_property
    def end(self) -> float:
        """When the last stage has exchanged and updated."""
        exposed = [
            sum(sending.exposed for sending in stage_sends) for stage_sends in self.sent["step"]
        ]
        return float((self.done + np.array(exposed) + self.update).max())

    @cached_property
    def waiting(self) -> float:
        """Part of the passes' time in which stages wait for each other."""
        busy = sum(span.end - span.start for span in self.spans)
        return 1 - busy / (self.stages * float(self.done.max()))


def trace(work: Work) -> Trace:
    """The iteration of one plan."""
    step, row, shard = work.block.step, work.row, work.at
    passes, plan = step.passes, work.plan
    pipeline = plan.axis("pipeline")
    pass_row = passes.row[row]
    stages, read = int(pipeline.degree[0, 0]), work.block.read
    # a table has room for the longest of its pipelines
    turn_seconds = {kind: seconds[:stages] for kind, seconds in passes.kinds(pass_row).items()}
    late = 0.0 if read is None else max(float(read.seconds[row] - step.seconds[row]), 0.0)
    messages = {"forward": passes.forward_messages, "backward": passes.backward_messages,
                "input": passes.input_messages,
                "weight": np.zeros_like(passes.weight)}  # fmt: skip
    return Trace(
        str(pipeline.word("schedule")) if stages > 1 else "1f1b",
        max(1, round(float(step.segments[row]))),
        int(pipeline.interleave[0, 0]) if stages > 1 else 1, turn_seconds,
        {kind: seconds - np.broadcast_to(messages[kind][pass_row][:stages], seconds.shape)
         for kind, seconds in turn_seconds.items()},
        {when: [_sent(work, when, stage, shard) for stage in range(stages)]
         for when in (*turn_seconds, "step")},
        np.broadcast_to(step.update[shard][:stages], stages), late,
    )  # fmt: skip


def _sent(work: Work, when: str, stage: int, shard: int) -> list[Sending]:
    """What a stage sends in one pass of a micro-batch, or once a step."""
    pass_, elsewhere = ("backward", True) if when == "input" else (when, False)
    step = work.block.step
    sends_again = step.repeats[work.row] > 1 and pass_ == "backward"
    place = longer_by(int(step.recompute[work.row])) if when == "step" else OTHER.get(pass_, "")
    elsewhere = elsewhere or when == "step"
    sendings = []
    for message, _ in work.messages:
        if message.when == pass_:
            part = (
                message.seconds[shard, stage],
                (message.left(place) if elsewhere else message.exposed)[shard, stage],
            )
        elif sends_again and message.when == "forward" and not message.stays:
            part = message.seconds[shard, stage], message.left("again")[shard, stage]
        elif message.when == "border" and pass_ in ("forward", "backward"):
            ahead = np.broadcast_to(message.ahead, message.seconds.shape)[shard, stage]
            seconds, exposed = message.seconds[shard, stage], message.exposed[shard, stage]
            behind = seconds - ahead, exposed - ahead
            part = (ahead, ahead) if pass_ == "forward" else behind
        else:
            continue
        if part[0] > 0:
            sendings.append(Sending(message.what, float(part[0]), float(part[1])))
    return sendings

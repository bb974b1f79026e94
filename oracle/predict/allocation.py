"""One iteration on a stage, tensor by tensor: what is allocated and freed when.

The schedule's turns are played with the seconds of the prediction (`oracle.predict.trace`); in each
the stage's rows run one after the other. What is allocated: weights, gradients and the optimizer's
state all along; units of weights that are gathered while a turn runs; what a row keeps, from its
pass forward until it runs back, or from when its unit is made again; gradients of activations while
rows run back that want them; gradients of weights on their way; what an update takes.
`oracle.predict.memory` has the most of it in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oracle.models.shard import Array
from oracle.predict.estimate import Estimate
from oracle.predict.memory import KINDS
from oracle.predict.scripts import Stage, Tensor
from oracle.predict.trace import Trace, trace
from oracle.predict.workload import Workload, rows_of, workload
from oracle.spec.document import refusal

MOST = 2**22  # allocations that are played
TURNS = 2**17  # and passes, of all stages


@dataclass(frozen=True, eq=False)
class Timeline:
    """The allocations of a stage in order: at each event one tensor comes or goes."""

    stage: int
    stages: int  # that there are
    seconds: NDArray[np.float64]  # of each event
    slot: NDArray[np.int64]  # the tensor
    micro: NDArray[np.int64]  # and the micro-batch that it is of; -1 where it is of all
    comes: NDArray[np.bool_]
    turn: NDArray[np.int64]  # during which turn, in the stage's order; -1 before and after
    turns: tuple[tuple[str, int, int], ...]  # kind, micro-batch and chunk of each
    tensors: tuple[Tensor, ...]
    end: float  # seconds of the iteration

    @cached_property
    def change(self) -> Array:
        """Bytes by which each event changes what is allocated."""
        size = np.array([tensor.nbytes for tensor in self.tensors])
        return np.where(self.comes, size[self.slot], -size[self.slot])

    def level(self, kind: str) -> Array:
        """Bytes of a kind after each event."""
        of_kind = np.array([tensor.kind == kind for tensor in self.tensors])
        return np.cumsum(self.change * of_kind[self.slot])

    @cached_property
    def levels(self) -> dict[str, Array]:
        """The same of all kinds that there are."""
        present = {tensor.kind for tensor in self.tensors}
        return {kind: self.level(kind) for kind in KINDS if kind in present}

    @cached_property
    def total(self) -> Array:
        """Bytes after each event."""
        return np.sum(list(self.levels.values()), axis=0)  # type: ignore[no-any-return]

    @property
    def peak(self) -> int:
        """The first event after which most is allocated."""
        most_bytes = float(self.total.max())
        return int(np.argmax(self.total >= most_bytes * (1 - 1e-12)))

    def alive(self, event: int) -> list[tuple[Tensor, int]]:
        """Tensors that are there after an event, with how many of each: micro-batches, buffers."""
        upto = slice(0, event + 1)
        count = np.bincount(self.slot[upto], np.where(self.comes[upto], 1, -1), len(self.tensors))
        return [(self.tensors[i], round(count[i])) for i in np.flatnonzero(count > 0.5).tolist()]

    def during(self, event: int) -> str:
        """What the stage does at an event, in words."""
        number = int(self.turn[event])
        if number < 0:
            return "the update"
        kind, micro, _ = self.turns[number]
        chunks = len({chunk for _, _, chunk in self.turns})
        chunk_words = f", chunk {self.turns[number][2] + 1} of {chunks}" if chunks > 1 else ""
        return f"{WORDS[kind]} of micro-batch {micro + 1}{chunk_words}"


WORDS = {"forward": "the pass forward", "backward": "the pass back",
         "input": "the gradient of the input", "weight": "the gradient of the weights"}  # fmt: skip


def workload_of(estimate: Estimate, row: int = 0) -> Workload:
    """The shard and stages of one plan, cut as the estimate has them."""
    work, options = estimate.work[row], estimate.options
    model = estimate.model.under(options.software.kernels)
    system = estimate.machine("memory over time", row)
    return workload(rows_of(model, system, work.plan, options), options, work.edges)


def timeline(estimate: Estimate, row: int = 0, stage: int | None = None) -> Timeline:
    """One plan's allocations on a stage, the one that needs most if none is named."""
    if estimate.options.ideal:
        reason = "under ideal assumptions all is there all the time"
        raise refusal("memory", reason, "leave `--ideal` out")
    load, steps = workload_of(estimate, row), trace(estimate.work[row])
    stage_number = int(estimate.stage[row]) if stage is None else stage
    if not 0 <= stage_number < steps.stages:
        raise refusal("memory", f"there is no stage {stage_number}", f"0 to {steps.stages - 1}")
    turns = 2 * steps.stages * steps.micro_batches * steps.chunks
    if turns > TURNS:
        raise refusal("memory", f"{turns:,} passes of micro-batches are too many to play",
                      "a plan with fewer micro-batches")  # fmt: skip
    try:
        _ = steps.spans
    except ValueError as error:
        raise refusal("memory", str(error)) from None
    words, work = chosen(estimate, row), estimate.work[row]
    lead = float(work.block.step.lead[work.row, stage_number])
    stage_played = Stage(load, stage_number, steps.schedule, estimate.options, words, lead)
    return _played(stage_played, steps)


def chosen(estimate: Estimate, row: int = 0) -> tuple[str, ...]:
    """What each unit of the model does with its activations, where units choose to remake any."""
    work = estimate.work[row]
    words = () if work.block.choice is None else work.block.choice.words(work.at)
    if set(words) - {"keep", "recompute"}:
        raise refusal("memory", "activations that leave the device for a while are not played",
                      "`recompute:best` without `offload:activations`")  # fmt: skip
    return words if "recompute" in words else ()


def _played(stage: Stage, steps: Trace) -> Timeline:
    """The scripts of a stage's turns, one after the other."""
    number_of_stage = stage.stage
    spans = [span for span in steps.spans if span.stage == number_of_stage]
    kinds = dict.fromkeys((span.turn.kind, span.turn.chunk) for span in spans)
    scripts = {key: stage.script(*key) for key in kinds}
    events = sum(len(scripts[span.turn.kind, span.turn.chunk].at) for span in spans)
    if events > MOST:
        raise refusal("memory", f"{events:,} allocations on a stage are too many to play",
                      "a plan with fewer micro-batches")  # fmt: skip
    stay = [slot for slot in stage.weights() if slot is not None]
    parts = [_events(np.zeros(len(stay)), stay, np.ones(len(stay)))]
    for number, span in enumerate(spans):
        turn_script = scripts[span.turn.kind, span.turn.chunk]
        when = span.start + np.array(turn_script.at) / (turn_script.clock or 1.0) * (
            span.end - span.start
        )
        parts.append(
            _events(when, turn_script.slot, np.array(turn_script.comes), span.turn.micro, number)
        )
    begin = float(steps.done[number_of_stage]) + sum(
        turn_script.exposed for turn_script in steps.sent["step"][number_of_stage]
    )
    end = begin + float(steps.update[number_of_stage])
    last = stage.standing("update")
    if last is not None:
        parts.append(_events(np.array([begin, end]), [last, last], np.array([1, 0])))
    seconds, slot, comes, micro, turn = map(np.concatenate, zip(*parts, strict=True))
    turns = tuple((span.turn.kind, span.turn.micro, span.turn.chunk) for span in spans)
    tensors, end = tuple(stage.tensors), max(end, steps.end)
    return Timeline(
        number_of_stage, steps.stages, seconds, slot, micro, comes, turn, turns, tensors, end
    )


def _events(
    when: Array, slots: list[int], comes: Array, micro: int = -1, turn: int = -1
) -> tuple[Array, ...]:
    """Columns of some events: seconds, tensor, whether it comes, micro-batch, turn."""
    size = len(slots)
    return (when, np.array(slots, int), comes.astype(bool), np.full(size, micro),
            np.full(size, turn))  # fmt: skip

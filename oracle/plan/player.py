"""A player of a pipeline's schedule: when each turn starts and ends, for many plans at once.

The player starts each turn as soon as its stage is free and what it needs is there. The order is
the same whatever the seconds, so it is found once, and the seconds may be columns of plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracle.plan.schedule import KINDS, ROUNDS, SCHEDULES, Turn, needs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST = 2**22  # ends that are kept at once


class Span(NamedTuple):
    """A turn as it was played: on which stage, from when to when."""

    stage: int
    turn: Turn
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Walk:
    """The turns of all stages so that each comes after all it waits for, and in waves.

    No turn of a wave waits for another of it.
    """

    waves: list[tuple[int, int]]  # begin and end of each among the turns
    number: Ints  # (turns,) of each among those of its stage
    box: Ints  # (turns,) kind * stages + stage
    before: Ints  # (turns, few): one more than what must have ended, 0 where nothing must
    last: Ints  # (stages,) the last turn of each

    def ends(self, seconds: Floats) -> Floats:
        """When each turn ends, (turns, plans); of `seconds` there is a row for each box."""
        turn_ends = np.zeros((1 + len(self.box), seconds.shape[1]))
        for begin, end in self.waves:
            start = turn_ends[self.before[begin:end]].max(axis=1)
            turn_ends[1 + begin : 1 + end] = start + seconds[self.box[begin:end]]
        return turn_ends[1:]

    def starts(self, ends: Floats) -> Floats:
        """When each turn starts."""
        ends_and_start: Floats = np.concatenate([np.zeros((1, ends.shape[1])), ends])
        turn_starts: Floats = ends_and_start[self.before].max(axis=1)
        return turn_starts


@lru_cache(maxsize=64)
def walk(name: str, stages: int, micro_batches: int, chunks: int) -> Walk:
    """How a schedule is walked; ValueError where its turns lock up."""
    plan = SCHEDULES[name]
    if plan.chunks not in (None, chunks):
        raise ValueError(f"{name} orders stages of {plan.chunks} chunks, not of {chunks}")
    if not plan.fits(stages, micro_batches, chunks):
        raise ValueError(f"{micro_batches} micro-batches are not a multiple of {stages} stages")
    waiting = [_units(plan.order(stage, stages, micro_batches, chunks)) for stage in range(stages)]
    next_unit, last_turn = (
        [0] * stages,
        [0] * stages,
    )  # units begun, and the last turn, of each stage
    done: dict[tuple[str, int, int], int] = {}  # (kind, micro-batch, place) -> one more than which
    box: list[int] = []
    before: list[list[int]] = []
    wave = [0]  # of each turn, by one more than which
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            while next_unit[stage] < len(waiting[stage]):
                unit = waiting[stage][next_unit[stage]]
                places = [plan.place(turn.chunk, stage, stages) for turn in unit]
                needed = {key for turn, place in zip(unit, places, strict=True)
                          for key in needs(turn, place, stages * chunks)}  # fmt: skip
                if not needed <= done.keys():
                    break
                rows = [last_turn[stage], *(done[key] for key in needed)]
                last = len(box) + len(unit)
                for turn, place in zip(unit, places, strict=True):
                    box.append(KINDS.index(turn.kind) * stages + stage)
                    before.append(rows)
                    wave.append(1 + max(wave[row] for row in rows))
                    rows = [len(box)]
                    for kind in turn.makes:
                        done[kind, turn.micro, place] = last
                last_turn[stage] = last
                next_unit[stage] += 1
                moved = True
    if any(next_unit[stage] < len(waiting[stage]) for stage in range(stages)):
        raise ValueError(f"{stages} stages cannot run {micro_batches} micro-batches by {name}")
    return _sorted(np.array(box), before, np.array(wave), np.array(last_turn))


def _units(turns: list[Turn]) -> list[list[Turn]]:
    """Turns that are joined, together."""
    units: list[list[Turn]] = []
    for turn in turns:
        if turn.joined:
            units[-1].append(turn)
        else:
            units.append([turn])
    return units


def _sorted(box: Ints, before: list[list[int]], wave: Ints, last_turn: Ints) -> Walk:
    """Turns by wave, with their rows as they then are."""
    order = np.argsort(wave[1:], kind="stable")
    row = np.zeros(len(wave), int)  # one more than where each turn goes
    row[1 + order] = 1 + np.arange(len(order))
    ends = np.cumsum(np.bincount(wave[1:])[1:]).tolist()
    widest = max(map(len, before))
    padded = np.array([rows + [0] * (widest - len(rows)) for rows in before])
    number, stage = np.zeros(len(box), int), box % len(last_turn)
    for stage_number in range(len(last_turn)):
        number[stage == stage_number] = np.arange(np.count_nonzero(stage == stage_number))
    return Walk(
        list(zip([0, *ends[:-1]], ends, strict=True)), number[order], box[order],
        row[padded[order]], row[last_turn] - 1,
    )  # fmt: skip


def play(
    name: str, stages: int, micro_batches: int, chunks: int, seconds: Callable[[int, Turn], float]
) -> list[Span]:
    """Every turn with its start and end; ValueError where the turns of a schedule lock up.

    `seconds` of a turn hold the transfer that it waits for, and go by its stage and kind.
    """
    steps = walk(name, stages, micro_batches, chunks)
    orders = [SCHEDULES[name].order(stage, stages, micro_batches, chunks)
              for stage in range(stages)]  # fmt: skip
    turns = [(int(box) % stages, int(number))
             for box, number in zip(steps.box, steps.number, strict=True)]  # fmt: skip
    box_seconds = np.zeros((len(KINDS) * stages, 1))
    for box, (stage, number) in zip(steps.box, turns, strict=True):
        box_seconds[box] = seconds(stage, orders[stage][number])
    ends = steps.ends(box_seconds)
    times = zip(turns, steps.starts(ends)[:, 0].tolist(), ends[:, 0].tolist(), strict=True)
    return [Span(stage, orders[stage][k], start, end) for (stage, k), start, end in times]


def finish(name: str, micro_batches: int, chunks: int, seconds: Mapping[str, Floats]) -> Floats:
    """When each stage has ended its last turn, (plans, stages).

    `seconds` of a micro-batch's pass through all chunks of each stage, by kind of turn. While
    micro-batches are few, every turn is played. Each one more takes as long as one did among the
    last of them, or as the slowest stage works on it where that is longer.
    """
    chunk_seconds = (
        np.stack([seconds[kind] for kind in KINDS], axis=0) / chunks
    )  # (kinds, plans, stages)
    stages, played_batches = chunk_seconds.shape[2], ROUNDS * chunk_seconds.shape[2]
    if micro_batches <= played_batches:
        return _played(name, micro_batches, chunks, chunk_seconds)
    late, early = (
        _played(name, played_batches - back, chunks, chunk_seconds) for back in (0, stages)
    )
    work = (seconds["forward"] + seconds["backward"]).max(axis=-1)
    more: Floats = np.maximum((late.max(axis=-1) - early.max(axis=-1)) / stages, work)
    stage_ends: Floats = late + ((micro_batches - played_batches) * more)[:, None]
    return stage_ends


def _played(name: str, micro_batches: int, chunks: int, chunk_seconds: Floats) -> Floats:
    kinds, plans, stages = chunk_seconds.shape
    steps = walk(name, stages, micro_batches, chunks)
    rows = chunk_seconds.transpose(0, 2, 1).reshape(kinds * stages, plans)
    width = max(1, MOST // (1 + len(steps.box)))
    parts = [
        steps.ends(rows[:, first_plan : first_plan + width])[steps.last]
        for first_plan in range(0, plans, width)
    ]
    stage_ends: Floats = np.concatenate(parts, axis=1).T
    return stage_ends

"""The order of a pipeline: the turns of each stage, and a player that walks them.

A schedule is one function: it lists the turns of one stage, by the number of stages, of
micro-batches and of chunks a stage holds. The player starts each turn as soon as its stage is free
and what it needs is there, so it says when everything happens for any seconds of the turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Turn(NamedTuple):
    """One pass of one micro-batch through one of a stage's chunks."""

    kind: str  # "forward" or "backward"
    micro: int
    chunk: int


class Span(NamedTuple):
    """A turn as it was played: on which stage, from when to when."""

    stage: int
    turn: Turn
    start: float
    end: float


Order = Callable[[int, int, int, int], list[Turn]]  # (stage, stages, micro-batches, chunks)
SCHEDULES: dict[str, Order] = {}


def schedule(name: str) -> Callable[[Order], Order]:
    """Enter a function under the name that plans call it by."""

    def enter(order: Order) -> Order:
        SCHEDULES[name] = order
        return order

    return enter


@schedule("gpipe")
def gpipe(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Turn]:
    """All passes forward, then all back [huang2019, §2.3]."""
    total = micro_batches * chunks
    ahead = [_turn("forward", k, stages, chunks) for k in range(total)]
    return ahead + [_turn("backward", k, stages, chunks) for k in range(total)]


@schedule("1f1b")
def one_forward_one_backward(
    stage: int, stages: int, micro_batches: int, chunks: int
) -> list[Turn]:
    """A few passes ahead, then forward and backward in turn [narayanan2021, §2.2].

    With chunks, a micro-batch a stage goes through one chunk before any goes through the next.

    >>> "".join(t.kind[0] + str(t.micro) for t in one_forward_one_backward(0, 2, 3, 1))
    'f0f1b0f2b1b2'
    """
    total = micro_batches * chunks
    ahead = (stages - 1 - stage) * (1 if chunks == 1 else 2) + (chunks - 1) * stages
    ahead = min(total, ahead)
    found = [_turn("forward", k, stages, chunks) for k in range(ahead)]
    for k in range(ahead, total):
        found.append(_turn("forward", k, stages, chunks))
        found.append(_turn("backward", k - ahead, stages, chunks))
    return found + [_turn("backward", k, stages, chunks) for k in range(total - ahead, total)]


def _turn(kind: str, k: int, stages: int, chunks: int) -> Turn:
    """The k-th pass of a kind: `stages` micro-batches through a chunk, then through the next."""
    if chunks == 1:
        return Turn(kind, k, 0)
    group, inside = divmod(k, stages * chunks)
    chunk = inside // stages
    micro = group * stages + inside % stages
    return Turn(kind, micro, chunk if kind == "forward" else chunks - 1 - chunk)


def play(
    name: str, stages: int, micro_batches: int, chunks: int, seconds: Callable[[int, Turn], float]
) -> list[Span]:
    """Every turn with its start and end; ValueError where the turns of a schedule lock up.

    A pass forward waits for the chunk before, a pass back for the chunk after and for the same
    chunk's pass forward. `seconds` of a turn hold the transfer that it waits for.
    """
    waiting = [SCHEDULES[name](stage, stages, micro_batches, chunks) for stage in range(stages)]
    if not chunks == 1 and micro_batches % stages:
        raise ValueError(f"{micro_batches} micro-batches are not a multiple of {stages} stages")
    at, free = [0] * stages, [0.0] * stages
    done: dict[tuple[str, int, int], float] = {}  # (kind, micro-batch, place along the model)
    found: list[Span] = []
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            while at[stage] < len(waiting[stage]):
                turn = waiting[stage][at[stage]]
                place = turn.chunk * stages + stage
                needs = [done.get(key) for key in _needs(turn, place, stages * chunks)]
                if None in needs:
                    break
                start = max([free[stage], *(end for end in needs if end is not None)])
                end = start + seconds(stage, turn)
                found.append(Span(stage, turn, start, end))
                done[turn.kind, turn.micro, place] = free[stage] = end
                at[stage] += 1
                moved = True
    if any(at[stage] < len(waiting[stage]) for stage in range(stages)):
        raise ValueError(f"{stages} stages cannot run {micro_batches} micro-batches by {name}")
    return found


def _needs(turn: Turn, place: int, places: int) -> Iterator[tuple[str, int, int]]:
    """The turns that must end before one can start."""
    if turn.kind == "forward":
        if place > 0:
            yield "forward", turn.micro, place - 1
    else:
        yield "forward", turn.micro, place
        if place < places - 1:
            yield "backward", turn.micro, place + 1


def most_in_flight(name: str, stage: int, stages: int, micro_batches: int, chunks: int) -> float:
    """Micro-batches whose activations a stage keeps at once, at most; a chunk is a part of one.

    >>> [most_in_flight("1f1b", stage, 4, 8, 1) for stage in range(4)]
    [4.0, 3.0, 2.0, 1.0]
    """
    kept = most = 0
    for turn in SCHEDULES[name](stage, stages, micro_batches, chunks):
        kept += 1 if turn.kind == "forward" else -1
        most = max(most, kept)
    return most / chunks

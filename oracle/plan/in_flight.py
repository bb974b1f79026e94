"""Micro-batches in flight: what a stage keeps when each of its turns begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oracle.plan.mesh import distinct
from oracle.plan.schedule import ROUNDS, SCHEDULES, Turn

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Beside:
    """Of turns of one kind, the distinct states that a stage is in when they begin.

    Of a pass forward that one back follows nothing is said: there is as much when that begins.

    What is in flight but for the micro-batch of the turn: micro-batches of each chunk that went
    forward, and those of which the gradient of the input is there and that of the weights is not.
    """

    chunk: Ints  # (states,) that the turn goes through
    kept: NDArray[np.float64]  # (states, chunks)
    made: NDArray[np.float64]  # (states, chunks)


@lru_cache(maxsize=512)
def beside(name: str, stages: int, micro_batches: int, chunks: int) -> list[dict[str, Beside]]:
    """Of each stage, by the kind of turn.

    Beyond a few micro-batches a stage, each one more adds what the last ones added.

    >>> [float(found["backward"].kept.max()) for found in beside("1f1b", 4, 8, 1)]
    [3.0, 2.0, 1.0, 0.0]
    """
    few = ROUNDS * stages
    if few >= micro_batches:
        return [_states(name, stage, stages, micro_batches, chunks) for stage in range(stages)]
    found = []
    for stage in range(stages):
        late, early = (_states(name, stage, stages, few - d, chunks) for d in (0, stages))
        more = (_most(late) - _most(early)) / stages / chunks * (micro_batches - few)
        found.append({kind: Beside(one.chunk, one.kept + more, one.made)
                      for kind, one in late.items()})  # fmt: skip
    return found


@dataclass(frozen=True, eq=False)
class OfStages:
    """Of turns of one kind, the states of all stages; a stage with fewer has one several times."""

    some: NDArray[np.bool_]  # (stages,) that have any
    chunk: Ints  # (stages, states)
    kept: NDArray[np.float64]  # (stages, chunks, states)
    made: NDArray[np.float64]  # (stages, chunks, states)


@lru_cache(maxsize=512)
def of_stages(name: str, stages: int, micro_batches: int, chunks: int) -> dict[str, OfStages]:
    """`beside` of all stages at once, by the kind of turn."""
    every = beside(name, stages, micro_batches, chunks)
    found = {}
    for kind in dict.fromkeys(kind for states in every for kind in states):
        each = [states.get(kind) for states in every]
        most = max(len(one.chunk) for one in each if one is not None)
        some = np.array([one is not None for one in each])
        chunk = np.zeros((stages, most), int)
        kept, made = np.zeros((2, stages, chunks, most))
        for stage, one in enumerate(each):
            if one is not None:
                at = np.minimum(np.arange(most), len(one.chunk) - 1)
                chunk[stage], kept[stage], made[stage] = (
                    one.chunk[at],
                    one.kept[at].T,
                    one.made[at].T,
                )
        found[kind] = OfStages(some, chunk, kept, made)
    return found


def most_in_flight(name: str, stage: int, stages: int, micro_batches: int, chunks: int) -> float:
    """Micro-batches whose activations a stage keeps at once, at most; a chunk is a part of one.

    They are all kept until the weights have their gradient: what the gradient of the input alone
    has used and could free is still counted.

    >>> [most_in_flight("1f1b", stage, 4, 8, 1) for stage in range(4)]
    [4.0, 3.0, 2.0, 1.0]
    """
    return (_most(beside(name, stages, micro_batches, chunks)[stage]) + 1) / chunks


def most_unfinished(name: str, stage: int, stages: int, micro_batches: int, chunks: int) -> float:
    """Micro-batches that have the gradient of the input and wait for that of the weights, at most.

    >>> [most_unfinished("zb-h1", stage, 4, 8, 1) for stage in range(4)]
    [1.0, 2.0, 3.0, 4.0]
    """
    late = beside(name, stages, micro_batches, chunks)[stage].get("weight")
    return (float(late.made.sum(axis=-1).max()) + 1) / chunks if late else 0.0


def _most(states: dict[str, Beside]) -> float:
    """Chunks that a stage keeps, at most."""
    return float(max((one.kept + one.made).sum(axis=-1).max() for one in states.values()))


def _states(name: str, stage: int, stages: int, S: int, chunks: int) -> dict[str, Beside]:
    plan, total = SCHEDULES[name], S * chunks
    if plan.ahead is None:
        return _walked(plan.order(stage, stages, S, chunks), chunks)
    ahead = plan.ahead(stage, stages, S, chunks)
    forward = np.arange(total) % (stages * chunks) // stages if chunks > 1 else np.zeros(total, int)
    turn, own = chunks - 1 - forward, np.eye(chunks)
    went, back = (np.concatenate([np.zeros((1, chunks)), np.cumsum(own[way], axis=0)])
                  for way in (forward, turn))  # fmt: skip
    gone = np.minimum(np.arange(total) + ahead + 1, total)  # forward, when one back begins
    kept = went[gone] - back[:-1] - own[turn]
    return {"backward": _distinct(np.hstack([turn[:, None], kept, 0 * kept]))}


def _walked(turns: Iterable[Turn], chunks: int) -> dict[str, Beside]:
    kept, made = [0] * chunks, [0] * chunks
    seen: dict[str, list[list[int]]] = {}
    last: list[int] = []
    for kind, _, chunk, _ in turns:
        if kind != "forward":
            (made if kind == "weight" else kept)[chunk] -= 1
        if kind == "weight" and last:
            seen.setdefault("forward", []).append(last)
        now = [chunk, *kept, *made]
        last = now if kind == "forward" else []
        if kind == "forward":
            kept[chunk] += 1
        else:
            seen.setdefault(kind, []).append(now)
        if kind == "input":
            made[chunk] += 1
    return {kind: _distinct(np.array(rows, float)) for kind, rows in seen.items()}


def _distinct(rows: NDArray[np.float64]) -> Beside:
    rows = rows[distinct(rows)[0]]
    kept, made = np.hsplit(rows[:, 1:], 2)
    return Beside(rows[:, 0].astype(int), kept, made)

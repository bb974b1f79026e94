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
    enough = ROUNDS * stages
    if enough >= micro_batches:
        return [_states(name, stage, stages, micro_batches, chunks) for stage in range(stages)]
    by_stage = []
    for stage in range(stages):
        late, early = (_states(name, stage, stages, enough - d, chunks) for d in (0, stages))
        more = (_most(late) - _most(early)) / stages / chunks * (micro_batches - enough)
        by_stage.append({kind: Beside(states.chunk, states.kept + more, states.made)
                      for kind, states in late.items()})  # fmt: skip
    return by_stage


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
    by_kind = {}
    for kind in dict.fromkeys(kind for states in every for kind in states):
        of_kind = [states.get(kind) for states in every]
        widest = max(
            len(stage_states.chunk) for stage_states in of_kind if stage_states is not None
        )
        has_kind = np.array([stage_states is not None for stage_states in of_kind])
        chunk = np.zeros((stages, widest), int)
        kept_states, made_states = np.zeros((2, stages, chunks, widest))
        for stage, stage_states in enumerate(of_kind):
            if stage_states is not None:
                places = np.minimum(np.arange(widest), len(stage_states.chunk) - 1)
                chunk[stage], kept_states[stage], made_states[stage] = (
                    stage_states.chunk[places],
                    stage_states.kept[places].T,
                    stage_states.made[places].T,
                )
        by_kind[kind] = OfStages(has_kind, chunk, kept_states, made_states)
    return by_kind


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
    return float(
        max((of_kind.kept + of_kind.made).sum(axis=-1).max() for of_kind in states.values())
    )


def _states(name: str, stage: int, stages: int, S: int, chunks: int) -> dict[str, Beside]:
    plan, total = SCHEDULES[name], S * chunks
    if plan.ahead is None:
        return _walked(plan.order(stage, stages, S, chunks), chunks)
    ahead = plan.ahead(stage, stages, S, chunks)
    forward = np.arange(total) % (stages * chunks) // stages if chunks > 1 else np.zeros(total, int)
    turn, one_chunk = chunks - 1 - forward, np.eye(chunks)
    went, back = (np.concatenate([np.zeros((1, chunks)), np.cumsum(one_chunk[way], axis=0)])
                  for way in (forward, turn))  # fmt: skip
    gone = np.minimum(np.arange(total) + ahead + 1, total)  # forward, when one back begins
    kept_states = went[gone] - back[:-1] - one_chunk[turn]
    return {"backward": _distinct(np.hstack([turn[:, None], kept_states, 0 * kept_states]))}


def _walked(turns: Iterable[Turn], chunks: int) -> dict[str, Beside]:
    kept_chunks, made_chunks = [0] * chunks, [0] * chunks
    states_by_kind: dict[str, list[list[int]]] = {}
    last: list[int] = []
    for kind, _, chunk, _ in turns:
        if kind != "forward":
            (made_chunks if kind == "weight" else kept_chunks)[chunk] -= 1
        if kind == "weight" and last:
            states_by_kind.setdefault("forward", []).append(last)
        now = [chunk, *kept_chunks, *made_chunks]
        last = now if kind == "forward" else []
        if kind == "forward":
            kept_chunks[chunk] += 1
        else:
            states_by_kind.setdefault(kind, []).append(now)
        if kind == "input":
            made_chunks[chunk] += 1
    return {kind: _distinct(np.array(rows, float)) for kind, rows in states_by_kind.items()}


def _distinct(rows: NDArray[np.float64]) -> Beside:
    rows = rows[distinct(rows)[0]]
    kept_states, made_states = np.hsplit(rows[:, 1:], 2)
    return Beside(rows[:, 0].astype(int), kept_states, made_states)

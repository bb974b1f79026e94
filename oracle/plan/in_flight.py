"""Micro-batches in flight: what a stage keeps when each of its turns begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from oracle.plan.schedule import ROUNDS, SCHEDULES, Turn

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Beside:
    """Of turns of one kind, the distinct states that a stage is in when they begin.

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

    >>> [found["backward"].kept.max() for found in beside("1f1b", 4, 8, 1)]
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


def _most(states: dict[str, Beside]) -> float:
    """Chunks that a stage keeps, at most."""
    return float(max((one.kept + one.made).sum(axis=-1).max() for one in states.values()))


def _states(name: str, stage: int, stages: int, S: int, chunks: int) -> dict[str, Beside]:
    plan, total = SCHEDULES[name], S * chunks
    if plan.ahead is None:
        return _walked(plan.order(stage, stages, S, chunks), chunks)
    ahead = plan.ahead(stage, stages, S, chunks)
    forward = np.arange(total) % (stages * chunks) // stages if chunks > 1 else np.zeros(total, int)
    went, back = (np.concatenate([np.zeros((1, chunks), int), np.cumsum(one, axis=0)])
                  for one in (np.eye(chunks, dtype=int)[way]
                              for way in (forward, chunks - 1 - forward)))  # fmt: skip
    begun = np.arange(total)
    own = np.eye(chunks, dtype=int)
    returned = np.maximum(begun - ahead, 0)  # passes back that are over when a pass forward begins
    gone = np.minimum(begun + ahead + 1, total)  # and forward, when one back does
    turn = chunks - 1 - forward
    none = np.zeros((total, chunks), int)
    return {
        "forward": _distinct(forward, went[begun] - back[returned], none),
        "backward": _distinct(turn, went[gone] - back[begun] - own[turn], none),
    }


def _walked(turns: Iterable[Turn], chunks: int) -> dict[str, Beside]:
    kept, made = [0] * chunks, [0] * chunks
    seen: dict[str, list[list[int]]] = {}
    for kind, _, chunk, _ in turns:
        if kind != "forward":
            (made if kind == "weight" else kept)[chunk] -= 1
        seen.setdefault(kind, []).append([chunk, *kept, *made])
        if kind == "forward":
            kept[chunk] += 1
        if kind == "input":
            made[chunk] += 1
    states = {kind: np.array(rows) for kind, rows in seen.items()}
    return {kind: _distinct(rows[:, 0], rows[:, 1 : 1 + chunks], rows[:, 1 + chunks :])
            for kind, rows in states.items()}  # fmt: skip


def _distinct(chunk: Ints, kept: Ints, made: Ints) -> Beside:
    rows = np.unique(np.hstack([chunk[:, None], kept, made]), axis=0)
    chunks = kept.shape[1]
    return Beside(rows[:, 0], rows[:, 1 : 1 + chunks].astype(float),
                  rows[:, 1 + chunks :].astype(float))  # fmt: skip

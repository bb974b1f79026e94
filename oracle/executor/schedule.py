"""Schedule of a pipeline: the order in which a stage runs its forward and backward passes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward or backward pass of a micro-batch through one of a stage's chunks."""

    forward: bool
    chunk: int
    micro_batch: int


def schedule(stage: int, stages: int, chunks: int, micro_batches: int, gpipe: bool) -> list[Pass]:
    """The passes of a stage in order: GPipe, or 1F1B with interleaving [narayanan2021, §2.2].

    1F1B runs a few forward passes ahead, then one forward and one backward pass in turn, then the
    rest of the backward passes; GPipe runs all forward passes first. With several chunks a stage,
    as many micro-batches as there are stages go through one chunk before the next.

    >>> [("F" if p.forward else "B") + str(p.micro_batch) for p in schedule(0, 2, 1, 3, False)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    total, turn = micro_batches * chunks, stages * chunks

    def nth(forward: bool, k: int) -> Pass:
        chunk = k % turn // stages
        micro_batch = k // turn * stages + k % stages
        return Pass(forward, chunk if forward else chunks - 1 - chunk, micro_batch)

    warm_up = (stages - 1 - stage) * (1 if chunks == 1 else 2) + (chunks - 1) * stages
    ahead = total if gpipe else min(total, warm_up)
    found = [nth(True, k) for k in range(ahead)]
    for k in range(ahead, total):
        found += [nth(True, k), nth(False, k - ahead)]
    return found + [nth(False, k) for k in range(total - ahead, total)]

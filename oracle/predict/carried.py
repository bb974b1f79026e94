"""Bytes of the tensors that cross between stages, on the devices where they wait.

What the last row of a stage makes is counted where it is made, as in a chain. Any other tensor that
crosses is held where it is read too, from its receipt until its gradient is made. Before that it
waits where it is made, for each stage in between one more of them, until the stage that reads it
turns to it; and its gradient waits as long for the stage that made it.
"""

from __future__ import annotations

import numpy as np

from oracle.models.shard import Array
from oracle.plan.stages import Stages


def received(made: Array, stages: Stages) -> Array:
    """(kinds, chunks) bytes of a micro-batch in flight that chunks were sent past others."""
    found, total = stages.crossed, np.zeros((len(made), stages.chunks))
    for at in np.flatnonzero(found.sent[0] & ~found.next[0]).tolist():
        total[:, found.target[0, at]] += made[:, found.row[0, at]]
    return total


def given(made: Array, kept: Array, samples: Array, stages: Stages) -> Array:
    """(kinds, units) bytes of a micro-batch in flight that blocks made again were given.

    A tensor counts once in a chunk, with the first of its blocks that reads it: the last that wants
    it when they run back; not where a unit of the chunk that is not made again keeps it. Of a block
    that is cut into several units the first has them all.
    """
    model, total = stages.model, np.zeros((len(made), len(stages.ends)))
    links, number = model.pieces.links, blocks(stages)
    remade = stages.counts @ model.blocks > 0
    begins = np.flatnonzero(np.diff(number, prepend=-1))[number]  # the first unit of each block
    chunk = np.repeat(np.arange(stages.chunks), np.diff(stages.cuts[0]))
    passed = (number[links.maker] != number[links.reader]) & remade[links.reader]
    first: dict[tuple[int, int, int], int] = {}
    for row, maker, reader in zip(links.row[passed].tolist(), links.maker[passed].tolist(),
                                  links.reader[passed].tolist(), strict=True):  # fmt: skip
        key = row, maker, int(chunk[reader])
        first[key] = min(first.get(key, len(number)), int(begins[reader]))
    for (row, maker, where), unit in first.items():
        stays = chunk[maker] == where and not remade[maker]
        total[:, unit] += made[:, row] - np.minimum(kept, made)[:, row] * stays
    total[:, 0] += samples * remade[0]
    return total


def blocks(stages: Stages) -> Array:
    """(units,) the block of each, counted along the model; a stage begins one."""
    begins = stages.model.pieces.begins.copy()
    begins[stages.cuts[0, :-1]] = True
    return np.asarray(np.cumsum(begins) - 1)


def waiting(made: Array, kept: Array, segments: Array, stages: Stages) -> tuple[Array, Array]:
    """(kinds, p) bytes that wait for stages far ahead or behind: of tensors, and of gradients."""
    found = stages.crossed
    far = np.maximum(found.target - found.source - 1, 0)
    times = np.minimum(far, segments * np.ones((1, 1)))
    ahead = found.values(np.maximum(made - kept, 0.0)) * times * found.last
    return found.at(ahead, found.source), found.at(found.values(made) * times, found.target)

"""Bytes of the tensors that cross between stages, on the devices where they wait.

What the last row of a stage makes is counted where it is made, as in a chain. Any other tensor that
crosses is held where it is read too, from its receipt until its gradient is made. Before that it
waits where it is made, for each stage in between one more of them, until the stage that reads it
turns to it; and its gradient waits as long for the stage that made it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.plan.stages import Stages


def received(made: Array, stages: Stages) -> Array:
    """(kinds, chunks) bytes of a micro-batch in flight that chunks were sent past others."""
    found, total = stages.crossed, np.zeros((len(made), stages.chunks))
    for at in np.flatnonzero(found.sent[0] & ~found.next[0]).tolist():
        total[:, found.target[0, at]] += made[:, found.row[0, at]]
    return total


def given(made: Array, samples: Array, stages: Stages) -> Array:
    """(kinds, chunks) bytes of a micro-batch in flight that blocks made again were given.

    A tensor counts once in a chunk, however many of its blocks read it.
    """
    model, total = stages.model, np.zeros((len(made), stages.chunks))
    links, number = model.pieces.links, blocks(stages)
    remade = stages.counts @ model.blocks > 0
    chunk = np.repeat(np.arange(stages.chunks), np.diff(stages.cuts[0]))
    passed = (number[links.maker] != number[links.reader]) & remade[links.reader]
    entries = np.stack([links.row, links.maker, chunk[links.reader]], axis=-1)[passed]
    for row, _, at in np.unique(entries, axis=0).tolist():
        total[:, at] += made[:, row]
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


def made_rows(shard: Shard, model: Model) -> Array:
    """(kinds, rows) bytes of what each row makes, of a micro-batch."""
    return np.atleast_2d(shard.micro * shard.y * shard.delta * np.ones(len(model)))


@lru_cache(masks.MODELS)
def forks(model: Model) -> Array:
    """(rows, rows) of whose output the gradient is there, in part, while each row runs back.

    Those of earlier rows that later ones read too. A sum hands one gradient to all its terms
    (pytorch/pytorch, tools/autograd/derivatives.yaml: `add.Tensor`), so a row whose output it takes
    has that gradient already; where the sum drops elements out, it makes another.
    """
    found = np.zeros((len(model), len(model)))
    read: dict[tuple[int, int], list[int]] = {}  # (row, from where) -> rows that read its output
    for one in model.segments:
        for i in range(one.start, one.stop):
            for feed in model.feeds[i]:
                if feed < one.start and one.repeat > 1:  # what the copy before made
                    read.setdefault((one.stop - 1, one.start), []).append(i)
                elif feed >= 0:
                    read.setdefault((feed, feed + 1), []).append(i)
    for (made, begin), rows in read.items():
        last = max(rows)
        shared = model.rows[last].kind == "add" and not model.rows[last].extra_bytes
        for i in range(begin, last):
            found[i, made] = not (shared and i in model.feeds[last])
    return found

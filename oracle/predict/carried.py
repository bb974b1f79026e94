"""Bytes of the tensors that cross between stages, on the devices where they wait.

What the last row of a stage makes is counted where it is made, as in a chain. Any other tensor that
crosses is held where it is read too, from its receipt until its gradient is made. Before that it
waits where it is made, for each stage in between one more of them, until the stage that reads it
turns to it; and its gradient waits as long for the stage that made it.
"""

from __future__ import annotations

import numpy as np

from oracle.models.shard import Array
from oracle.plan.crossings import chunk_of
from oracle.plan.stages import Stages


def received(output_bytes: Array, stages: Stages) -> Array:
    """(kinds, chunks) bytes of a micro-batch in flight that chunks were sent past others."""
    crossed = stages.crossed
    return crossed.added(output_bytes, crossed.target, crossed.sent & ~crossed.next, stages.chunks)


def given(output_bytes: Array, kept_bytes: Array, samples: Array, stages: Stages) -> Array:
    """(kinds, units) bytes of a micro-batch in flight that blocks made again were given.

    A tensor counts once in a chunk, with the first of its blocks that reads it: the last that wants
    it when they run back; not where a unit of the chunk that is not made again keeps it. Of a block
    that is cut into several units the first has them all.
    """
    model, links = stages.model, stages.model.pieces.links
    remade, kept_output = stages.counts @ model.blocks > 0, np.minimum(kept_bytes, output_bytes)
    total = np.zeros((max(len(output_bytes), len(stages)), len(stages.ends)))
    chunks, begins = chunk_of(stages.edges, len(stages.ends)), block_begins(stages)
    for pipeline_rows, chunk, begin in zip(_of_each(total, stages), chunks, begins, strict=True):
        passed = (begin[links.maker] != begin[links.reader]) & remade[links.reader]
        first: dict[tuple[int, int, int], int] = {}
        for row, maker, reader in zip(links.row[passed].tolist(), links.maker[passed].tolist(),
                                      links.reader[passed].tolist(), strict=True):  # fmt: skip
            key = row, maker, int(chunk[reader])
            first[key] = min(first.get(key, len(begin)), int(begin[reader]))
        shard_rows = pipeline_rows if len(output_bytes) > 1 else slice(None)
        for (row, maker, reading_chunk), unit in first.items():
            stays = chunk[maker] == reading_chunk and not remade[maker]
            total[pipeline_rows, unit] += (
                output_bytes[shard_rows, row] - kept_output[shard_rows, row] * stays
            )
    total[:, 0] += samples * remade[0]
    return total


def _of_each(total: Array, stages: Stages) -> list[slice]:
    """The rows of a total that each pipeline has: its own, or all where there is one pipeline."""
    return [slice(None)] if len(stages) == 1 else [slice(i, i + 1) for i in range(len(total))]


def block_begins(stages: Stages) -> Array:
    """(plans, units) the unit with which the block of each unit begins; a stage begins one."""
    units = len(stages.ends)
    begins = np.tile(np.append(stages.model.pieces.begins, True), (len(stages), 1))
    np.put_along_axis(begins, stages.edges[:, :-1], True, axis=-1)
    first = np.where(begins[:, :units], np.arange(units), 0)
    return np.asarray(np.maximum.accumulate(first, axis=-1))


def waiting(
    output_bytes: Array, kept_bytes: Array, segments: Array, stages: Stages
) -> tuple[Array, Array]:
    """(kinds, p) bytes that wait for stages far ahead or behind: of tensors, and of gradients."""
    crossing = stages.crossed
    far = np.maximum(crossing.target - crossing.source - 1, 0)
    times = np.minimum(far, segments * np.ones((1, 1)))
    ahead = crossing.values(np.maximum(output_bytes - kept_bytes, 0.0)) * times * crossing.last
    return crossing.at(ahead, crossing.source), crossing.at(
        crossing.values(output_bytes) * times, crossing.target
    )

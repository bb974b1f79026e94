"""Bytes of each row of a micro-batch: what it keeps, makes, hands on, and wants while it runs back.

(kinds of plans, rows) each. They know nothing of stages. It names `recompute`, which says what
`operators` keeps.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.plan.strategies.recompute import share_kept


def kept_rows(shard: Shard) -> Array:
    """Bytes of a micro-batch that each row keeps."""
    if shard.model.training.forward:
        return np.zeros((*np.shape(shard.micro)[:-1], len(shard.model)))
    return np.asarray(shard.kept_size * np.ones_like(shard.batch))


def kept_by_operators(shard: Shard) -> Array:
    """The same where blocks keep what some of their matrices and attention made, and no more."""
    model, kept_bytes = shard.model, kept_rows(shard)
    output_bytes = np.where(masks.attention(model), kept_bytes, shard.micro * shard.y * shard.delta)
    inside = model.blocks & model.folded.any()
    return np.where(inside, output_bytes * share_kept(model), kept_bytes)


def made_rows(shard: Shard, model: Model) -> Array:
    """(kinds, rows) bytes of what each row makes, of a micro-batch."""
    return np.atleast_2d(shard.micro * shard.y * shard.delta * np.ones(len(model)))


def handed_rows(shard: Shard) -> Array:
    """Bytes of what a row made that those behind it alone want, gone when it runs back."""
    model = shard.model
    width = np.where(model.fed, shard.fed, shard.delta)
    return np.atleast_2d(shard.micro * shard.kept * width * handed(model) * np.ones(len(model)))


@lru_cache(masks.MODELS)
def handed(model: Model) -> Array:
    """Share of what each row keeps that is its output, where it does not want that itself."""
    is_view = model.mask(lambda row: row.kind in ("flatten", "reshape"))
    wants_output = model.mask(lambda row: "y" in row.needs)
    extra_bytes = model.column(lambda row: row.extra_kept)
    extra_bytes[0] += model.x[0] / model.repeat[0]
    # what is seen in another way is whoever's it was
    wants_output |= np.append(is_view[1:], False) | is_view
    for segment in model.segments:  # of what a block hands on every copy has its mean share
        wants_output[segment.stop - 1] |= segment.repeat > 1
    output = np.clip(model.kept - np.maximum(extra_bytes, 0.0), 0.0, None)
    return np.where(wants_output, 0.0, output / np.maximum(model.kept, 1e-30))


def moving_rows(shard: Shard) -> Array:
    """Bytes that live only while a row runs back: gradients of its two tensors, and at forks."""
    waits = shard.y * masks.moved(shard.model) @ forks(shard.model).T
    gradient_bytes = (
        shard.micro * shard.delta * ((shard.x + shard.y) * masks.moved(shard.model) + waits)
    )
    return np.atleast_2d(
        np.broadcast_to(
            gradient_bytes, np.broadcast_shapes(gradient_bytes.shape, (1, len(shard.model)))
        )
    )


def working_rows(shard: Shard, workspace: tuple[Array, Array] | None) -> Array:
    """The same with what its kernels take: backward beside gradients, or forward alone.

    While a row runs forward there is as much as when it runs back, but for the gradients. What all
    kernels share is there all the time, and is not counted here.
    """
    moving = moving_rows(shard) + shard.micro * shard.delta * shard.copied
    if not shard.model.training.forward:  # of weights, where the product does not add them up
        moving = moving + shard.w * shard.delta * masks.apart(shard.model)
    if workspace is None or shard.software.convolution.shared:
        return moving
    forward, backward = workspace
    if shard.model.training.forward:
        return np.asarray(moving + forward)
    return np.asarray(np.maximum(moving + backward, forward))


@lru_cache(masks.MODELS)
def forks(model: Model) -> Array:
    """(rows, rows) of whose output the gradient is there, in part, while each row runs back.

    Those of earlier rows that later ones read too. A sum hands one gradient to all its terms
    (pytorch/pytorch, tools/autograd/derivatives.yaml: `add.Tensor`), so a row whose output it takes
    has that gradient already; where the sum drops elements out, it makes another.
    """
    waits = np.zeros((len(model), len(model)))
    read: dict[tuple[int, int], list[int]] = {}  # (row, from where) -> rows that read its output
    for segment in model.segments:
        for i in range(segment.start, segment.stop):
            for feed in model.feeds[i]:
                if feed < segment.start and segment.repeat > 1:  # what the copy before made
                    read.setdefault((segment.stop - 1, segment.start), []).append(i)
                elif feed >= 0:
                    read.setdefault((feed, feed + 1), []).append(i)
    for (maker, begin), rows in read.items():
        last = max(rows)
        shared = model.rows[last].kind == "add" and not model.rows[last].extra_bytes
        for i in range(begin, last):
            waits[i, maker] = not (shared and i in model.feeds[last])
    return waits

"""Bytes of each row of a micro-batch: what it keeps, makes, hands on, and wants while it runs back.

(kinds of plans, rows) each. They know nothing of stages. It names `recompute`, whose kinds say
what is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.plan.strategies.recompute import (
    BEST,
    FULL,
    OPERATORS,
    SELECTIVE,
    remade_parts,
    share_kept,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Bytes of a micro-batch by row under a kind of recomputation, (kinds, rows) each."""

    kept: Array  # where nothing is made again
    rest: Array  # between the passes, in units that are made again
    own: Array  # more while the row itself runs back
    moving: Array  # gradients of its two tensors, and those that wait for others
    gone: Array  # what it made for those behind it alone
    given: Array  # its input
    output: Array  # what it makes
    again: bool  # units are made again, from their inputs
    held: Array  # share of what a stage has sent that stays there until its gradient comes

    @classmethod
    def of(cls, shard: Shard, mode: int, workspace: tuple[Array, Array] | None = None) -> Rows:
        """Under a kind of recomputation."""
        kept_bytes, none = np.atleast_2d(kept_rows(shard)), np.zeros((1, len(shard.model)))
        input_bytes = np.atleast_2d(shard.micro * shard.x * shard.delta * np.ones(len(shard.model)))
        borders = shard.software.borders
        held_share = borders.held / np.atleast_2d(shard.spread if borders.scattered else 1.0)
        return cls(
            kept_bytes, kept_bytes, none, working_rows(shard, workspace), handed_rows(shard),
            input_bytes, made_rows(shard, shard.model), False, held_share,
        ).under(shard, mode)  # fmt: skip

    def under(self, shard: Shard, mode: int) -> Rows:
        """The same under another kind than none."""
        if mode == SELECTIVE:
            outputs = shard.micro * shard.y * shard.delta  # q, k, v in and the result stay
            own_bytes = np.maximum(self.kept - outputs, 0) * masks.attention(shard.model)
            return replace(self, rest=self.kept - own_bytes, own=own_bytes)
        if mode == FULL:
            return replace(self, rest=0 * self.own, again=True)
        if mode == OPERATORS:
            return replace(self, rest=np.atleast_2d(kept_by_operators(shard)), again=True)
        if mode <= BEST:
            return self
        remade, gone, present = remade_parts(shard.model, mode)
        core_bytes, gone_bytes = self.under(shard, SELECTIVE).own * remade, self.kept * gone
        return replace(self, rest=self.kept - core_bytes - gone_bytes,
                       own=core_bytes + gone_bytes @ present.T)  # fmt: skip


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
    handed_bytes = shard.kept * shard.kept_width * handed(model)
    return np.atleast_2d(shard.micro * handed_bytes * np.ones(len(model)))


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
    if shard.software.kernels.rebased:  # four of its tensors where there are two else
        waits = waits + 2 * shard.y * masks.after_instance_norms(shard.model)
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

"""Which tensors wait for the pass back: wanted by whom, where gradients flow, as how wide numbers.

A tensor is kept once, whoever wants it: the row that made it or rows that read it. Where weights
are frozen a gradient begins with the first that is trained: what lies before it runs back nowhere
and keeps nothing (pytorch/pytorch, torch/csrc/autograd: nodes that no input needs are not made).
The first copy of a repeated block may thus keep less than those behind it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.models.build import Segment

Model: TypeAlias = Any  # whose file stands on this one
Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
COPIES = (0, 1)  # of a repeated block the first, and those behind it


def segments_of(model: Model) -> list[Segment]:
    """The segment that each row is in."""
    return [segment for segment in model.segments for _ in range(segment.start, segment.stop)]


def flowing(model: Model) -> Flags:
    """(copies, rows): whether what a row makes has a gradient, in the first copy and in others."""
    flows = np.ones((len(COPIES), len(model)), bool)
    if model.training.full:
        return flows
    flows[:] = False
    for segment in model.segments:
        for copy in COPIES:
            for i in range(segment.start, segment.stop):
                row = model.rows[i]
                flows[copy, i] = (row.weights and not row.frozen) or any(
                    _flows_in(flows, segment, copy, feed) for feed in model.feeds[i]
                )
    return flows


def _flows_in(flows: Flags, segment: Segment, copy: int, feed: int) -> bool:
    """Whether what a row of a copy is given has a gradient: the samples have none."""
    if feed >= segment.start:
        return bool(flows[copy, feed])
    if copy and segment.repeat > 1:  # what the copy before made
        return bool(flows[0, segment.stop - 1])
    return feed >= 0 and bool(flows[1, feed])


def copies_of(model: Model) -> Floats:
    """(copies, rows): the share of a row's copies that are its first, and that are others."""
    return np.stack([1 / model.repeat, 1 - 1 / model.repeat])


def kept_elements(model: Model) -> Floats:
    """|elements| of each row's output, per sample, that the backward pass wants."""
    flows, share, segments = flowing(model), copies_of(model), segments_of(model)
    in_copy = np.zeros((len(COPIES), len(model)), bool)
    by_next_copy, by_others = np.zeros((2, len(model)), bool)
    for i, row in enumerate(model.rows):
        segment = segments[i]
        for copy in COPIES[: 1 + (segment.repeat > 1)]:
            if not flows[copy, i]:
                continue
            if "y" in row.needs:
                in_copy[copy, origin(model, i)] = True
            for feed in wanted(model, i):
                if feed >= segment.start:
                    in_copy[copy, origin(model, feed)] = True
                elif copy:
                    by_next_copy[origin(model, segment.stop - 1)] = True
                elif feed >= 0:
                    once = segments[feed].repeat == 1
                    (in_copy[0] if once else by_others)[origin(model, feed)] = True
    # the last row of a repeated block: all copies but one are read by the next copy
    last = ((model.repeat - 1) * by_next_copy + by_others) / model.repeat
    extra = model.column(lambda row: row.extra_kept) * (flows * share).sum(axis=0)
    elements: Floats = np.maximum((in_copy * share).sum(axis=0), last) * model.y + extra
    elements[0] += model.x[0] / model.repeat[0]  # the samples themselves
    return elements


def kept_bytes(model: Model) -> Floats:
    """Further bytes that each row keeps per sample: masks, indices, fp32 copies."""
    share: Floats = (flowing(model) * copies_of(model)).sum(axis=0)
    further: Floats = model.column(lambda row: row.extra_bytes) * share
    return further


def wanted_by(model: Model, narrow: bool) -> Flags:
    """Rows whose output some rows want again and no others: products of narrow operands, or gates.

    A gate is the function between an MLP's matrices, of what the first of them makes.
    """
    inside, elsewhere = np.zeros((2, len(model)), bool)
    for i, row in enumerate(model.rows):
        if "y" in row.needs:
            elsewhere[origin(model, i)] = True
        of_these = row.narrow if narrow else row.kind == "mlp" and row.work == "stream"
        for feed in wanted(model, i):
            if feed >= 0:
                (inside if of_these else elsewhere)[origin(model, feed)] = True
    return np.asarray(inside & ~elsewhere)


def wanted(model: Model, i: int) -> tuple[int, ...]:
    """Rows whose output a row wants again in the backward pass."""
    needs = model.rows[i].needs
    feeds: tuple[int, ...] = model.feeds[i]
    return feeds if "x" in needs else feeds[: "1" in needs]


def origin(model: Model, i: int) -> int:
    """The row whose memory row i's output lives in: flatten and reshape make none."""
    part = 0
    while model.rows[i].kind in ("flatten", "reshape") and model.feeds[i][part] >= 0:
        i, part = model.feeds[i][part], model.rows[i].part
    return i

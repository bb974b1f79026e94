"""Where the stages of a `pipeline` begin, and what crosses into each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from oracle.models.model import Model
from oracle.plan.crossings import Crossings, crossings
from oracle.plan.cuts import device_of
from oracle.predict.estimate import Estimate
from oracle.spec.units import show

SHOWN = 8  # chunks that are told one by one


def of_stages(shown: Estimate) -> Iterator[str]:
    """In words; nothing of plans without a pipeline."""
    work = shown.work[0]
    edges, model, pipeline = work.cuts, shown.model, work.plan.axis("pipeline")
    chunks, p = len(edges) - 1, int(pipeline.degree[0, 0])
    if chunks <= 1:
        return
    yield (f"cuts={'/'.join(map(str, edges[1:-1]))}: {chunks} chunks of "
           f"{len(model.pieces.ends)} units")  # fmt: skip
    borders = [one for one, _ in work.messages if one.when == "border"]
    if not borders:
        return
    border = borders[0]
    sizes = np.atleast_2d(border.message.nbytes) * np.ones((1, len(model)))
    each = sizes[min(work.kind, len(sizes) - 1)]
    found = crossings(model, work.edges, device_of(chunks, p, bool(pipeline.vee[0, 0])), p)
    sent = found.sent[0]
    total = float(each[found.row[0, sent]].sum())
    passed = int((sent & (found.target[0] - found.source[0] > 1)).sum())
    far = f", {passed} of them past other stages" if passed else ""
    yield f"{int(sent.sum())} tensors cross{far}: {show(total, 'B')} a micro-batch, and back"
    for chunk in range(1, chunks) if chunks <= SHOWN else ():
        row = int(np.argmax(model.pieces.counts[edges[chunk]] > 0))
        mine = np.flatnonzero(sent & (found.target[0] == chunk)).tolist()
        words = ", ".join(f"{show(float(each[found.row[0, at]]), 'B')} of {_made(model, found, at)}"
                          for at in mine)  # fmt: skip
        yield f"chunk {chunk} begins at unit {edges[chunk]} ({_name(model, row)}): {words}"


def _made(model: Model, found: Crossings, at: int) -> str:
    row, source = int(found.row[0, at]), int(found.source[0, at])
    return f"{_name(model, row)} in chunk {source}"


def _name(model: Model, row: int) -> str:
    """A row by its name, and that of its block."""
    block = next((one.name for one in model.segments if one.start <= row < one.stop), "")
    name = model.rows[row].name
    return f"{block} {name}" if block and block != name else name

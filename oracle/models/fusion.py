"""Fused norms: one kernel of a library does the passes before and after a norm too.

Batch norms of channels-last libraries (cuDNN's, MXNet's and PyTorch's for MLPerf) read what they
add and write what the activation leaves, so that neither passes over memory by itself, and the
convolution before them sums up their statistics as it writes its output. Operator by operator,
as frameworks run a model that nobody tuned, each of them does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oracle.models.layers import Row


def merged(rows: Sequence[Row], feeds: Sequence[tuple[int, ...]]) -> list[Row]:
    """The same rows, without the passes of sums and activations that a norm's kernel does."""
    found: list[Row] = []
    for row, fed in zip(rows, feeds, strict=True):
        before = [rows[i].kind for i in fed if i >= 0]
        if row.kind == "norm" and before == ["conv"]:  # whose epilogue has the sums
            row = replace(row, reads=(1.0, row.reads[1]))
        elif row.kind == "add" and "norm" in before:  # the other operand; gradients go both ways
            row = replace(row, reads=(row.reads[0] - 1, 0.0), rereads=(1.0, 0.0), pieces=0)
        elif row.kind == "activation" and before and before[0] in ("norm", "add"):
            row = replace(row, reads=(0.0, 0.0), rereads=(0.0, 0.0), pieces=0)
        found.append(row)
    return found

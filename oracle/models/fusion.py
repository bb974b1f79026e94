"""Fused norms: one kernel of a library does the passes before and after a norm too.

Batch norms of channels-last libraries (cuDNN's, MXNet's and PyTorch's for MLPerf) read the other
summand and write the activation's output, so that neither the sum nor the activation passes over
memory by itself. The convolution before a norm sums up the statistics as it writes its output. In
a model that nobody tuned, frameworks run operator by operator, and each of them passes by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oracle.models.layers import Row


def merged(rows: Sequence[Row], feeds: Sequence[tuple[int, ...]]) -> list[Row]:
    """Return the rows without the passes of sums and activations that a norm's kernel does."""
    merged_rows: list[Row] = []
    for row, fed in zip(rows, feeds, strict=True):
        before = [rows[i].kind for i in fed if i >= 0]
        if row.kind == "norm" and before == ["conv"]:  # whose epilogue has the sums
            row = replace(row, reads=(1.0, row.reads[1]))
        elif row.kind == "add" and "norm" in before:  # the other operand; gradients go both ways
            row = replace(row, reads=(row.reads[0] - 1, 0.0), rereads=(1.0, 0.0), pieces=0)
        elif row.kind == "activation" and before and before[0] in ("norm", "add"):
            row = replace(row, reads=(0.0, 0.0), rereads=(0.0, 0.0), pieces=0)
        merged_rows.append(row)
    return merged_rows

"""CUDA graphs of parts of layers: kernels of a part are launched as one.

Parts are called as Megatron-Core calls what it captures (NVIDIA/Megatron-LM, @d98e8a64
megatron/core/transformer/transformer_config.py:1090-1099: `cuda_graph_modules`): attention, a
dense MLP or a Mamba mixer with the norm before it and the sum behind it; of a mixture its norm, its
router and its shared experts. What `moe_preprocess` prepares is counted with the router.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from oracle.models import masks
from oracle.models.layers import Row
from oracle.models.model import Model
from oracle.models.shard import Array

# a delta rule is captured with attention (NVIDIA-NeMo/Megatron-Bridge, pull request 5225)
PARTS = {"attention": "attn", "gate": "attn", "delta": "attn", "scan": "mamba", "mlp": "mlp"}


def launched_in(model: Model, graphs: str, calls: Array) -> Array:
    """Launches of each row's kernels, where those of some parts of layers are one."""
    if graphs in ("none", "iteration"):
        return calls
    captured, begins = captures(model, graphs)
    return np.asarray(np.where(captured, begins, calls))


@lru_cache(masks.MODELS)
def captures(model: Model, graphs: str) -> tuple[Array, Array]:
    """Rows of the parts that are launched as one, and 1 for those with which a part begins."""
    parts, words = parts_of(model), graphs.split("+")
    captured = np.array([part in words for part in parts]) & model.blocks
    begins = np.zeros(len(model))
    for segment in model.segments:
        before = ""
        for i in range(segment.start, segment.stop):
            begins[i] = captured[i] and parts[i] != before
            before = parts[i] if captured[i] else ""
    return captured, begins


def parts_of(model: Model) -> list[str]:
    """The part of its layer that each row belongs to; nothing where it is none that is captured."""
    parts = [_part(row) for row in model.rows]
    for i, row in enumerate(model.rows):
        if row.kind == "norm" and row.role == "heads":  # of queries and keys, or of a mixer
            parts[i] = parts[i - 1]
        elif row.kind == "norm":
            readers = [parts[j] for j, feeds in enumerate(model.feeds) if i in feeds and parts[j]]
            parts[i] = readers[0] if readers else ""
        elif row.kind == "add":
            parts[i] = parts[max(model.feeds[i])]
    return parts


def _part(row: Row) -> str:
    """The part that a row says it is of by itself."""
    if row.module == "shared_experts" or (row.kind == "moe" and not row.experts):
        return "moe_router"
    return PARTS.get(row.kind, "")

"""MaxText on TPUs: slices that share weights inside and replicate them over the network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.published.megatron import RECOMPUTE
from benchmarks.published.table import BRAIN_ADAM, Case, Row, number, table, written

SOFTWARE = "maxtext"
SYSTEMS = {"TPU v4": "tpu-v4-slices", "TPU v5p": "tpu-v5p-slices"}
REMATERIALISED = RECOMPUTE | {"minimal": "recompute:operators"}


def decoder(row: Row) -> dict[str, Any]:
    """MaxText's default decoder: rotary positions, no biases, an output matrix of its own."""
    return {"name": row["model"], "source": row["source"], "transformer": {
        "layers": number(row, "layers"), "hidden": number(row, "hidden"),
        "heads": number(row, "heads"), "kv_heads": number(row, "kv_heads"),
        "width": number(row, "head_dim"), "ffn": number(row, "ffn"),
        "gated": row["gated"] == "True", "vocab": number(row, "vocab"),
        "sequence": number(row, "seq_len"), "tied_embeddings": False}}  # fmt: skip


@table("tpu_maxtext", "tpu_maxtext*.csv", "MAPE ≤ 8 %, no misfits")
def maxtext(rows_read: list[Row]) -> Iterator[Case]:
    """Dense models on one to eight slices of 64 chips, bf16 with fp32 masters."""
    for row in rows_read:
        chips, batch = number(row, "chips"), number(row, "global_batch")
        slices, fsdp, tp = (number(row, key) for key in ("dp", "fsdp", "tp"))
        system = written(SYSTEMS[row["device"]], "systems")
        system["levels"][-1]["devices"] = max(chips, system["levels"][-1]["devices"])
        words = [f"data:{slices}" if slices > 1 else "", f"sharded:{fsdp}",
                 f"tensor:{tp},sequence=on" if tp > 1 else "",
                 REMATERIALISED[row["recompute"]]]  # fmt: skip
        yield Case((row["model"], row["device"], slices), decoder(row), system,
                   " ".join(filter(None, words)), batch, float(row["iter_time_s_derived"]),
                   BRAIN_ADAM, software=SOFTWARE)  # fmt: skip

"""DeepSeek's models: four layers of V2 on one node, and what V3's report says of its training."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.published.megatron import CORE, grid
from benchmarks.published.table import BRAIN_ADAM, Case, Row, number, table, written


@table("b200_deepseekv2", "b200_deepseekv2*.csv", "MAPE ≤ 5 %", "SimuMax 9.75 %, memory 0.62 %")
def b200(found: list[Row]) -> Iterator[Case]:
    """Four layers of DeepSeek-V2, the first without experts, on eight B200s."""
    for row in found:
        yield _b200(row, float(row["measured_value"]) / 1e3, "seconds")


@table("b200_deepseekv2_memory", "b200_deepseekv2*.csv", "mean ≤ 6 %", "SimuMax 0.62 %")
def b200_memory(found: list[Row]) -> Iterator[Case]:
    """The same steps' allocated bytes."""
    for row in found:
        yield _b200(row, float(row["measured_alloc_GiB"]) * 2**30, "allocated")


def _b200(row: Row, measured: float, kind: str) -> Case:
    tp, pp, dp, ep = (number(row, key) for key in ("tp", "pp", "dp", "ep"))
    batch, model = number(row, "batch"), written("deepseek-v2")
    model["transformer"] |= {"layers": 4, "sequence": number(row, "seq")}
    pieces = number(row, "num_microbatches")
    plan = grid(pp, dp, tp, pieces, ep=ep, zero=1)
    return Case((pp, ep), model, "dgx-b200", plan, batch, measured, BRAIN_ADAM, kind,
                software=CORE)  # fmt: skip

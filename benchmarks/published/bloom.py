"""BLOOM's trial runs on Jean Zay: seconds, memory, and what ran out of it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.published.megatron import DEEPSPEED, gpt, grid
from benchmarks.published.table import BRAIN_ADAM, HALF_ADAM, Case, Row, number, table


@table("bloom", "bloom*.csv", "MAPE ≤ 10 %")
def bloom(found: list[Row]) -> Iterator[Case]:
    """Megatron-DeepSpeed, full recomputation, ZeRO-1 unless said otherwise."""
    for row in found:
        degrees = math.prod(number(row, key) for key in ("pp", "dp", "tp"))
        if (
            row["iter_time_s"] and row["heads"]
            and "!=" not in row["note"] and degrees == number(row, "gpus")
        ):  # fmt: skip
            yield trial(row, (row["gpus"], row["section"]), float(row["iter_time_s"]), "seconds")


@table("memory_bloom", "memory_bloom*.csv", "mean ≤ 5 %, all out of memory known")
def memory_bloom(found: list[Row]) -> Iterator[Case]:
    """nvidia-smi on the first or the last node, in GB as written, taken as 1e9 bytes."""
    for row in found:
        out = row["metric"] == "OOM"
        group = (row["gpus"], row["model"].split()[-1])
        yield trial(row, group, math.inf if out else 1e9 * float(row["value"]), "memory")


def trial(row: Row, group: tuple[str, ...], measured: float, kind: str) -> Case:
    """A row of the chronicle as a case; a batch that does not divide runs its whole pieces.

    Heads that are not said are 96, as in its first rows: under full recomputation memory hardly
    asks for them.
    """
    pp, dp, tp = (number(row, key) for key in ("pp", "dp", "tp"))
    micro, batch = number(row, "micro_batch"), number(row, "global_batch")
    hidden, heads = number(row, "hidden"), number(row, "heads", 96)
    model = gpt(row, heads=heads, vocab=number(row, "vocab"))
    if hidden % heads:
        model["transformer"]["width"] = hidden // heads
    plan = grid(pp, dp, tp, max(1, batch // dp // micro), "recompute:full",
                zero=number(row, "zero_stage"))  # fmt: skip
    options = BRAIN_ADAM if row["precision"].startswith("bf16") else HALF_ADAM
    return Case(group, model, "jean-zay", plan, batch // (dp * micro) * dp * micro, measured,
                options, kind, software=DEEPSPEED)  # fmt: skip

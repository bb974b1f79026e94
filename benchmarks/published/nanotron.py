"""nanotron on H100s: a sweep of every way to split two Llamas over 1 to 32 nodes of AWS p5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.published.megatron import grid
from benchmarks.published.table import BRAIN_ADAM, Case, Row, number, table

NANOTRON = "nanotron"
SYSTEM = "aws-p5"
DEVICES_PER_NODE = 8


def llama(row: Row) -> dict[str, Any]:
    """Return the model of a row: as many heads of keys and values as of queries."""
    return {
        "name": row["model"], "source": "nanotron_h100.csv", "transformer": {
            "layers": number(row, "layers"), "hidden": number(row, "hidden"),
            "heads": number(row, "heads"), "ffn": number(row, "ffn"), "gated": True,
            "vocab": number(row, "vocab"), "sequence": number(row, "seq_len"),
            "tied_embeddings": row["tied"] == "1"},
    }  # fmt: skip


def plan_of(row: Row) -> str:
    """Return the plan of a row: tensor ranks innermost, sequence parallel, pipelines outermost."""
    pipeline, data, tensor = (number(row, key) for key in ("pp", "dp", "tp"))
    return grid(pipeline, data, tensor, number(row, "accumulate"), sequence=True,
                zero=number(row, "zero"))  # fmt: skip


def step(row: Row, measured: float, kind: str) -> Case:
    """Return a row's question: one group a model and number of nodes."""
    return Case((row["model"], number(row, "nodes")), llama(row), SYSTEM, plan_of(row),
                number(row, "global_batch"), measured, BRAIN_ADAM, kind,
                software=NANOTRON)  # fmt: skip


def seconds_of(row: Row) -> float:
    """Return the seconds of a step by the tokens that a device takes in a second."""
    tokens = number(row, "global_batch") * number(row, "seq_len")
    return tokens / (float(row["tokens_per_s_gpu"]) * number(row, "gpus"))


def is_doubtful(row: Row) -> bool:
    """Say whether a row's seconds are known to be off: pipelines of tensor ranks across nodes."""
    return number(row, "pp") > 1 and number(row, "tp") > 1 and number(row, "nodes") > 1


@table("nanotron_h100", "nanotron_h100*.csv", "MAPE ≤ 15 %, τ ≥ 0.85, regret ≤ 5 %")
def nanotron(rows_read: list[Row]) -> Iterator[Case]:
    """Seconds of plans without a pipeline that ran."""
    for row in rows_read:
        if row["status"] == "ran" and number(row, "pp") == 1:
            yield step(row, seconds_of(row), "seconds")


@table("nanotron_memory", "nanotron_h100*.csv", "mean ≤ 4 %, ≤ 9 misfits, ≤ 30 of 572 said to fit")
def nanotron_memory(rows_read: list[Row]) -> Iterator[Case]:
    """What rank 0's allocator held at most in plans that ran, and plans that crashed.

    Rank 0 writes the row (huggingface/nanotron, @67c5ebb6 src/nanotron/helpers.py:775-776), which
    is on the first stage (parallel/context.py:68-78). That bytes move with replicas that hold the
    same, and with micro-batches though peaks of what is allocated are forgotten after them
    (src/nanotron/logging.py:250-259, trainer.py:492-513), says that they are those reserved.
    """
    for row in rows_read:
        ran = row["status"] == "ran"
        measured = float(row["memory_gb"]) * 2**30 if ran else float("inf")
        yield step(row, measured, "first")

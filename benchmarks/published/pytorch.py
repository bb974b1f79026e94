"""FSDP: llm-foundry on A100s, torchtitan on H100s."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.published.megatron import RECOMPUTE, gpt
from benchmarks.published.table import (
    BRAIN_ADAM,
    EIGHT_ADAM,
    Case,
    Row,
    number,
    table,
)

# flash attention of 2022 (Triton)
FOUNDRY = "llm-foundry"
# compiled or not: what compiling fuses a row says below
TITAN = "torchtitan-2024"


@table("llm_foundry", "llm_foundry*.csv", "MAPE ≤ 10 %")
def llm_foundry(found: list[Row]) -> Iterator[Case]:
    """MPT under FSDP on A100s, biases as its configuration has them by default; no dropout."""
    for row in found:
        dp, batch, micro = (
            number(row, key) for key in ("dp", "global_batch", "micro_batch_per_gpu")
        )
        pieces = max(1, number(row, "grad_accum", 1))
        if dp * micro * pieces != batch:
            pieces = max(1, round(batch / dp / micro))
        model = gpt(row, vocab=number(row, "vocab"), sequence=number(row, "seq_len"),
                    dropout=False)  # fmt: skip
        rest = RECOMPUTE["full" if row["activation_checkpointing"] == "True" else "none"]
        cut = f",accumulate={pieces}" if pieces > 1 else ""
        system = "a100-roce1600" if "80GB" in row["gpu"] else "a100-roce1600-40gb"
        yield Case((row["model"], row["gpus"], row["seq_len"], row["gpu"]), model, system,
                   f"data:{dp},zero=3{cut} {rest}".strip(), batch,
                   float(row["iter_time_s_derived"]), BRAIN_ADAM,
                   software=FOUNDRY)  # fmt: skip


@table("torchtitan_memory", "memory.csv", "mean ≤ 5 %")
def torchtitan_memory(found: list[Row]) -> Iterator[Case]:
    """Llama-3.1 8B under FSDP2 on H100 96 GB, bf16 and fp8: peak reserved over ranks."""
    for row in found:
        if row["model"] == "Llama-3.1 8B" and row["unit"] == "GiB":
            yield titan(row, float(row["value"]) * 2**30, "memory")


@table("torchtitan", "transformers_mixed*.csv", "MAPE ≤ 10 %")
def torchtitan(found: list[Row]) -> Iterator[Case]:
    """The same steps' seconds, sequences of 8,192 to 262,144 tokens."""
    for row in found:
        if row["framework"].startswith("torchtitan") and number(row, "layers") == 32:
            tokens = number(row, "global_batch") * number(row, "seq_len")
            seconds = tokens / (float(row["tokens_per_s_per_gpu"]) * number(row, "gpus"))
            yield titan(row, seconds, "seconds")


def titan(row: Row, measured: float, kind: str) -> Case:
    """A row of torchtitan's tables as a plan: sharded outside, context, tensor inside."""
    tp, cp, shards = number(row, "tp", 1), number(row, "cp", 1), number(row, "fsdp", 1)
    compiled = "float8" in row["precision"] or row.get("compile") == "True"
    model = {"name": "llama3-8b", "source": row["source"], "transformer": {
        "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "gated": True,
        "vocab": 128256, "sequence": number(row, "seq_len"), "tied_embeddings": False,
}}  # fmt: skip
    plan = f"data:{shards},zero=3" if shards * cp > 1 else ""  # shards over both
    plan += f" context:{cp}" if cp > 1 else ""
    plan += f" tensor:{tp},sequence=on" if tp > 1 else ""
    plan += {"full AC": " recompute:full", "selective op AC": " recompute:operators"}.get(
        row["recompute"], ""
    )
    return Case((row["seq_len"], row["gpus"]), model, "h100-96gb", plan.strip(),
                number(row, "global_batch"), measured,
                EIGHT_ADAM if "float8" in row["precision"] else BRAIN_ADAM, kind,
                software=TITAN + ",kernels.fused=true" * compiled)  # fmt: skip

"""Megatron-LM and what grew out of it: vTrain, Selene, DLPerf's V100s, SimuMax' B200s."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.published.table import (
    BRAIN_ADAM,
    HALF_ADAM,
    Case,
    Row,
    number,
    table,
)

# Megatron-LM adds gradients up inside their products since 2022 (2205.05198 has it, its forks
# for DeepSpeed and everything before have a pass for it); before 2022 nothing hid under the
# products of a row, and the exchange of gradients followed the backward pass.
DEEPSPEED = "megatron-deepspeed"
OF_2022 = "megatron-lm-2022"
OF_2021 = "megatron-lm-2021"
OF_2020 = "megatron-lm-2020"
CORE = "megatron-core"


def gpt(row: Row, **more: Any) -> dict[str, Any]:
    """A GPT of the Megatron era: dropout, learned positions."""
    body: dict[str, Any] = {
        "layers": number(row, "layers"), "hidden": number(row, "hidden"),
        "heads": number(row, "heads"), "vocab": 51200, "sequence": 2048,
        "dropout": True, **more,
    }  # fmt: skip
    return {"name": row.get("model", "GPT"), "source": row.get("source", ""), "transformer": body}


def grid(pp: int, dp: int, tp: int, pieces: int, rest: str = "", *,
         cp: int = 1, ep: int = 1, interleave: int = 1, zero: int = 0,
         sequence: bool = False, knobs: str = "") -> str:  # fmt: skip
    """Megatron's nesting: tensor inside experts, context, data and pipeline."""
    words = []
    if pp > 1:
        chunks = f",interleave={interleave}" if interleave > 1 else ""
        words.append(f"pipeline:{pp},segments={pieces}{chunks}{knobs}")
    replicas = f",accumulate={pieces}" if pp == 1 and pieces > 1 else ""
    if zero and dp * cp > 1:
        replicas += f",zero={zero}"
    if dp > 1 or replicas:
        words.append(f"data:{dp}{replicas}")
    words.append(f"context:{cp}" if cp > 1 else "")
    words.append(f"expert:{ep}" if ep > 1 else "")
    words.append(f"tensor:{tp}{',sequence=on' * sequence}" if tp > 1 else "")
    words.append(rest)
    return " ".join(word for word in words if word) or "serial"


RECOMPUTE = {"full": "recompute:full", "none": "", "selective": "recompute:selective"}


def _vtrain(found: list[Row]) -> Iterator[Case]:
    for row in found:
        pp, dp, tp = (number(row, key) for key in ("pp", "dp", "tp"))
        batch, micro = number(row, "batch"), number(row, "microbatch")
        plan = grid(pp, dp, tp, batch // dp // micro, RECOMPUTE[row["recompute"]])
        yield Case(
            (row["model"], row["gpus"], batch),
            gpt(row, sequence=number(row, "seq")), "a100-800g", plan, batch,
            float(row["measured_value"]) / 1e3, HALF_ADAM, software=DEEPSPEED,
        )  # fmt: skip


@table("vtrain_multi", "vtrain_multi*.csv", "MAPE ≤ 8 %, τ ≥ 0.75, regret ≤ 1 %",
       "Calculon 15.3 %, τ 0.58; SimuMax 16.3 %, 0.63; dlcalc 39.1 %, 0.66")  # fmt: skip
def vtrain_multi(found: list[Row]) -> Iterator[Case]:
    """Megatron-DeepSpeed on A100 nodes with 800 Gbit/s."""
    yield from _vtrain(found)


@table("vtrain_single", "vtrain_single*.csv", "MAPE ≤ 12 %, τ ≥ 0.85, best ≥ 75 %, regret ≤ 2 %",
       "SimuMax 22.7 %, τ 0.72, 46 %, 6.2 %; Calculon 39 %, 0.46, 51 %, 10 %")  # fmt: skip
def vtrain_single(found: list[Row]) -> Iterator[Case]:
    """The same within one node, small models: launch-bound."""
    yield from _vtrain(found)


SIZES = {  # arXiv 2205.05198, Table 3: layers, hidden, heads
    "megatron-22B": (48, 6144, 64), "gpt3-175B": (96, 12288, 96),
    "turing-530B": (105, 20480, 128), "megatron-1T": (128, 25600, 160),
}  # fmt: skip
INTERLEAVE = {"gpt3-175B": 3, "turing-530B": 3}  # the same table


@table("megatron_table5", "megatron_selective*.csv", "MAPE ≤ 3 %", "Calculon 3.65 %")
def megatron_table5(found: list[Row]) -> Iterator[Case]:
    """Selene; interleaved schedules as in that paper's Table 3; sequence parallel with seqsel."""
    for row in found:
        layers, hidden, heads = SIZES[row["model"]]
        pp, tp, dp = (number(row, key) for key in ("pp", "tp", "dp"))
        batch, selective = number(row, "batch"), row["recompute"] == "seqsel"
        plan = grid(
            pp, dp, tp, batch // dp // number(row, "microbatch"),
            RECOMPUTE["selective" if selective else "full"],
            interleave=INTERLEAVE.get(row["model"], 1), sequence=selective,
        )  # fmt: skip
        shape = {"layers": str(layers), "hidden": str(hidden), "heads": str(heads), **row}
        yield Case((row["model"],), gpt(shape), "dgx-a100", plan, batch,
                   float(row["measured_value"]), HALF_ADAM, software=OF_2022)  # fmt: skip


@table("dlperf_v100", "dlperf_gpt*.csv", "MAPE ≤ 10 %")
def dlperf(found: list[Row]) -> Iterator[Case]:
    """GPT on V100 nodes with one EDR link, full recomputation.

    Its Megatron-LM, 8aa4619, is v2.0 and two commits picked for it: no ancestor of it is 27fc468,
    which first cut borders among tensor ranks, so each rank sends them whole.
    """
    for row in found:
        pp, dp, tp = (number(row, key) for key in ("pp", "dp", "tp"))
        batch = number(row, "global_batch")
        pieces = max(1, batch // dp // number(row, "micro_batch"))
        yield Case((row["gpus"],), gpt(row), "v100-ib100",
                   grid(pp, dp, tp, pieces, "recompute:full"), batch,
                   float(row["iter_time_ms"]) / 1e3, HALF_ADAM, software=OF_2020)  # fmt: skip


@table("narayanan2021", "transformers_mixed*.csv", "MAPE ≤ 10 %")
def narayanan(found: list[Row]) -> Iterator[Case]:
    """Selene, arXiv 2104.04473 Table 1: full recomputation; the micro-batch is not in the table."""
    for row in found:
        if not row["framework"].startswith("Megatron-LM 2021") or not row["iter_time_s"]:
            continue
        pp, dp, tp = (number(row, key, 1) for key in ("pp", "dp", "tp"))
        batch, stated = number(row, "global_batch"), number(row, "micro_batch")
        if pp * dp * tp != number(row, "gpus"):
            continue
        model = gpt(row, vocab=number(row, "vocab"), sequence=number(row, "seq_len"))
        first, *others = (
            grid(pp, dp, tp, batch // dp // micro, "recompute:full")
            for micro in ((stated,) if stated else (1, 2, 4, 8)) if batch // dp % micro == 0
        )  # fmt: skip
        yield Case((row["model"],), model, "dgx-a100", first, batch, float(row["iter_time_s"]),
                   HALF_ADAM, others=tuple(others), software=OF_2021)  # fmt: skip


@table("megatron_v100", "transformers_mixed*.csv", "")
def megatron_v100(found: list[Row]) -> Iterator[Case]:
    """Megatron-LM of 2020 within a DGX-2: tensor parallel alone, full recomputation."""
    for row in found:
        if row["framework"].startswith("Megatron-LM Sep 2020"):
            plan = grid(1, 1, number(row, "tp"), 1, "recompute:full")
            yield Case((row["model"],), gpt(row, sequence=number(row, "seq_len")),
                       "dgx-2", plan, number(row, "global_batch"), float(row["iter_time_s"]),
                       HALF_ADAM, software=OF_2020)  # fmt: skip


@table("b200_llama3", "simumax_b200*.csv", "MAPE ≤ 10 %", "SimuMax 5.62 %, memory 0.46 %")
def b200(found: list[Row]) -> Iterator[Case]:
    """Twelve layers of Llama-3 70B on eight B200s: distributed optimizer, flash attention."""
    for row in found:
        yield _b200(row, float(row["measured_value"]) / 1e3, "seconds")


@table("b200_memory", "simumax_b200*.csv", "mean ≤ 5 %", "SimuMax 0.46 %")
def b200_memory(found: list[Row]) -> Iterator[Case]:
    """The same steps' allocated bytes."""
    for row in found:
        yield _b200(row, float(row["measured_alloc_GiB"]) * 2**30, "allocated")


def _b200(row: Row, measured: float, kind: str) -> Case:
    tp, pp, dp, cp = (number(row, key) for key in ("tp", "pp", "dp", "cp"))
    batch, micro = number(row, "batch"), number(row, "microbatch")
    model = {"name": row["model"], "source": row["source"], "transformer": {
        "layers": 12, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "gated": True,
        "vocab": 128256, "sequence": number(row, "seq"), "tied_embeddings": False,
        }}  # fmt: skip
    plan = grid(pp, dp, tp, max(1, batch // dp // micro), cp=cp, zero=1, sequence=True)
    return Case((row["seq"], row["batch"]), model, "dgx-b200", plan, batch, measured,
                BRAIN_ADAM, kind, software=CORE)  # fmt: skip

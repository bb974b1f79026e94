"""Published measurements of whole training steps, each row as a case to predict.

A table is one function that reads a CSV and yields cases; nothing here is fitted, and no row
carries a constant of its own. What a table's software did (attention fused or not, dropout,
optimizer, how replicas share state) is said once a table, with its source.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from oracle.spec import catalogue

Row = dict[str, str]
CARRIED = Path(__file__).parent / "data" / "published"


@dataclass(frozen=True)
class Case:
    """One measured step: what was run, and what came out."""

    group: tuple[Any, ...]  # cases of equal work, to be ranked against each other
    model: Any  # a shipped name, or a spec
    system: str
    plan: str
    batch: int
    measured: float  # seconds per iteration, or bytes
    options: dict[str, Any] = field(default_factory=dict)
    kind: str = "seconds"  # or "memory", or "allocated": tensors alone
    others: tuple[str, ...] = ()  # where the source leaves the plan open: the fastest that fits


@dataclass(frozen=True)
class Table:
    """A published table: where it is, how to read it, what is to be reached, what peers reach."""

    name: str
    file: str  # a pattern: all files that match are read
    cases: Callable[[list[Row]], Iterator[Case]]
    goal: str
    peers: str = ""


TABLES: dict[str, Table] = {}
HALF_ADAM = {"precision": "fp16", "optimizer": "adam"}
BRAIN_ADAM = {"precision": "bf16", "optimizer": "adam"}
EIGHT_ADAM = {"precision": "fp8", "optimizer": "adam"}


def table(name: str, file: str, goal: str, peers: str = "") -> Callable[[Any], Any]:
    """Register a table's reader under its name."""

    def add(cases: Any) -> Any:
        TABLES[name] = Table(name, file, cases, goal, peers)
        return cases

    return add


def rows(path: Path) -> list[Row]:
    """The rows of a CSV file as text; a comment in line one is the source of all of them."""
    with path.open(newline="", encoding="utf-8") as file:
        first = file.readline()
        if not first.startswith("#"):
            file.seek(0)
            return list(csv.DictReader(file))
        return [{**row, "source": first[1:].strip()} for row in csv.DictReader(file)]


def tables(reference: Path | None) -> Path:
    """The folder of tables below one that was named; else the small tables that come along."""
    return reference / "published" if reference else CARRIED


def number(row: Row, key: str, default: float = 0) -> int:
    """A whole number of a cell, or the default where the cell is empty."""
    text = (row.get(key) or "").strip()
    return round(float(text)) if text else round(default)


def gpt(row: Row, **more: Any) -> dict[str, Any]:
    """A GPT of the Megatron era: dropout, learned positions, attention through memory.

    Megatron-LM adds gradients up inside their products since 2022 (2205.05198 has it, its forks
    for DeepSpeed and everything before have a pass for it).
    """
    body: dict[str, Any] = {
        "layers": number(row, "layers"), "hidden": number(row, "hidden"),
        "heads": number(row, "heads"), "vocab": 51200, "sequence": 2048,
        "dropout": True, "flash": False, "fused": False, **more,
    }  # fmt: skip
    return {"name": row.get("model", "GPT"), "source": row.get("source", ""), "transformer": body}


def grid(pp: int, dp: int, tp: int, segments: int, rest: str = "", tensor: str = "",
         data: str = "") -> str:  # fmt: skip
    """Megatron's nesting: tensor inside data inside pipeline."""
    words = []
    if pp > 1:
        words.append(f"pipeline:{pp},segments={segments}")
        words.append(f"data:{dp}{data}" if dp > 1 or data else "")
    else:
        cut = f",accumulate={segments}" if segments > 1 else ""
        words.append(f"data:{dp}{cut}{data}" if dp > 1 or cut else "")
    # before 2022 nothing hid under the products of a row
    words.append(f"tensor:{tp}{tensor or ',overlap=off'}" if tp > 1 else "")
    words.append(rest)
    return " ".join(word for word in words if word) or "serial"


RECOMPUTE = {"full": "recompute:full", "none": "", "selective": "recompute:selective"}


def _vtrain(found: list[Row], system: str) -> Iterator[Case]:
    for row in found:
        pp, dp, tp = (number(row, key) for key in ("pp", "dp", "tp"))
        batch, micro = number(row, "batch"), number(row, "microbatch")
        plan = grid(
            pp, dp, tp, batch // dp // micro, RECOMPUTE[row["recompute"]], data=",overlap=off"
        )
        yield Case(
            (row["model"], row["gpus"], batch), gpt(row, sequence=number(row, "seq")), system,
            plan.replace("data:1,overlap=off", "").strip(), batch,
            float(row["measured_value"]) / 1e3, HALF_ADAM,
        )  # fmt: skip


@table("vtrain_multi", "vtrain_multi*.csv", "MAPE ≤ 8 %, τ ≥ 0.75, regret ≤ 1 %",
       "Calculon 15.3 %, τ 0.58; SimuMax 16.3 %, 0.63; dlcalc 39.1 %, 0.66")  # fmt: skip
def vtrain_multi(found: list[Row]) -> Iterator[Case]:
    """Megatron-DeepSpeed on A100 nodes with 800 Gbit/s; the exchange follows the backward pass."""
    yield from _vtrain(found, "a100-800g")


@table("vtrain_single", "vtrain_single*.csv", "MAPE ≤ 12 %, τ ≥ 0.85, best ≥ 75 %, regret ≤ 2 %",
       "SimuMax 22.7 %, τ 0.72, 46 %, 6.2 %; Calculon 39 %, 0.46, 51 %, 10 %")  # fmt: skip
def vtrain_single(found: list[Row]) -> Iterator[Case]:
    """The same within one node, small models: launch-bound."""
    yield from _vtrain(found, "a100-800g")


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
        batch = number(row, "batch")
        sequence = ",sequence=on" if row["recompute"] == "seqsel" else ",overlap=on"
        mode = "recompute:selective" if "sequence" in sequence else "recompute:full"
        plan = grid(pp, dp, tp, batch // dp // number(row, "microbatch"), mode, sequence)
        if v := INTERLEAVE.get(row["model"]):
            plan = plan.replace("segments=", f"interleave={v},segments=")
        shape = {"layers": str(layers), "hidden": str(hidden), "heads": str(heads), **row}
        yield Case((row["model"],), gpt(shape, fused=True), "dgx-a100", plan, batch,
                   float(row["measured_value"]), HALF_ADAM)  # fmt: skip


@table("llm_foundry", "llm_foundry*.csv", "MAPE ≤ 10 %")
def llm_foundry(found: list[Row]) -> Iterator[Case]:
    """MPT under FSDP with flash attention of 2022 (Triton) on A100s; no biases, no dropout."""
    for row in found:
        dp, batch, micro = (
            number(row, key) for key in ("dp", "global_batch", "micro_batch_per_gpu")
        )
        pieces = max(1, number(row, "grad_accum", 1))
        if dp * micro * pieces != batch:
            pieces = max(1, round(batch / dp / micro))
        model = gpt(row, vocab=number(row, "vocab"), sequence=number(row, "seq_len"), bias=False,
                    dropout=False, flash=True, flash_version=1)  # fmt: skip
        rest = "recompute:full" if row["activation_checkpointing"] == "True" else ""
        cut = f",accumulate={pieces}" if pieces > 1 else ""
        system = "a100-roce1600" if "80GB" in row["gpu"] else "a100-roce1600-40gb"
        yield Case((row["model"], row["gpus"], row["seq_len"], row["gpu"]), model, system,
                   f"data:{dp},zero=3{cut} {rest}".strip(), batch,
                   float(row["iter_time_s_derived"]), BRAIN_ADAM)  # fmt: skip


@table("bloom", "bloom*.csv", "MAPE ≤ 10 %")
def bloom(found: list[Row]) -> Iterator[Case]:
    """Jean Zay: Megatron-DeepSpeed, full recomputation, ZeRO-1 unless said otherwise."""
    for row in found:
        pp, dp, tp = (number(row, key) for key in ("pp", "dp", "tp"))
        micro, batch = number(row, "micro_batch"), number(row, "global_batch")
        if (
            not row["iter_time_s"]
            or not row["heads"]
            or "!=" in row["note"]
            or pp * dp * tp != number(row, "gpus")
        ):
            continue
        model = gpt(row, vocab=number(row, "vocab"), dropout=True)
        if number(row, "hidden") % number(row, "heads"):
            model["transformer"]["width"] = number(row, "hidden") // number(row, "heads")
        data = f",zero={row['zero_stage']}" if number(row, "zero_stage") else ""
        yield Case((row["gpus"], row["section"]), model, "jean-zay",
                   grid(pp, dp, tp, max(1, batch // dp // micro), "recompute:full",
                        data=data + ",overlap=off"),
                   batch // (dp * micro) * dp * micro, float(row["iter_time_s"]),
                   HALF_ADAM)  # fmt: skip


@table("dlperf_v100", "dlperf_gpt*.csv", "MAPE ≤ 10 %")
def dlperf(found: list[Row]) -> Iterator[Case]:
    """GPT on V100 nodes with one EDR link, Megatron-LM, full recomputation.

    Whether its Megatron-LM (8aa4619) is older than `--scatter-gather-tensors-in-pipeline` could
    not be looked up; its pipelines take the time of borders sent whole by each tensor rank.
    """
    for row in found:
        pp, dp, tp = (number(row, key) for key in ("pp", "dp", "tp"))
        batch = number(row, "global_batch")
        segments = max(1, batch // dp // number(row, "micro_batch"))
        plan = grid(pp, dp, tp, segments, "recompute:full", data=",overlap=off" * (dp > 1))
        yield Case((row["gpus"],), gpt(row), "v100-ib100",
                   plan.replace("segments", "borders=whole,segments"), batch,
                   float(row["iter_time_ms"]) / 1e3, HALF_ADAM)  # fmt: skip


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
            grid(pp, dp, tp, batch // dp // micro, "recompute:full",
                 data=",overlap=off" if dp > 1 else "")
            for micro in ((stated,) if stated else (1, 2, 4, 8)) if batch // dp % micro == 0
        )  # fmt: skip
        yield Case((row["model"],), model, "dgx-a100", first, batch,
                   float(row["iter_time_s"]), HALF_ADAM, others=tuple(others))  # fmt: skip


@table("megatron_v100", "transformers_mixed*.csv", "")
def megatron_v100(found: list[Row]) -> Iterator[Case]:
    """Megatron-LM of 2020 within a DGX-2: tensor parallel alone, full recomputation."""
    for row in found:
        if row["framework"].startswith("Megatron-LM Sep 2020"):
            plan = grid(1, 1, number(row, "tp"), 1, "recompute:full")
            yield Case((row["model"],), gpt(row, sequence=number(row, "seq_len")), "dgx-2",
                       plan, number(row, "global_batch"), float(row["iter_time_s"]),
                       HALF_ADAM)  # fmt: skip


@table("b200_llama3", "simumax_b200*.csv", "MAPE ≤ 10 %", "SimuMax 5.62 %, memory 0.46 %")
def b200(found: list[Row]) -> Iterator[Case]:
    """Twelve layers of Llama-3 70B on eight B200s: Megatron-LM, distributed optimizer, flash."""
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
        "vocab": 128256, "sequence": number(row, "seq"), "tied_embeddings": False}}  # fmt: skip
    sequence = ",sequence=on" if tp > 1 else ""
    zero = ",zero=1" if dp * cp > 1 else ""
    plan = grid(pp, dp, tp, max(1, batch // dp // micro), "", sequence, zero)
    if cp > 1:
        parts = plan.split()
        parts.insert(len(parts) - (tp > 1), f"context:{cp}")
        plan = " ".join(p for p in parts if p != "serial")
    return Case((row["seq"], row["batch"]), model, "dgx-b200", plan, batch, measured,
                BRAIN_ADAM, kind)  # fmt: skip


@table("torchtitan_memory", "memory*.csv", "mean ≤ 5 %")
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
    model = {"name": "llama3-8b", "source": row["source"], "transformer": {
        "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "gated": True,
        "vocab": 128256, "sequence": number(row, "seq_len"), "tied_embeddings": False,
        "flash_version": 2, "fused_loss": False,  # PyTorch's own in 2024, compiled or not
        "fused": "float8" in row["precision"] or row.get("compile") == "True"}}  # fmt: skip
    plan = f"data:{shards},zero=3" if shards * cp > 1 else ""  # shards over both
    plan += f" context:{cp}" if cp > 1 else ""
    plan += f" tensor:{tp},sequence=on" if tp > 1 else ""
    plan += {"full AC": " recompute:full", "selective op AC": " recompute:operators"}.get(
        row["recompute"], ""
    )
    return Case((row["seq_len"], row["gpus"]), model, "h100-96gb", plan.strip(),
                number(row, "global_batch"), measured,
                EIGHT_ADAM if "float8" in row["precision"] else BRAIN_ADAM, kind)  # fmt: skip


CNN = {"ResNet-50": "resnet50", "ResNet-50 v1.5": "resnet50", "ResNet-152": "resnet152",
       "ResNet-50 v1.5 (MLPerf)": "resnet50",
       "VGG16": "vgg16", "AlexNet": "alexnet", "InceptionV3": "inception-v3"}  # fmt: skip
CARDS = {"P100-SXM2": "dgx-1-p100", "V100-SXM2-16GB": "v100-ib100", "V100-SXM2-32GB": "dgx-1-v100",
         "V100-SXM3": "dgx-1-v100", "V100": "dgx-1-v100", "Nvidia Tesla V100": "dgx-1-v100",
         "A100-SXM4-80GB": "dgx-a100", "A100-SXM-80GB": "dgx-a100", "DGX A100 80GB": "dgx-a100",
         "A100-SXM4-40GB": "dgx-a100-40gb", "A100-SXM-40GB": "dgx-a100-40gb"}  # fmt: skip
HALF = ("AMP", "mixed", "FP16")


def written(name: str) -> dict[str, Any]:
    """A shipped model as its file has it."""
    found: dict[str, Any] = yaml.safe_load(
        catalogue.find(name, "models").read_text(encoding="utf-8")
    )
    return found


@table("cnn", "cnn_data_parallel*.csv", "MAPE ≤ 12 % up to 64 GPUs")
def cnn(found: list[Row]) -> Iterator[Case]:
    """Images a second of convolutional networks under data parallelism."""
    for row in found:
        name, card = (
            CNN.get(row["model"]),
            next((c for c in CARDS if row["gpu"].removeprefix("NVIDIA ").startswith(c)), None),
        )
        gpus = number(row, "gpus")
        try:
            each, rate = int(float(row["batch_per_gpu"])), float(row["images_per_s"])
        except ValueError:
            continue
        if name is None or card is None or not 0 < gpus <= 64 or "XLA" in row["variable_update"]:
            continue
        served = "parameter" in row["variable_update"] and not (
            "replicated NCCL" in row["variable_update"] and name in ("alexnet", "vgg16")
        )
        if served and gpus > 1:
            continue  # a parameter server on the host's CPUs is another machine
        text = row["precision"]
        precision = "fp16" if any(h in text for h in HALF) else "tf32" if text == "TF32" else "fp32"
        # NVIDIA's entries of MLPerf and everybody who took them over run fused batch norms
        tuned = "MLPerf" in row["model"]
        model = {**written(name), "fused": True} if tuned else name
        yield Case((row["system"], row["model"], each, precision), model, CARDS[card],
                   f"data:{gpus}" if gpus > 1 else "serial", each * gpus, each * gpus / rate,
                   {"precision": precision, "optimizer": "momentum"})  # fmt: skip


@table("cnn_one_gpu", "cnn_data_parallel*.csv", "median ≤ 10 %")
def cnn_one_gpu(found: list[Row]) -> Iterator[Case]:
    """Those of them that ran on one GPU."""
    yield from (case for case in cnn(found) if case.plan == "serial")

"""NeMo on H100s: NVIDIA's performance runs, and entries of MLPerf."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from benchmarks.published.megatron import grid
from benchmarks.published.recipes import Recipe, latent_cuts, recipe_of, software_of
from benchmarks.published.table import (
    BRAIN_ADAM,
    EIGHT_ADAM,
    Case,
    Row,
    number,
    table,
    written,
)

NEMO = "nemo-2.5"
MLPERF = "mlperf-nemo"
SHIPPED = {
    "GPT3-175B": "gpt3-175b", "GPT-3 175B": "gpt3-175b",
    "LLAMA2-7B": "llama2-7b", "LLAMA2-13B": "llama2-13b", "LLAMA2-70B": "llama2-70b",
    "LLAMA3-8B": "llama3-8b", "Llama-3.1 8B": "llama3-8b", "LLAMA3-70B": "llama3-70b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b", "LLAMA3_70B": "llama3-70b", "DeepSeekV3": "deepseek-v3",
    "Nemotron_3_Nano": "nemotron-3-nano",
}  # fmt: skip
# layers, hidden, heads: GPTConfig5B and GPTConfig20B of github.com/NVIDIA/NeMo,
# nemo/collections/llm/gpt/model/base.py; vocabulary as arXiv 2104.04473, section 5.1
SHAPES = {"GPT3-5B": (24, 4096, 32), "GPT3-20B": (44, 6144, 48)}


# fine-tuning fills sequences with questions about paragraphs, each of which attends to itself
# (NVIDIA/NeMo, @8cfedd7203 nemo/collections/llm/recipes/llama2_7b.py: SQuAD, packed where
# performance counts). Their length is assumed: 150 words or so; of 4,096 tokens it hardly matters
SQUAD = {"mean": 200, "variation": 0.5}


def network(name: str, sequence: int) -> dict[str, Any]:
    """A model by the name that a table has for it, cut to sequences of a length."""
    if name in SHAPES:
        layers, hidden, heads = SHAPES[name]
        return {"name": name, "source": "github:NVIDIA/NeMo", "transformer": {
            "layers": layers, "hidden": hidden, "heads": heads, "vocab": 51200,
            "sequence": sequence}}  # fmt: skip
    spec = written(SHIPPED[name])
    if "transformer" in spec:
        spec["transformer"]["sequence"] = sequence
    else:
        spec["input"] = [1, sequence]
    return spec


def cluster(gpus: int, device: str = "", system: str = "dgx-h100") -> dict[str, Any]:
    """A system with as many units as a run had, and the device that it had."""
    spec = written(system, "systems")
    spec["device"] = device or spec["device"]
    for below, level in pairwise(({"devices": 1}, *spec["levels"])):
        if level is spec["levels"][-1] and gpus > level["devices"]:
            level["devices"] = -(-gpus // below["devices"]) * below["devices"]
    return spec


def card(row: Row) -> str:
    """The device of a run on H100 or H200, where it is not the one that Eos has."""
    return "h200-sxm5" if "H200" in row["accelerator_model_name"] else ""


def plans(row: Row, layers: int, gpus: int, batch: int, recipe: Recipe | None = None) -> list[str]:
    """The plan of a row, or one for each interleave that divides where nobody says one."""
    tp, pp, cp, ep = (number(row, key, 1) for key in ("tp", "pp", "cp", "ep"))
    dp, recipe = gpus // (tp * pp * cp), recipe or Recipe()
    said = number(row, "virtual_pp", 1 if pp == 1 else recipe.chunks or 0)
    latent = row["model"].startswith("DeepSeekV3")
    chunks = [said] if said else [v for v in range(1, layers // pp + 1) if layers // pp % v == 0]
    return [
        grid(pp, dp, tp, batch // (dp * number(row, "micro_batch")), recipe.plan, cp=cp, ep=ep,
             interleave=v, sequence=True, zero=3 if number(row, "fsdp") > 1 else 1,
             knobs=latent_cuts(pp * v) if latent else "")
        for v in chunks
    ]  # fmt: skip


@table("nemo_h100", "nemo_h100*.csv", "MAPE ≤ 8 %, no misfits")
def nemo(found: list[Row]) -> Iterator[Case]:
    """Pre-training and full fine-tuning, fp8, distributed optimizer; several releases of each."""
    for row in found:
        if row["task"] == "LoRA":
            continue
        gpus, batch, sequence = (number(row, key) for key in ("gpus", "global_batch", "seq_len"))
        model = network(row["model"].split()[0], sequence)
        if row["task"] == "fine-tuning":
            model["transformer"]["documents"] = SQUAD
        first, *others = plans(row, model["transformer"]["layers"], gpus, batch)
        rate = float(row["tokens_per_s_per_gpu"]) * gpus
        options = BRAIN_ADAM if row["precision"] == "BF16" else EIGHT_ADAM
        yield Case((row["model"], row["gpus"], row["task"], batch, row["release"]), model,
                   "dgx-h100", first, batch, batch * sequence / rate, options,
                   others=tuple(others), software=NEMO)  # fmt: skip


RACKS = {"B200": "dgx-b200", "B300": "dgx-b300", "GB200": "gb200-nvl72", "GB300": "gb300-nvl72"}
# FP8-CS: one current scale a tensor
WIDTHS = {"BF16": "bf16", "FP8-CS": "fp8", "MXFP8": "mxfp8", "FP8-MX": "mxfp8", "NVFP4": "nvfp4"}


@table("nemo_blackwell", "nemo_blackwell*.csv", "MAPE ≤ 12 %, no misfits")
def blackwell(rows_read: list[Row]) -> Iterator[Case]:
    """Mixtures of experts and Llama 3 70B on B200, B300, GB200 and GB300, by release."""
    for row in rows_read:
        name, _, heads = row["model"].partition(" ")
        if name not in SHIPPED:
            continue
        gpus, batch, sequence = (number(row, key) for key in ("gpus", "global_batch", "seq_len"))
        model, release = network(name, sequence), row["release"].split()[0]
        recipe = recipe_of(name, row["gpu"], row["task"], row["precision"], release)
        family = model.get("transformer", {})
        if heads == "(w/o MTP)":
            family.pop("predicts", None)
        if row["task"] == "LoRA":
            model["train"] = "lora:16:qkv"
        if row["task"] != "pretraining":
            family["documents"] = SQUAD
        first, *others = plans(row, family.get("layers", 1), gpus, batch, recipe)
        system = RACKS[row["gpu"]]
        rate = float(row["tokens_per_s_per_gpu"]) * gpus
        yield Case((row["model"], row["gpu"], row["precision"], row["task"], row["release"]), model,
                   cluster(gpus, "", system), first, batch, batch * sequence / rate,
                   {"precision": WIDTHS[row["precision"]], "optimizer": "adam"},
                   others=tuple(others), software=software_of(release, recipe))  # fmt: skip


@table("mlperf_llm", "mlperf_llm*.csv", "MAPE ≤ 10 %")
def mlperf(found: list[Row]) -> Iterator[Case]:
    """GPT-3 175B on 512 to 10,752 GPUs and Llama-3.1 8B, fp8; the interleave is mostly not said.

    Seconds are those of training alone: the throughput that runs log counts evaluation too.
    """
    for row in found:
        if "LoRA" in row["model"]:
            continue
        gpus, batch = number(row, "accelerators"), number(row, "global_batch_size")
        model = network(row["model"].removesuffix(" pretrain"), number(row, "seq_len"))
        first, *others = plans(row, model["transformer"]["layers"], gpus, batch)
        yield Case((row["model"], row["round"], row["system"]), model,
                   cluster(gpus, card(row)), first, batch,
                   batch * number(row, "seq_len") / float(row["tokens_per_s_derived"]),
                   EIGHT_ADAM, others=tuple(others), software=MLPERF)  # fmt: skip


@table("nemo_lora", "nemo_h100*.csv", "MAPE ≤ 8 %, no misfits")
def nemo_lora(found: list[Row]) -> Iterator[Case]:
    """LoRA of Llama 2 on one node, fp8: adapters of rank 32 beside the products of q, k and v.

    As NVIDIA/NeMo, examples/nlp/language_modeling/tuning/conf/megatron_gpt_finetuning_config.yaml.
    """
    for row in found:
        if row["task"] != "LoRA":
            continue
        gpus, batch, sequence = (number(row, key) for key in ("gpus", "global_batch", "seq_len"))
        model = network(row["model"].split()[0], sequence) | {"train": "lora:32:qkv"}
        model["transformer"]["documents"] = SQUAD
        first, *others = plans(row, model["transformer"]["layers"], gpus, batch)
        rate = float(row["tokens_per_s_per_gpu"]) * gpus
        yield Case((row["model"], row["source"]), model, "dgx-h100", first, batch,
                   batch * sequence / rate, EIGHT_ADAM, others=tuple(others),
                   software=NEMO)  # fmt: skip


@table("mlperf_lora", "mlperf_llm*.csv", "MAPE ≤ 8 %, no misfits")
def mlperf_lora(found: list[Row]) -> Iterator[Case]:
    """Llama 2 70B with adapters of rank 16 beside attention's matrices, sequences of 8,192, fp8.

    Seconds are those between two evaluations: what a whole run comes to has those in it.
    """
    for row in found:
        if "LoRA" not in row["model"] or "L40S" in row["accelerator_model_name"]:
            continue
        gpus, batch = number(row, "accelerators"), number(row, "global_batch_size")
        model = network("LLAMA2-70B", number(row, "seq_len")) | {"train": "lora:16:attention"}
        first, *others = plans(row, model["transformer"]["layers"], gpus, batch)
        yield Case((row["round"], row["system"]), model,
                   cluster(gpus, card(row)), first, batch,
                   float(row["iter_time_s_derived"]),
                   EIGHT_ADAM, others=tuple(others), software=MLPERF)  # fmt: skip

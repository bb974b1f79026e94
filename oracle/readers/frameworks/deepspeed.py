"""DeepSpeed around a model of the user's own: the settings of its JSON, and the model's name."""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.frameworks.training import (
    Overrides,
    Training,
    called,
    left,
    micro_batches,
    plan_text,
    replicas,
)
from oracle.readers.jobs.sheet import Sheet

NAME = "DeepSpeed"
MATTERS = re.compile(
    r"^deepspeed\.(zero_optimization\.(offload|sub_group|zero_|mics|reduce_bucket|allgather_bucket|"
    r"stage3_p)|tensor|pipeline|activation|sparse|compression|autotuning|hybrid|sequence|"
    r"communication_data_type)|offload|sequence_parallel"
)
OPTIMIZERS = {"adam": "adam", "adamw": "adam", "lamb": "lamb", "sgd": "sgd", "fusedadam": "adam",
              "onebitadam": "adam", "cpuadam": "adam"}  # fmt: skip
TYPES = {"fp32": "fp32", "bf16": "bf16", "bfp16": "bf16", "fp16": "fp16"}
_Z = "deepspeed.zero_optimization"


def claims(sheet: Sheet) -> int:
    return sum(name.startswith("deepspeed.") and name.count(".") == 1 for name in sheet.settings)


def training(sheet: Sheet, overrides: Overrides) -> Training:
    """Return the replicas, stages and tensor ranks of its settings; the model is the user's."""
    tensor = sheet.whole_number("deepspeed.tensor_parallel.autotp_size", default=1, smallest=0) or 1
    stages = sheet.whole_number("deepspeed.pipeline.stages", default=1) or 1
    micro, pieces, batch = (_auto(sheet, name) for name in (
        "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
    ))  # fmt: skip
    counted = batch // (micro * (pieces or 1)) if batch and micro and pieces else 0
    place = sheet.setting("deepspeed.tensor_parallel.autotp_size", "deepspeed.pipeline.stages")
    devices, data = replicas(
        sheet, overrides, tensor * stages, f"tensor {tensor} × pipeline {stages}", place, counted
    )
    batch_setting = sheet.setting(
        "deepspeed.train_batch_size", "deepspeed.train_micro_batch_size_per_gpu"
    )
    if not micro and batch:
        micro = max(1, batch // (max(data, 1) * (pieces or 1)))
    elif not micro:
        sheet.fault(batch_setting, "nothing says how many samples are trained at once",
                    "--set deepspeed.train_micro_batch_size_per_gpu=…", "E103")  # fmt: skip
    micro = micro or 1
    batch = batch or micro * (pieces or 1) * data
    steps = micro_batches(sheet, batch, micro, data, batch_setting)
    if data and pieces and steps != pieces:
        complaint = f"a batch of {batch} is not {micro} × {pieces} micro-batches × {data} replicas"
        sheet.fault(batch_setting, complaint, f"{micro * pieces * data}")
    if overrides.model is None:
        sheet.fault(None, "DeepSpeed's file does not say the model", "--model NAME or FILE", "E103")
    axes = _axes(sheet, stages, data, tensor, steps)
    kind, how, tool = _precision(sheet), _optimizer(sheet), overrides.software or software(sheet)
    sheet.names_read |= {_Z, "deepspeed.bf16", "deepspeed.fp16", "deepspeed.pipeline",
                         "deepspeed.tensor_parallel", "deepspeed.optimizer"}  # fmt: skip
    sheet.check()
    notes = (*sheet.notes, *left(sheet, MATTERS))
    return Training(overrides.model, tool, plan_text(axes), batch, devices, kind, how, NAME,
                    called(sheet), notes)  # fmt: skip


def _auto(sheet: Sheet, name: str) -> int:
    setting = sheet.setting(f"deepspeed.{name}")
    return (
        0
        if setting is None or setting.text == "auto"
        else sheet.as_whole_number(name, setting) or 0
    )


def _axes(
    sheet: Sheet, stages: int, data: int, tensor: int, steps: int
) -> list[tuple[str, Any, dict[str, Any]]]:
    zero = sheet.whole_number(f"{_Z}.stage", default=0, smallest=0) or 0
    if zero > 3:
        sheet.fault(sheet.setting(f"{_Z}.stage"), f"ZeRO has no stage {zero}", "0 to 3", "E105")
        zero = 3
    axes: list[tuple[str, Any, dict[str, Any]]] = []
    if stages > 1:
        balanced = sheet.word("deepspeed.pipeline.partition") == "parameters"
        cuts = {"cuts": "balanced"} if balanced else {}
        axes.append(("pipeline", stages, {"segments": steps, **cuts}))
    data_knobs: dict[str, Any] = {"zero": zero} if zero else {}
    if stages == 1 and steps > 1:
        data_knobs["accumulate"] = steps
    if data > 1 or data_knobs:
        axes.append(("data", data, data_knobs))
    if tensor > 1:
        axes.append(("tensor", tensor, {}))
    if sheet.has("deepspeed.activation_checkpointing"):
        sheet.names_read |= {name for name in sheet.settings
                             if name.startswith("deepspeed.activation_checkpointing")}  # fmt: skip
        sheet.notes.append("recomputation is set up: counted as full, if the model calls for it")
        axes.append(("recompute", "full", {}))
    return axes


def _precision(sheet: Sheet) -> str:
    for name in ("bf16", "fp16"):
        if sheet.word(f"deepspeed.{name}.enabled") in ("True", "auto"):
            return name
    return "fp32"


def _optimizer(sheet: Sheet) -> str:
    kind = sheet.word("deepspeed.optimizer.type", default="adam")
    if kind.lower() not in OPTIMIZERS:
        setting = sheet.setting("deepspeed.optimizer.type")
        sheet.fault(setting, f"the optimizer `{kind[:40]}` is not known", "Adam, Lamb, SGD", "E110")
    name = OPTIMIZERS.get(kind.lower(), "adam")
    rate = sheet.word("deepspeed.optimizer.params.momentum", default="0")
    return "momentum" if name == "sgd" and rate.strip("0.") else name


def software(sheet: Sheet) -> str:
    """Return the shipped software, with the fields that the file changes."""
    words = ["deepspeed"]
    stage = sheet.whole_number(f"{_Z}.stage", default=0, smallest=0) or 0
    hidden = sheet.word(f"{_Z}.overlap_comm", default="True" if stage == 3 else "False")
    if (stage == 0 or hidden.lower() != "true") and hidden != "auto":
        words.append("exchange.overlap=none")
    kind = TYPES.get(sheet.word("deepspeed.data_types.grad_accum_dtype"))
    words += [f"exchange.gradients={kind}"] if kind else []
    kind = TYPES.get(sheet.word("deepspeed.communication_data_type"))
    words += [f"exchange.wire={kind}"] if kind else []
    return ",".join(words)

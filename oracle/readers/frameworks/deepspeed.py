"""DeepSpeed around a model of the user's own: what its JSON says, and the model by name."""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.frameworks.training import (
    Given,
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


def training(sheet: Sheet, given: Given) -> Training:
    """Replicas, stages and tensor ranks that it is told; the model is the user's."""
    tensor = sheet.whole("deepspeed.tensor_parallel.autotp_size", default=1, least=0) or 1
    stages = sheet.whole("deepspeed.pipeline.stages", default=1) or 1
    micro, pieces, batch = (_auto(sheet, name) for name in (
        "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
    ))  # fmt: skip
    counted = batch // (micro * (pieces or 1)) if batch and micro and pieces else 0
    place = sheet.said("deepspeed.tensor_parallel.autotp_size", "deepspeed.pipeline.stages")
    devices, data = replicas(
        sheet, given, tensor * stages, f"tensor {tensor} × pipeline {stages}", place, counted
    )
    said = sheet.said("deepspeed.train_batch_size", "deepspeed.train_micro_batch_size_per_gpu")
    if not micro and batch:
        micro = max(1, batch // (max(data, 1) * (pieces or 1)))
    elif not micro:
        sheet.fault(said, "nothing says how many samples are trained at once",
                    "--set deepspeed.train_micro_batch_size_per_gpu=…", "E103")  # fmt: skip
    micro = micro or 1
    batch = batch or micro * (pieces or 1) * data
    steps = micro_batches(sheet, batch, micro, data, said)
    if data and pieces and steps != pieces:
        what = f"a batch of {batch} is not {micro} × {pieces} micro-batches × {data} replicas"
        sheet.fault(said, what, f"{micro * pieces * data}")
    if given.model is None:
        sheet.fault(None, "DeepSpeed's file does not say the model", "--model NAME or FILE", "E103")
    axes = _axes(sheet, stages, data, tensor, steps)
    kind, how, tool = _precision(sheet), _optimizer(sheet), given.software or software(sheet)
    sheet.asked |= {_Z, "deepspeed.bf16", "deepspeed.fp16", "deepspeed.pipeline",
                    "deepspeed.tensor_parallel", "deepspeed.optimizer"}  # fmt: skip
    sheet.check()
    notes = (*sheet.notes, *left(sheet, MATTERS))
    return Training(given.model, tool, plan_text(axes), batch, devices, kind, how, NAME,
                    called(sheet), notes)  # fmt: skip


def _auto(sheet: Sheet, name: str) -> int:
    said = sheet.said(f"deepspeed.{name}")
    return 0 if said is None or said.text == "auto" else sheet.as_whole(name, said) or 0


def _axes(
    sheet: Sheet, stages: int, data: int, tensor: int, steps: int
) -> list[tuple[str, Any, dict[str, Any]]]:
    zero = sheet.whole(f"{_Z}.stage", default=0, least=0) or 0
    if zero > 3:
        sheet.fault(sheet.said(f"{_Z}.stage"), f"ZeRO has no stage {zero}", "0 to 3", "E105")
        zero = 3
    found: list[tuple[str, Any, dict[str, Any]]] = []
    if stages > 1:
        balanced = sheet.word("deepspeed.pipeline.partition") == "parameters"
        cuts = {"cuts": "balanced"} if balanced else {}
        found.append(("pipeline", stages, {"segments": steps, **cuts}))
    own: dict[str, Any] = {"zero": zero} if zero else {}
    if stages == 1 and steps > 1:
        own["accumulate"] = steps
    if data > 1 or own:
        found.append(("data", data, own))
    if tensor > 1:
        found.append(("tensor", tensor, {}))
    if sheet.has("deepspeed.activation_checkpointing"):
        sheet.asked |= {name for name in sheet.settings
                        if name.startswith("deepspeed.activation_checkpointing")}  # fmt: skip
        sheet.notes.append("recomputation is set up: counted as full, if the model calls for it")
        found.append(("recompute", "full", {}))
    return found


def _precision(sheet: Sheet) -> str:
    for name in ("bf16", "fp16"):
        if sheet.word(f"deepspeed.{name}.enabled") in ("True", "auto"):
            return name
    return "fp32"


def _optimizer(sheet: Sheet) -> str:
    kind = sheet.word("deepspeed.optimizer.type", default="adam")
    if kind.lower() not in OPTIMIZERS:
        said = sheet.said("deepspeed.optimizer.type")
        sheet.fault(said, f"the optimizer `{kind[:40]}` is not known", "Adam, Lamb, SGD", "E110")
    found = OPTIMIZERS.get(kind.lower(), "adam")
    rate = sheet.word("deepspeed.optimizer.params.momentum", default="0")
    return "momentum" if found == "sgd" and rate.strip("0.") else found


def software(sheet: Sheet) -> str:
    """The shipped software, with the fields that the file says otherwise."""
    found = ["deepspeed"]
    stage = sheet.whole(f"{_Z}.stage", default=0, least=0) or 0
    hidden = sheet.word(f"{_Z}.overlap_comm", default="True" if stage == 3 else "False")
    if (stage == 0 or hidden.lower() != "true") and hidden != "auto":
        found.append("exchange.overlap=none")
    kind = TYPES.get(sheet.word("deepspeed.data_types.grad_accum_dtype"))
    found += [f"exchange.gradients={kind}"] if kind else []
    kind = TYPES.get(sheet.word("deepspeed.communication_data_type"))
    found += [f"exchange.wire={kind}"] if kind else []
    return ",".join(found)

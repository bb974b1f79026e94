"""Megatron-LM and its descendants: a training of their arguments, and of DeepSpeed's file."""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.frameworks.megatron_model import block
from oracle.readers.frameworks.megatron_state import optimizer, precision, recompute, software
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

NAME = "Megatron-LM"
MATTERS = re.compile(
    r"parallel|recompute|offload|^moe_|overlap|pipeline|^fp[48]|layout|window|mtp|cuda_graph|"
    r"num_layers_at|ddp_|fsdp|dtype|deepep|offset|^torch_|partition|^distribute_|^deepspeed\.(zero|"
    r"tensor|pipeline|communication|data_types|activation)"
)
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def claims(sheet: Sheet) -> int:
    typical = ("num_layers", "hidden_size", "num_attention_heads", "micro_batch_size",
               "tensor_model_parallel_size", "pipeline_model_parallel_size", "model_parallel_size",
               "seq_length", "global_batch_size")  # fmt: skip
    return sum(name in sheet.settings for name in typical)


def training(sheet: Sheet, overrides: Overrides) -> Training:
    """Return degrees of the arguments, and replicas of the devices that are left."""
    tensor = sheet.whole_number("tensor_model_parallel_size", "model_parallel_size", default=1) or 1
    stages = sheet.whole_number("pipeline_model_parallel_size", default=1) or 1
    context = sheet.whole_number("context_parallel_size", default=1) or 1
    expert = sheet.whole_number("expert_model_parallel_size", default=1) or 1
    inner = tensor * stages * context
    place = sheet.setting("tensor_model_parallel_size", "model_parallel_size",
                          "pipeline_model_parallel_size")  # fmt: skip
    degrees = f"tensor {tensor} × pipeline {stages} × context {context}"
    devices, data = replicas(sheet, overrides, inner, degrees, place)
    micro = sheet.required("micro_batch_size", "batch_size",
                           "deepspeed.train_micro_batch_size_per_gpu")  # fmt: skip
    batch = sheet.whole_number("global_batch_size", "deepspeed.train_batch_size") or micro * data
    _same(sheet, micro, batch)
    batch_setting = sheet.setting("global_batch_size", "deepspeed.train_batch_size")
    pieces = micro_batches(sheet, batch, micro, data, batch_setting)
    spec = block(sheet, tensor) if overrides.model is None else None
    kind = precision(sheet)
    axes = _axes(sheet, (stages, data, context, tensor, expert), pieces, spec, kind)
    mode = recompute(sheet)
    axes += [("recompute", mode, {})] if mode != "none" else []
    sheet.check()
    job_name, tool = called(sheet), overrides.software or software(sheet, kind)
    how = optimizer(sheet)
    first = next(iter(sheet.texts)).rpartition("/")[2]
    model = overrides.model or {
        "name": job_name,
        "source": f"arguments of {first}",
        "transformer": spec,
    }
    notes = (*sheet.notes, *left(sheet, MATTERS))
    return Training(model, tool, plan_text(axes), batch, devices, kind, how, NAME, job_name, notes)


def _same(sheet: Sheet, micro: int, batch: int) -> None:
    """Note a fault where DeepSpeed's file has another batch than the arguments."""
    for name, value in (("deepspeed.train_micro_batch_size_per_gpu", micro),
                        ("deepspeed.train_batch_size", batch)):  # fmt: skip
        setting = sheet.setting(name)
        if (
            setting
            and setting.text != "auto"
            and sheet.as_whole_number(name, setting) not in (None, value)
        ):
            complaint = f"`{name.partition('.')[2]}` is {setting.text}, the arguments say {value}"
            sheet.fault(setting, complaint, "the same in both")


def _axes(
    sheet: Sheet, degrees: tuple[int, int, int, int, int], pieces: int,
    spec: dict[str, Any] | None, kind: str,
) -> list[tuple[str, Any, dict[str, Any]]]:  # fmt: skip
    """Return the axes of the plan, outermost first."""
    stages, data, context, tensor, expert = degrees
    zero = _zero(sheet, kind)
    by_name: dict[str, tuple[str, Any, dict[str, Any]]] = {}
    if stages > 1:
        knobs: dict[str, Any] = {"segments": pieces}
        if chunks := _chunks(sheet, stages, spec):
            knobs["interleave"] = chunks
        by_name["pipeline"] = ("pipeline", stages, knobs)
    data_knobs: dict[str, Any] = {"zero": zero} if zero else {}
    if stages == 1 and pieces > 1:
        data_knobs["accumulate"] = pieces
    groups = sheet.whole_number("num_distributed_optimizer_instances", default=1) or 1
    if groups > 1 and zero == 1 and data % groups == 0:
        data_knobs.pop("zero")
        by_name["data"] = ("data", groups, data_knobs)
        by_name["sharded"] = ("sharded", data // groups, {"zero": 1})
    elif data > 1 or data_knobs:
        by_name["data"] = ("data", data, data_knobs)
    if context > 1:
        turned = sheet.word("cp_comm_type", default="p2p") == "a2a"
        by_name["context"] = ("context", context, {"kind": "alltoall"} if turned else {})
    if tensor > 1:
        cut = sheet.has("sequence_parallel")
        by_name["tensor"] = ("tensor", tensor, {"sequence": "on"} if cut else {})
    sheet.names_read |= {"sequence_parallel", "cp_comm_type"}
    if expert > 1:
        uncut = sheet.whole_number("expert_tensor_parallel_size", default=tensor) == 1 < tensor
        by_name["expert"] = ("expert", expert, {"cut": "whole"} if uncut else {})
        _dealt(sheet, expert, data)
    order = ["pipeline", "data", "sharded", "context", "tensor", "expert"]
    if sheet.has("use_tp_pp_dp_mapping"):
        order = ["data", "sharded", "pipeline", "context", "tensor", "expert"]
    return [by_name[name] for name in order if name in by_name]


def _dealt(sheet: Sheet, expert: int, data: int) -> None:
    experts = sheet.whole_number("num_experts")
    setting = sheet.setting("expert_model_parallel_size")
    if experts and experts % expert:
        sheet.fault(setting, f"{experts} experts are not dealt evenly to {expert}", "a divisor")
    if data % expert:
        complaint = f"experts over {expert} devices do not divide the {data} replicas"
        sheet.fault(setting, complaint, f"a multiple of {expert} replicas: --devices N")


def _zero(sheet: Sheet, kind: str) -> int:
    """Return what replicas shard: 1 optimizer, 2 gradients, 3 weights."""
    if sheet.has("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2"):
        word = sheet.word("data_parallel_sharding_strategy", default="optim_grads_params")
        if word not in SHARDING:
            complaint = f"`data_parallel_sharding_strategy` is `{word[:40]}`"
            setting = sheet.setting("data_parallel_sharding_strategy")
            sheet.fault(setting, complaint, ", ".join(SHARDING), "E110")
        return SHARDING.get(word, 3)
    sheet.names_read.add("data_parallel_sharding_strategy")
    if sheet.has("use_distributed_optimizer"):
        return 1
    stage = (
        sheet.whole_number("deepspeed.zero_optimization.stage", "zero_stage", default=0, smallest=0)
        or 0
    )
    sheet.names_read |= {"deepspeed.zero_optimization", "deepspeed.bf16", "deepspeed.fp16"}
    if not stage and kind == "bf16" and sheet.has("deepspeed_config", "deepspeed"):
        sheet.notes.append("DeepSpeed's bf16 optimizer shards its state with stage 0 too: zero=1")
        return 1
    return min(stage, 3)


def _chunks(sheet: Sheet, stages: int, spec: dict[str, Any] | None) -> int:
    """Return the chunks of a stage, where it has several."""
    if chunks := sheet.whole_number("num_virtual_stages_per_pipeline_rank"):
        return chunks
    layers_a_chunk, layers = (
        sheet.whole_number("num_layers_per_virtual_pipeline_stage"),
        (spec or {}).get("layers"),
    )
    if layers_a_chunk is None or layers is None:
        return 0
    if layers % (stages * layers_a_chunk):
        setting = sheet.setting("num_layers_per_virtual_pipeline_stage")
        sheet.fault(
            setting,
            f"{layers} layers are not dealt to {stages} stages by {layers_a_chunk}",
            f"a divisor of {layers / stages:g}",
        )
    return int(max(1, layers // (stages * layers_a_chunk)))

"""Megatron-LM and its descendants: a training by their arguments, with DeepSpeed's file beside."""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.frameworks.megatron_model import block
from oracle.readers.frameworks.megatron_state import optimizer, precision, recompute, software
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

NAME = "Megatron-LM"
MATTERS = re.compile(
    r"parallel|recompute|offload|^moe_|overlap|pipeline|^fp[48]|layout|window|mtp|cuda_graph|"
    r"num_layers_at|ddp_|fsdp|dtype|deepep|offset|^torch_|partition|^distribute_|^deepspeed\.(zero|"
    r"tensor|pipeline|communication|data_types|activation)"
)
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def claims(sheet: Sheet) -> int:
    own = ("num_layers", "hidden_size", "num_attention_heads", "micro_batch_size",
           "tensor_model_parallel_size", "pipeline_model_parallel_size", "model_parallel_size",
           "seq_length", "global_batch_size")  # fmt: skip
    return sum(name in sheet.settings for name in own)


def training(sheet: Sheet, given: Given) -> Training:
    """Degrees by the arguments, replicas by the devices that are left."""
    tensor = sheet.whole("tensor_model_parallel_size", "model_parallel_size", default=1) or 1
    stages = sheet.whole("pipeline_model_parallel_size", default=1) or 1
    context = sheet.whole("context_parallel_size", default=1) or 1
    expert = sheet.whole("expert_model_parallel_size", default=1) or 1
    inner = tensor * stages * context
    place = sheet.said("tensor_model_parallel_size", "model_parallel_size",
                       "pipeline_model_parallel_size")  # fmt: skip
    what = f"tensor {tensor} × pipeline {stages} × context {context}"
    devices, data = replicas(sheet, given, inner, what, place)
    micro = sheet.required("micro_batch_size", "batch_size",
                           "deepspeed.train_micro_batch_size_per_gpu")  # fmt: skip
    batch = sheet.whole("global_batch_size", "deepspeed.train_batch_size") or micro * data
    _same(sheet, micro, batch)
    said = sheet.said("global_batch_size", "deepspeed.train_batch_size")
    pieces = micro_batches(sheet, batch, micro, data, said)
    spec = block(sheet, tensor) if given.model is None else None
    kind = precision(sheet)
    axes = _axes(sheet, (stages, data, context, tensor, expert), pieces, spec, kind)
    mode = recompute(sheet)
    axes += [("recompute", mode, {})] if mode != "none" else []
    sheet.check()
    named, tool = called(sheet), given.software or software(sheet, kind)
    how = optimizer(sheet)
    first = next(iter(sheet.texts)).rpartition("/")[2]
    model = given.model or {"name": named, "source": f"arguments of {first}", "transformer": spec}
    notes = (*sheet.notes, *left(sheet, MATTERS))
    return Training(model, tool, plan_text(axes), batch, devices, kind, how, NAME, named, notes)


def _same(sheet: Sheet, micro: int, batch: int) -> None:
    """DeepSpeed's file must say the batch that the arguments say."""
    for name, value in (("deepspeed.train_micro_batch_size_per_gpu", micro),
                        ("deepspeed.train_batch_size", batch)):  # fmt: skip
        said = sheet.said(name)
        if said and said.text != "auto" and sheet.as_whole(name, said) not in (None, value):
            what = f"`{name.partition('.')[2]}` is {said.text}, the arguments say {value}"
            sheet.fault(said, what, "the same in both")


def _axes(
    sheet: Sheet, degrees: tuple[int, int, int, int, int], pieces: int,
    spec: dict[str, Any] | None, kind: str,
) -> list[tuple[str, Any, dict[str, Any]]]:  # fmt: skip
    """The axes of the plan, outermost first."""
    stages, data, context, tensor, expert = degrees
    zero = _zero(sheet, kind)
    found: dict[str, tuple[str, Any, dict[str, Any]]] = {}
    if stages > 1:
        knobs: dict[str, Any] = {"segments": pieces}
        if chunks := _chunks(sheet, stages, spec):
            knobs["interleave"] = chunks
        found["pipeline"] = ("pipeline", stages, knobs)
    own: dict[str, Any] = {"zero": zero} if zero else {}
    if stages == 1 and pieces > 1:
        own["accumulate"] = pieces
    groups = sheet.whole("num_distributed_optimizer_instances", default=1) or 1
    if groups > 1 and zero == 1 and data % groups == 0:
        own.pop("zero")
        found["data"] = ("data", groups, own)
        found["sharded"] = ("sharded", data // groups, {"zero": 1})
    elif data > 1 or own:
        found["data"] = ("data", data, own)
    if context > 1:
        turned = sheet.word("cp_comm_type", default="p2p") == "a2a"
        found["context"] = ("context", context, {"kind": "alltoall"} if turned else {})
    if tensor > 1:
        cut = sheet.has("sequence_parallel")
        found["tensor"] = ("tensor", tensor, {"sequence": "on"} if cut else {})
    sheet.asked |= {"sequence_parallel", "cp_comm_type"}
    if expert > 1:
        whole = sheet.whole("expert_tensor_parallel_size", default=tensor) == 1 < tensor
        found["expert"] = ("expert", expert, {"cut": "whole"} if whole else {})
        _dealt(sheet, expert, data)
    order = ["pipeline", "data", "sharded", "context", "tensor", "expert"]
    if sheet.has("use_tp_pp_dp_mapping"):
        order = ["data", "sharded", "pipeline", "context", "tensor", "expert"]
    return [found[name] for name in order if name in found]


def _dealt(sheet: Sheet, expert: int, data: int) -> None:
    experts = sheet.whole("num_experts")
    said = sheet.said("expert_model_parallel_size")
    if experts and experts % expert:
        sheet.fault(said, f"{experts} experts are not dealt evenly to {expert}", "a divisor")
    if data % expert:
        what = f"experts over {expert} devices do not divide the {data} replicas"
        sheet.fault(said, what, f"a multiple of {expert} replicas: --devices N")


def _zero(sheet: Sheet, kind: str) -> int:
    """What replicas share out: 1 optimizer, 2 gradients, 3 weights."""
    if sheet.has("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2"):
        word = sheet.word("data_parallel_sharding_strategy", default="optim_grads_params")
        if word not in SHARDING:
            what = f"`data_parallel_sharding_strategy` is `{word[:40]}`"
            said = sheet.said("data_parallel_sharding_strategy")
            sheet.fault(said, what, ", ".join(SHARDING), "E110")
        return SHARDING.get(word, 3)
    sheet.asked.add("data_parallel_sharding_strategy")
    if sheet.has("use_distributed_optimizer"):
        return 1
    stage = sheet.whole("deepspeed.zero_optimization.stage", "zero_stage", default=0, least=0) or 0
    sheet.asked |= {"deepspeed.zero_optimization", "deepspeed.bf16", "deepspeed.fp16"}
    if not stage and kind == "bf16" and sheet.has("deepspeed_config", "deepspeed"):
        sheet.notes.append("DeepSpeed's bf16 optimizer shards its state with stage 0 too: zero=1")
        return 1
    return min(stage, 3)


def _chunks(sheet: Sheet, stages: int, spec: dict[str, Any] | None) -> int:
    """Chunks of a stage, where there are several."""
    if chunks := sheet.whole("num_virtual_stages_per_pipeline_rank"):
        return chunks
    each, layers = sheet.whole("num_layers_per_virtual_pipeline_stage"), (spec or {}).get("layers")
    if each is None or layers is None:
        return 0
    if layers % (stages * each):
        said = sheet.said("num_layers_per_virtual_pipeline_stage")
        sheet.fault(said, f"{layers} layers are not dealt to {stages} stages by {each}",
                    f"a divisor of {layers / stages:g}")  # fmt: skip
    return int(max(1, layers // (stages * each)))

"""Software, precision and recomputation, by the arguments of Megatron-LM and its descendants.

It names `recompute`, since the arguments may list parts of layers.
"""

from __future__ import annotations

import re

from oracle.plan.strategies.recompute import MODULES
from oracle.readers.jobs.sheet import Sheet

# arguments that tell the date of a version: the oldest that has them
ERAS = {
    "megatron-lm-2020": ("model_parallel_size", "fp32_allreduce", "batch_size"),
    "megatron-lm-2022": ("use_distributed_optimizer", "sequence_parallel",
                         "recompute_activations", "recompute_granularity", "num_experts"),
    "megatron-lm-2021": ("DDP_impl", "checkpoint_activations", "data_impl",
                         "activations_checkpoint_method", "use_contiguous_buffers_in_ddp"),
}  # fmt: skip
MODERN = re.compile(
    r"overlap_(grad|param)|use_mcore|transformer_impl|attention_backend|swiglu|group_query|"
    r"context_parallel|expert_model|ckpt_format|fp[48]_|disable_bias|normalization|megatron_fsdp|"
    r"grad_reduce|position_embedding_type|untie|cross_entropy_loss|num_virtual_stages|tp_comm|"
    r"add_qkv|use_flash_attn|wandb"
)
TYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8", "bfloat16": "bf16"}


def software(sheet: Sheet, precision: str) -> str:
    """Return the software of the arguments' date, with the fields that they change."""
    if sheet.has("deepspeed", "deepspeed_config"):
        sheet.names_read.add("zero_stage")
        changes = ["kernels.attention=flash1"] if sheet.has("use_flash_attn") else []
        return ",".join(["megatron-deepspeed", *changes])
    names = set(sheet.settings)
    if not any(MODERN.search(name) for name in names):
        for era, signs in ERAS.items():
            if names & set(signs):
                return era
    return ",".join(["megatron-core", *_core(sheet, precision)])


def _core(sheet: Sheet, precision: str) -> list[str]:
    """Return the fields of Megatron-Core that a command line changes or leaves out."""
    changes = []
    if not sheet.has("overlap_grad_reduce"):
        changes.append("exchange.overlap=none")
    if not sheet.has("overlap_param_gather"):
        changes.append("gather.overlap=none")
    if sheet.has("grad_reduce_in_bf16"):
        changes.append("exchange.gradients=bf16")
    elif precision == "fp16" and not sheet.has("accumulate_allreduce_grads_in_fp32"):
        changes.append("exchange.gradients=fp16")
    if sheet.has("fp8_param_gather"):
        changes.append("gather.wire=fp8")
    if sheet.has("tp_comm_overlap"):
        changes += [f"tensor.{name}=pipelined"
                    for name in ("forward_column", "forward_row", "backward_row")]  # fmt: skip
    if sheet.has("no_overlap_p2p_communication"):
        changes.append("borders.overlap=none")
    if sheet.word("attention_backend") in ("unfused", "local"):
        changes.append("kernels.attention=unfused")
    if sheet.has("use_precision_aware_optimizer"):
        for name, key in (("main_params_dtype", "masters"), ("exp_avg_dtype", "moments")):
            kind = TYPES.get(sheet.word(name, default="fp32"), "fp32")
            changes += [f"state.{key}={kind}"] if kind != "fp32" else []
    return changes


def precision(sheet: Sheet) -> str:
    """Return the precision of products and activations; the narrowest one that is set."""
    sheet.names_read |= {"bf16", "fp16"}
    if sheet.has("fp4_format", "fp4"):
        return "nvfp4"
    if sheet.has("fp8_format", "fp8_hybrid", "fp8_e4m3", "fp8"):
        return "mxfp8" if sheet.word("fp8_recipe", default="") == "mxfp8" else "fp8"
    for name in ("bf16", "fp16"):
        if sheet.has(name) or sheet.word(f"deepspeed.{name}.enabled") == "True":
            return name
    return "fp32"


def optimizer(sheet: Sheet) -> str:
    kind = sheet.word("optimizer", default="adam")
    if kind == "sgd":
        rate = sheet.word("sgd_momentum", default="0.9")
        return "momentum" if rate.strip("0.") else "sgd"
    if kind != "adam":
        complaint = f"the optimizer `{kind[:40]}` is not known"
        sheet.fault(sheet.setting("optimizer"), complaint, "adam or sgd", "E110")
    return "adam"


def recompute(sheet: Sheet) -> str:
    """Return the recomputation of each layer: none, selective, full, or the names of parts."""
    kind = sheet.word("recompute_granularity")
    old = sheet.has("checkpoint_activations", "activations_checkpoint_method")
    if sheet.has("recompute_activations") and not kind:
        kind = "selective"
    kind = kind or ("full" if old else "none")
    if kind not in ("none", "selective", "full"):
        complaint = f"`recompute_granularity` is `{kind[:40]}`"
        sheet.fault(sheet.setting("recompute_granularity"), complaint, "selective or full", "E110")
        return "none"
    method = sheet.word("recompute_method", "activations_checkpoint_method", default="uniform")
    count = sheet.whole_number(
        "recompute_num_layers", "activations_checkpoint_num_layers", default=1
    )
    if kind == "full" and (method == "block" or (count or 1) > 1):
        setting = sheet.setting("recompute_num_layers", "recompute_method",
                                "activations_checkpoint_num_layers")  # fmt: skip
        place = setting.place if setting else ""
        sheet.notes.append(f"{place}: recomputation by {method} of {count} is counted as that of "
                           "each layer")  # fmt: skip
    modules = sheet.setting("recompute_modules")
    if kind != "selective" or not modules:
        return kind
    named = dict.fromkeys(re.findall(r"[a-z_]+", modules.text)) or ["core_attn"]
    if unknown := [name for name in named if name not in MODULES]:
        sheet.notes.append(f"{modules.place}: recomputation of {', '.join(unknown)[:60]} is not "
                           "counted")  # fmt: skip
    counted = [name for name in named if name in MODULES]
    return "selective" if counted == ["core_attn"] else "+".join(counted) or "none"

"""A program for NeMo 2 that builds the model and trains it as the plan has it.

What Megatron-LM is told as options, NeMo is told as fields: NVIDIA/NeMo, @8cfedd7203
nemo/collections/llm, nemo/lightning; NVIDIA/Megatron-LM, core_v0.14.0 megatron/core.
"""

from __future__ import annotations

from typing import Any

from oracle.spec.precision import NARROW
from oracle.writers import megatron
from oracle.writers.exported import Job, Start, filled

TITLE = "NeMo 2 program (Python)"
# options of Megatron-LM -> fields of the model's configuration
MODEL = {
    "--num-layers": "num_layers", "--hidden-size": "hidden_size",
    "--num-attention-heads": "num_attention_heads", "--ffn-hidden-size": "ffn_hidden_size",
    "--kv-channels": "kv_channels", "--num-query-groups": "num_query_groups",
    "--seq-length": "seq_length", "--vocab-size": "vocab_size",
    "--make-vocab-size-divisible-by": "make_vocab_size_divisible_by",
    "--position-embedding-type": "position_embedding_type", "--rotary-base": "rotary_base",
    "--normalization": "normalization", "--swiglu": "gated_linear_unit",
    "--add-qkv-bias": "add_qkv_bias", "--qk-layernorm": "qk_layernorm",
    "--attention-dropout": "attention_dropout",
    "--hidden-dropout": "hidden_dropout", "--num-experts": "num_moe_experts",
    "--moe-router-topk": "moe_router_topk", "--moe-ffn-hidden-size": "moe_ffn_hidden_size",
    "--moe-shared-expert-intermediate-size": "moe_shared_expert_intermediate_size",
    "--moe-grouped-gemm": "moe_grouped_gemm",
    "--moe-token-dispatcher-type": "moe_token_dispatcher_type",
    "--moe-enable-deepep": "moe_enable_deepep", "--moe-deepep-num-sms": "moe_deepep_num_sms",
    "--overlap-moe-expert-parallel-comm": "overlap_moe_expert_parallel_comm",
    "--delay-wgrad-compute": "delay_wgrad_compute",
    "--moe-shared-expert-overlap": "moe_shared_expert_overlap",
    "--moe-permute-fusion": "moe_permute_fusion",
    "--moe-router-load-balancing-type": "moe_router_load_balancing_type",
    "--recompute-granularity": "recompute_granularity", "--recompute-method": "recompute_method",
    "--recompute-num-layers": "recompute_num_layers", "--cp-comm-type": "cp_comm_type",
}  # fmt: skip
STRATEGY = {
    "--tensor-model-parallel-size": "tensor_model_parallel_size",
    "--sequence-parallel": "sequence_parallel",
    "--pipeline-model-parallel-size": "pipeline_model_parallel_size",
    "--pipeline-model-parallel-layout": "pipeline_model_parallel_layout",
    "--context-parallel-size": "context_parallel_size",
    "--expert-model-parallel-size": "expert_model_parallel_size",
    "--expert-tensor-parallel-size": "expert_tensor_parallel_size",
    "--use-tp-pp-dp-mapping": "use_tp_pp_dp_mapping",
    "--num-distributed-optimizer-instances": "num_distributed_optimizer_instances",
}
DDP = {
    "--use-distributed-optimizer": "use_distributed_optimizer",
    "--overlap-grad-reduce": "overlap_grad_reduce",
    "--overlap-param-gather": "overlap_param_gather", "--ddp-bucket-size": "bucket_size",
    "--data-parallel-sharding-strategy": "data_parallel_sharding_strategy",
}  # fmt: skip
# options without a field of their own: another field of the group says the same
IMPLIED = {
    "--recompute-modules",
    "--group-query-attention", "--max-position-embeddings", "--rotary-percent",
    "--disable-bias-linear", "--untie-embeddings-and-output-weights", "--attention-backend",
    "--moe-aux-loss-coeff", "--tp-comm-overlap", "--num-virtual-stages-per-pipeline-rank",
    "--no-overlap-p2p-communication", "--no-scatter-gather-tensors-in-pipeline",
    "--use-megatron-fsdp", "--ckpt-format", "--no-gradient-accumulation-fusion",
    "--init-model-with-meta-device", "--grad-reduce-in-bf16",
    "--accumulate-allreduce-grads-in-fp32", "--micro-batch-size", "--global-batch-size", "--bf16",
    "--fp16", "--fp8-format", "--fp8-param-gather", "--fp8-recipe", "--fp4-format", "--fp4-recipe",
    "--optimizer", "--sgd-momentum", "--clip-grad",
}  # fmt: skip


def files(job: Job) -> dict[str, str]:
    return {"job.py": filled("nemo_job.py", constants(job))}


def start(job: Job) -> Start:
    """Return the complete job, started from its own folder."""
    lines = ["unset CUDA_DEVICE_MAX_CONNECTIONS"] if job.zero >= 2 else megatron.single_queue(job)
    return Start(
        files(job), ("job.py",), "NVIDIA NeMo 2.5 (@8cfedd7203), as its container has it",
        megatron.order(job), tuple(lines),
    )  # fmt: skip


def constants(job: Job) -> dict[str, dict[str, Any] | int]:
    """Return the groups of fields that the program passes on."""
    arguments = {flag: value for flag, value in megatron.arguments(job)
                 if value is not None and value is not False}  # fmt: skip
    unknown = set(arguments) - set(MODEL) - set(STRATEGY) - set(DDP) - IMPLIED
    if unknown:
        raise job.refuse("NeMo", f"is not told {', '.join(sorted(unknown))}")
    block, precision = job.block("NeMo"), job.estimate.options.precision
    narrow, fully_sharded = "--grad-reduce-in-bf16" in arguments, job.zero >= 2
    model = picked(arguments, MODEL) | {
        "share_embeddings_and_output_weights": block.tied_embeddings,
        "add_bias_linear": "--disable-bias-linear" not in arguments,
        "gradient_accumulation_fusion": not fully_sharded,
    }
    if "--recompute-modules" in arguments:
        model["recompute_modules"] = arguments["--recompute-modules"].split()
    if block.experts:
        model["moe_aux_loss_coeff"] = float(arguments["--moe-aux-loss-coeff"])
    strategy = picked(arguments, STRATEGY)
    chunks = job.knob("pipeline", "interleave") if job.degree("pipeline") > 1 else 1
    if chunks > 1:
        strategy["virtual_pipeline_model_parallel_size"] = chunks
    if fully_sharded:
        strategy |= {"fsdp": "megatron", "save_ckpt_format": "fsdp_dtensor"}
    exchange = picked(arguments, DDP) | {
        "grad_reduce_in_fp32": not narrow, "average_in_collective": narrow or not fully_sharded,
        "overlap_grad_reduce": "--overlap-grad-reduce" in arguments,
    }  # fmt: skip
    gather = "--fp8-param-gather" in arguments
    narrow_ones: dict[str, dict[str, Any]] = {
        "fp8": {"fp8": "hybrid", "fp8_param_gather": gather},
        "mxfp8": {"fp8": "hybrid", "fp8_recipe": "mxfp8", "fp8_param_gather": gather},
        "nvfp4": {"fp4": "e2m1", "fp4_recipe": "nvfp4"},
    }
    return {
        "MODEL": model,
        "STRATEGY": strategy,
        "DDP": exchange,
        "PRECISION": {
            "precision": {"fp16": "16-mixed", "fp32": "32", "tf32": "32"}.get(
                precision, "bf16-mixed"
            ),
            "autocast_enabled": False,
            "grad_reduce_in_fp32": not narrow,
            **narrow_ones.get(precision, {}),
        },
        "OVERLAP": {
            "tp_comm_overlap": "--tp-comm-overlap" in arguments,
            "overlap_grad_reduce": exchange["overlap_grad_reduce"],
            "overlap_param_gather": "--overlap-param-gather" in arguments,
            **({"bucket_size": exchange["bucket_size"]} if "bucket_size" in exchange else {}),
        },
        "OPTIMIZER": {
            "optimizer": arguments["--optimizer"],
            "lr": 1e-4,
            "weight_decay": 0.1,
            "clip_grad": 1.0,
            "bf16": precision in ("bf16", *NARROW),
            "fp16": precision == "fp16",
            "use_distributed_optimizer": job.zero >= 1,
            **(
                {"sgd_momentum": arguments["--sgd-momentum"]}
                if "--sgd-momentum" in arguments
                else {}
            ),
        },
        "DATA": {
            "seq_length": block.sequence,
            "micro_batch_size": job.micro,
            "global_batch_size": job.batch,
        },
        "NODES": job.nodes,
        "PER_NODE": job.per_node,
    }


def picked(arguments: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the arguments of a group, by the names of its fields."""
    return {name: arguments[flag] for flag, name in names.items() if flag in arguments}

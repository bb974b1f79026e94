"""Arguments of Megatron-LM, one a line: `pretrain_gpt.py $(cat megatron.args)`."""

from __future__ import annotations

from typing import Any

from oracle.models.transformer import Transformer
from oracle.writers.job import Job, options

TITLE = "Megatron-LM arguments"
ORDER = ("pipeline", "data", "sharded", "context", "tensor")  # its ranks, outermost first
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


def files(job: Job) -> dict[str, str]:
    split = parallel(job)
    return {"megatron.args": options([*model(job), *split, *training(job)])}


def model(job: Job) -> list[tuple[str, Any]]:
    """The sizes of the model, as its own flags say them."""
    block = job.block("Megatron-LM")
    if block.embedding_norm or block.segments or block.pooler or not block.final_norm:
        raise job.refuse("Megatron-LM's GPT", "has no such embedding or heads", "a GPT-like model")
    function = block.activation or ("silu" if block.gated else "gelu")
    if function != ("silu" if block.gated else "gelu"):
        raise job.refuse("Megatron-LM", f"has no flag for {'gated ' * block.gated}`{function}`")
    if not block.causal or block.window:
        raise job.refuse("Megatron-LM's GPT", "attends to all words before, no more and no fewer")
    gated, kv_heads = block.gated, block.kv_heads or block.heads
    bias = not gated if block.bias is None else block.bias
    positions = block.positions or ("rotary" if gated else "learned")
    words = {"learned": "learned_absolute", "rotary": "rope", "none": "none"}
    rms = (block.norm or ("rms" if gated else "layer")) == "rms"
    dropout = 0.1 if block.dropout else 0.0
    return [
        ("--num-layers", block.layers), ("--hidden-size", block.hidden),
        ("--num-attention-heads", block.heads), ("--ffn-hidden-size", _ffn(block)),
        ("--kv-channels", block.width),
        ("--group-query-attention", kv_heads != block.heads),
        ("--num-query-groups", kv_heads if kv_heads != block.heads else None),
        ("--seq-length", block.sequence), ("--max-position-embeddings", block.sequence),
        ("--vocab-size", block.vocab), ("--make-vocab-size-divisible-by", 128),
        ("--position-embedding-type", words[positions]),
        ("--normalization", "RMSNorm" if rms else "LayerNorm"),
        ("--swiglu", gated),
        ("--disable-bias-linear", not bias),
        ("--add-qkv-bias", bool(block.qkv_bias) and not bias),
        ("--untie-embeddings-and-output-weights", not block.tied_embeddings),
        ("--attention-dropout", dropout), ("--hidden-dropout", dropout),
        ("--attention-backend", "flash" if block.flash else "unfused"),
        ("--num-experts", block.experts or None),
        ("--moe-router-topk", block.active if block.experts else None),
        ("--moe-ffn-hidden-size", _ffn(block) if block.experts else None),
        ("--moe-shared-expert-intermediate-size",
         block.shared * _ffn(block) if block.experts and block.shared else None),
    ]  # fmt: skip


def _ffn(block: Transformer) -> int:
    return block.ffn or 4 * block.hidden


def parallel(job: Job) -> list[tuple[str, Any]]:
    """Degrees and schedule; the order in which axes nest must be one of its own."""
    job.only("Megatron-LM", ORDER)
    title = "Megatron-LM"
    order = [name for name, _ in job.axes]
    swapped = order[:1] != ["pipeline"] and "pipeline" in order
    wanted = ("data", "sharded", "pipeline", "context", "tensor") if swapped else ORDER
    if order != sorted(order, key=wanted.index):
        raise job.refuse(title, f"cannot nest {' outside '.join(order)}",
                         "pipeline, data, context, tensor in this order")  # fmt: skip
    if swapped and job.degree("expert") > 1:
        raise job.refuse(title, "deals experts inside the pipeline here", "pipeline outermost")
    if job.degree("pipeline") > 1:
        if job.word("pipeline", "schedule") != "1f1b" and job.segments > 1:
            raise job.refuse(title, "schedules 1F1B only", "schedule=1f1b")
        if job.knob("pipeline", "cuts") == 1:
            raise job.refuse(title, "deals layers evenly", "cuts=even")
        block = job.block(title)
        chunks = job.degree("pipeline") * job.knob("pipeline", "interleave")
        if block.layers % chunks:
            raise job.refuse(title, f"cannot deal {block.layers} layers to {chunks} chunks evenly")
    whole = job.degree("tensor") > 1 and job.knob("tensor", "sequence") == 0
    if whole and job.transformer is not None and job.transformer.experts:
        raise job.refuse(title, "cuts mixtures by tensor only with the tokens", "sequence=on")
    interleave = job.knob("pipeline", "interleave") if job.degree("pipeline") > 1 else 1
    expert, overlap = job.degree("expert"), job.word("data", "overlap") == "on"
    whole_experts = job.word("expert", "cut") == "whole"  # else they are cut as all is
    context, turned = job.degree("context"), job.knob("context", "kind") == 1
    sharded = job.degree("sharded") > 1 and job.degree("data") > 1
    if sharded and job.zero != 1:
        raise job.refuse(title, "shares out only the optimizer within groups", "sharded:N,zero=1")
    return [
        ("--tensor-model-parallel-size", job.degree("tensor")),
        ("--sequence-parallel", job.degree("tensor") > 1 and job.knob("tensor", "sequence") == 1),
        ("--pipeline-model-parallel-size", job.degree("pipeline")),
        ("--num-virtual-stages-per-pipeline-rank", interleave if interleave > 1 else None),
        ("--use-tp-pp-dp-mapping", swapped),
        ("--context-parallel-size", context),
        ("--cp-comm-type", ("a2a" if turned else "p2p") if context > 1 else None),
        ("--expert-model-parallel-size", expert if expert > 1 else None),
        ("--expert-tensor-parallel-size", 1 if expert > 1 and whole_experts else None),
        ("--use-distributed-optimizer", job.zero >= 1),
        ("--num-distributed-optimizer-instances", job.degree("data") if sharded else None),
        ("--use-megatron-fsdp", job.zero >= 2),
        ("--data-parallel-sharding-strategy", SHARDING.get(job.zero)),
        ("--overlap-grad-reduce", job.replicas > 1 and overlap),
        ("--overlap-param-gather", job.zero >= 1 and overlap),
    ]  # fmt: skip


def training(job: Job) -> list[tuple[str, Any]]:
    """Batch, precision, optimizer and recomputation."""
    said = job.estimate.options
    if said.optimizer in ("lars", "lamb"):
        raise job.refuse("Megatron-LM", f"has no `{said.optimizer}`", "--optimizer adam")
    momentum = {"momentum": 0.9, "sgd": 0.0}.get(said.optimizer)
    if job.recompute == "operators":
        raise job.refuse("Megatron-LM", "does not recompute by operators", "recompute:selective")
    full = job.recompute == "full"
    return [
        ("--micro-batch-size", job.micro), ("--global-batch-size", job.batch),
        ("--bf16", said.precision in ("bf16", "fp8")), ("--fp16", said.precision == "fp16"),
        ("--fp8-format", "hybrid" if said.precision == "fp8" else None),
        ("--optimizer", "adam" if momentum is None else "sgd"), ("--sgd-momentum", momentum),
        ("--clip-grad", 1.0),
        ("--recompute-granularity", None if job.recompute == "none" else job.recompute),
        ("--recompute-method", "uniform" if full else None),
        ("--recompute-num-layers", 1 if full else None),
    ]  # fmt: skip

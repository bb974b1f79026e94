"""Arguments of Megatron-LM, one a line: `pretrain_gpt.py $(cat megatron.args)`.

Arguments have the names of the newest version, or of an older one that the software names.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from oracle.models.transformer import Transformer
from oracle.spec.files import read_json
from oracle.spec.precision import NARROW
from oracle.spec.software import Software
from oracle.writers.exported import Job, Start, options

TITLE = "Megatron-LM arguments"
USUAL = "megatron-core"  # where no software is said
ORDER = ("pipeline", "data", "sharded", "context", "tensor")  # its ranks, outermost first
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
# defaults, so that a version without the option need not be told
IMPLIED = {
    "--position-embedding-type": "learned_absolute", "--normalization": "LayerNorm",
    "--optimizer": "adam", "--make-vocab-size-divisible-by": 128,
}  # fmt: skip
# only a newer version knows these, and an older one has no other way
NEWER = ("--attention-backend", "--ddp-bucket-size", "--vocab-size")
RENAMED = {"--accumulate-allreduce-grads-in-fp32": "--fp32-allreduce"}
Pairs = list[tuple[str, Any]]


def files(job: Job) -> dict[str, str]:
    return {"megatron.args": options(named(arguments(job), job, version(job.run_by(USUAL))))}


def arguments(job: Job) -> Pairs:
    """Return the arguments of the plan, the model and the software."""
    run = job.run_by(USUAL)
    split = parallel(job, run)
    return [*model(job, run), *split, *training(job, run)]


def start(job: Job) -> Start:
    """Return the complete job, with made-up data where the version can make it."""
    run = job.run_by(USUAL)
    release = version(run)
    made_up = "--mock-data" in flags(release)
    all_arguments = {**dict(arguments(job)), **dict(schedule(job, made_up))}
    files = {"megatron.args": options(named(list(all_arguments.items()), job, release))}
    command = ["pretrain_gpt.py", '"${ARGUMENTS[@]}"', '--train-iters "$STEPS"']
    if not made_up:
        command += ['--data-path "${DATA_PATH:?as tools/preprocess_data.py wrote it}"',
                    '--vocab-file "${VOCAB_FILE:?of GPT-2}"',
                    '--merge-file "${MERGE_FILE:?of GPT-2}"']  # fmt: skip
    lines = ["unset CUDA_DEVICE_MAX_CONNECTIONS"] if job.zero >= 2 else single_queue(job)
    read = 'read -r -d "" -a ARGUMENTS <"$HERE/megatron.args" || true'
    return Start(
        files,
        tuple(command),
        f"a checkout of NVIDIA/Megatron-LM at {commit(release)} with what it requires, its folder "
        "in MEGATRON",
        order(job),
        (read, *lines),
        "MEGATRON",
    )


def single_queue(job: Job) -> list[str]:
    """Return shell that, before Blackwell, keeps kernels from overtaking messages of tensors."""
    if job.degree("tensor") == 1 and job.degree("context") == 1:
        return []
    query = "nvidia-smi --query-gpu=compute_cap --format=csv,noheader"
    return [
        f'GENERATION="$({query} | head -n 1 | cut -d. -f1)"',
        'if [[ "${GENERATION:-9}" -lt 10 ]]; then export CUDA_DEVICE_MAX_CONNECTIONS=1; fi',
    ]


def order(job: Job) -> str:
    """Return how its ranks nest, in words."""
    swapped = nested(job)[0] == "data"
    nesting = "data, pipeline" if swapped else "pipeline, data"
    more = " (--use-tp-pp-dp-mapping)" if swapped else ""
    if job.degree("expert") > 1:
        more += "; experts are dealt to neighbouring ranks of context and data"
    return f"{nesting}, context, tensor{more}"


def schedule(job: Job, made_up: bool) -> Pairs:
    """Return the arguments that a run needs beside the plan: learning rate, data, a log."""
    block = job.block("Megatron-LM")
    if not made_up:
        job.notes.append(f"the vocabulary is that of GPT-2's files, not of {block.vocab} words")
    arguments: Pairs = [
        ("--lr", "1e-4"), ("--min-lr", "1e-5"), ("--lr-decay-style", "cosine"),
        ("--weight-decay", 0.1), ("--log-interval", 1), ("--eval-iters", 0),
        ("--eval-interval", 1_000_000), ("--save-interval", 1_000_000),
        ("--split", "99,1,0" if made_up else "949,50,1"),
        ("--tokenizer-type", "NullTokenizer" if made_up else "GPT2BPETokenizer"),
    ]  # fmt: skip
    if made_up:  # its end of text is one word more
        arguments += [("--mock-data", True), ("--vocab-size", block.vocab - 1)]
    return arguments


# ------------------------------------------------------------------ names of a version


@lru_cache(1)
def versions() -> dict[str, Any]:
    """Return the names that each version takes, from `python -m benchmarks.pinned_names`."""
    place = Path(__file__).with_name("megatron_flags.json")
    names: dict[str, Any] = read_json(place)
    return names


def version(run: Software) -> str:
    """Return the version of a software, or the newest one whose names are known."""
    if run.framework == "Megatron-LM" and run.version in versions():
        return run.version
    return next(name for name in reversed(versions()))  # the newest


def flags(version: str) -> dict[str, Any]:
    names: dict[str, Any] = versions()[version]["flags"]
    return names


def commit(version: str) -> str:
    return str(versions()[version]["commit"])


def named(pairs: Pairs, job: Job, version: str) -> Pairs:
    """Return the arguments by the names that a version has for them."""
    flag_names, block = flags(version), job.block("Megatron-LM")
    implied = {**IMPLIED, "--ffn-hidden-size": 4 * block.hidden,
               "--kv-channels": block.hidden // block.heads}  # fmt: skip
    renamed: Pairs = []
    missing: list[str] = []
    for flag, value in pairs:
        if value is None or value is False:
            continue
        if flag in flag_names:
            renamed.append((flag, value))
        elif RENAMED.get(flag) in flag_names:
            renamed.append((RENAMED[flag], value))
        elif flag == "--num-virtual-stages-per-pipeline-rank":
            chunks = job.degree("pipeline") * int(value)
            renamed.append(("--num-layers-per-virtual-pipeline-stage", block.layers // chunks))
        elif flag == "--recompute-granularity" and value == "full":
            renamed += [("--checkpoint-activations", True), ("--checkpoint-num-layers", 1)]
        elif flag.startswith("--recompute-") or flag in NEWER or implied.get(flag) == value:
            continue
        else:
            missing.append(f"`{flag}`" if value is True else f"`{flag} {value}`")
    if missing:
        newest = version == next(reversed(versions()))
        raise job.refuse(f"Megatron-LM at {commit(version)}", f"has no {', '.join(missing)}",
                         "ask for less" if newest else "--software megatron-core")  # fmt: skip
    if "--DDP-impl" in flag_names:
        renamed.append(("--DDP-impl", "local"))
        renamed.append(
            ("--use-contiguous-buffers-in-ddp", "--use-contiguous-buffers-in-ddp" in flag_names)
        )
    return renamed


# ------------------------------------------------------------------ the arguments


def model(job: Job, run: Software) -> Pairs:
    """Return the sizes of the model as arguments."""
    block = job.block("Megatron-LM")
    if block.segments or block.pooler or not block.final_norm:
        raise job.refuse("Megatron-LM's GPT", "has no such embedding or heads", "a GPT-like model")
    if block.embedding_norm:
        job.notes.append("there is no norm after the embedding, which the model has")
    function = block.activation or ("silu" if block.gated else "gelu")
    if function != ("silu" if block.gated else "gelu"):
        raise job.refuse("Megatron-LM", f"has no flag for {'gated ' * block.gated}`{function}`")
    if not block.causal or block.window:
        raise job.refuse("Megatron-LM's GPT", "attends to all words before, no more and no fewer")
    gated, kv_heads = block.gated, block.kv_heads or block.heads
    bias = not gated if block.bias is None else block.bias
    if block.experts and bias:
        raise job.refuse("Megatron-LM", "has no biases in mixtures of experts", "bias: false")
    positions = block.positions or ("rotary" if gated else "learned")
    words = {"learned": "learned_absolute", "rotary": "rope", "none": "none"}
    rms = (block.norm or ("rms" if gated else "layer")) == "rms"
    dropout = 0.1 if block.dropout else 0.0
    rotary = positions == "rotary"
    return [
        ("--num-layers", block.layers), ("--hidden-size", block.hidden),
        ("--num-attention-heads", block.heads), ("--ffn-hidden-size", _ffn(block)),
        ("--kv-channels", block.width or block.hidden // block.heads),
        ("--group-query-attention", kv_heads != block.heads),
        ("--num-query-groups", kv_heads if kv_heads != block.heads else None),
        ("--seq-length", block.sequence), ("--max-position-embeddings", block.sequence),
        ("--vocab-size", block.vocab), ("--make-vocab-size-divisible-by", padding(job, block)),
        ("--position-embedding-type", words[positions]),
        ("--rotary-base", job.rotary if rotary else None),
        ("--rotary-percent", 1.0 if rotary else None),
        ("--normalization", "RMSNorm" if rms else "LayerNorm"),
        ("--swiglu", gated),
        ("--disable-bias-linear", not bias),
        ("--add-qkv-bias", bool(block.qkv_bias) and not bias),
        ("--qk-layernorm", block.qk_norm),
        ("--untie-embeddings-and-output-weights", not block.tied_embeddings),
        ("--attention-dropout", dropout), ("--hidden-dropout", dropout),
        ("--attention-backend", backend(block, run)),
        *(mixture(block, job, run) if block.experts else []),
    ]  # fmt: skip


def backend(block: Transformer, run: Software) -> str:
    """Return the kernels of attention, of the model's spec or else of the software's."""
    flash = run.kernels.attention != "unfused" if block.flash is None else block.flash
    if not flash:
        return "unfused"
    return "auto" if run.kernels.attention == "best" else "flash"


def mixture(block: Transformer, job: Job, run: Software) -> Pairs:
    """Return the arguments of experts, of the router, and of the dispatch of tokens."""
    spec = run.experts
    if spec.dispatcher == "hybridep":
        raise job.refuse("Megatron-LM's core_v0.14.0", "has no HybridEP", "dispatcher=deepep")
    flexible = spec.dispatcher == "deepep"
    return [
        ("--num-experts", block.experts),
        ("--moe-router-topk", block.active),
        ("--moe-ffn-hidden-size", _ffn(block)),
        ("--moe-shared-expert-intermediate-size", block.shared * _ffn(block) or None),
        ("--moe-grouped-gemm", True),
        ("--moe-token-dispatcher-type", "flex" if flexible else spec.dispatcher),
        ("--moe-enable-deepep", flexible),
        ("--moe-deepep-num-sms", spec.processors or None if flexible else None),
        ("--overlap-moe-expert-parallel-comm", spec.overlap == "batch"),
        ("--delay-wgrad-compute", spec.weight_gradients == "delayed"),
        ("--moe-shared-expert-overlap", spec.shared_experts == "beside" and bool(block.shared)),
        ("--moe-permute-fusion", True),
        ("--moe-router-load-balancing-type", "aux_loss"),
        ("--moe-aux-loss-coeff", "1e-2"),
    ]


def padding(job: Job, block: Transformer) -> int:
    """Return the divisor that the vocabulary is padded to, the largest that pads nothing."""
    degree = job.degree("tensor")
    return next((n for n in (128, 64, 32, 16, 8, 4, 2, 1) if block.vocab % (n * degree) == 0), 128)


def _ffn(block: Transformer) -> int:
    return block.ffn or 4 * block.hidden


def nested(job: Job) -> tuple[str, ...]:
    """Return which of its two orders of ranks the plan has."""
    order = [name for name, _ in job.axes]
    swapped = order[:1] != ["pipeline"] and "pipeline" in order
    allowed = ("data", "sharded", "pipeline", "context", "tensor") if swapped else ORDER
    if order != sorted(order, key=allowed.index):
        raise job.refuse("Megatron-LM", f"cannot nest {' outside '.join(order)}",
                         "pipeline, data, context, tensor in this order")  # fmt: skip
    if swapped and job.degree("expert") > 1:
        raise job.refuse("Megatron-LM", "deals experts inside the pipeline here",
                         "pipeline outermost")  # fmt: skip
    return allowed


def parallel(job: Job, run: Software) -> Pairs:
    """Return degrees and schedule; refuse axes that nest in another order than its own."""
    title = "Megatron-LM"
    job.only(title, ORDER)
    swapped = nested(job)[0] == "data"
    whole_tokens = job.degree("tensor") > 1 and job.knob("tensor", "sequence") == 0
    if whole_tokens and job.transformer is not None and job.transformer.experts:
        raise job.refuse(title, "cuts mixtures by tensor only with the tokens", "sequence=on")
    expert = job.degree("expert")
    whole_experts = job.word("expert", "cut") == "whole"  # else they are cut as all is
    context, turned = job.degree("context"), job.knob("context", "kind") == 1
    return [
        ("--tensor-model-parallel-size", job.degree("tensor")),
        ("--sequence-parallel", tokens_cut(job)),
        ("--tp-comm-overlap", tokens_cut(job) and run.tensor.forward_column == "pipelined"),
        ("--pipeline-model-parallel-size", job.degree("pipeline")),
        *stages(job, run),
        ("--use-tp-pp-dp-mapping", swapped),
        ("--context-parallel-size", context if context > 1 else None),
        ("--cp-comm-type", ("a2a" if turned else "p2p") if context > 1 else None),
        ("--expert-model-parallel-size", expert if expert > 1 else None),
        ("--expert-tensor-parallel-size", 1 if expert > 1 and whole_experts else None),
        *exchange(job, run),
    ]


def tokens_cut(job: Job) -> bool:
    return job.degree("tensor") > 1 and job.knob("tensor", "sequence") == 1


def stages(job: Job, run: Software) -> Pairs:
    """Return the chunks of the pipeline: their number a stage, or blocks where uneven."""
    if job.degree("pipeline") == 1:
        return []
    if job.word("pipeline", "schedule") != "1f1b" and job.segments > 1:
        raise job.refuse("Megatron-LM", "schedules 1F1B only", "schedule=1f1b")
    interleave, borders = job.knob("pipeline", "interleave"), job.word("pipeline", "borders")
    job.knob("pipeline", "cuts")  # they are in the chunks
    parts = borders == "parts" or (borders == "usual" and run.borders.scattered)
    layout = None if job.even else laid_out(job)
    return [
        ("--num-virtual-stages-per-pipeline-rank",
         interleave if interleave > 1 and job.even else None),
        ("--pipeline-model-parallel-layout", layout),
        ("--no-overlap-p2p-communication", interleave > 1 and run.borders.overlap == "none"
         and "--no-overlap-p2p-communication" in flags(version(run))),
        ("--no-scatter-gather-tensors-in-pipeline", job.degree("tensor") > 1 and not parts
         and version(run) in ("2.5", "3.0")),
    ]  # fmt: skip


def laid_out(job: Job) -> str:
    """Return the table, blocks and loss of each chunk: `Ett|ttt|ttL`."""
    return "|".join(
        "E" * chunk.embedding + "t" * chunk.layers + "L" * chunk.loss for chunk in job.chunks
    )


def exchange(job: Job, run: Software) -> Pairs:
    """Return how replicas shard state, in which width they send, and which messages overlap."""
    zero, options = job.zero, job.estimate.options
    shared = job.degree("sharded") > 1 and job.degree("data") > 1
    if shared and zero != 1:
        raise job.refuse("Megatron-LM", "shares out only the optimizer within groups",
                         "sharded:N,zero=1")  # fmt: skip
    overlap_on = job.word("data", "overlap") == "on"
    copies = job.replicas * job.degree("context") > 1
    reduced = copies and overlap_on and run.exchange.overlap == "backward"
    gathers = zero >= 1 and run.gather.overlap == "forward"
    gathered = reduced and gathers
    if zero >= 1 and overlap_on and run.gather.overlap == "forward" and not reduced and copies:
        job.notes.append("weights are gathered beside nothing: only with --overlap-grad-reduce")
    narrow = run.exchange.buffer(options.precision) == 2.0 and options.precision in (
        "bf16",
        *NARROW,
    )
    size = job.piece(run)
    flat = reduced and zero < 2 and size is not None
    return [
        ("--use-distributed-optimizer", zero >= 1),
        ("--num-distributed-optimizer-instances", job.degree("data") if shared else None),
        ("--use-megatron-fsdp", zero >= 2),
        ("--data-parallel-sharding-strategy", SHARDING.get(zero)),
        ("--ckpt-format", "fsdp_dtensor" if zero >= 2 else None),
        ("--no-gradient-accumulation-fusion", zero >= 2),
        ("--init-model-with-meta-device", zero >= 2),
        ("--overlap-grad-reduce", reduced), ("--overlap-param-gather", gathered),
        ("--ddp-bucket-size", size if flat else None),
        ("--grad-reduce-in-bf16", narrow),
        ("--accumulate-allreduce-grads-in-fp32",
         not narrow and options.precision in ("bf16", "fp16", *NARROW)
         and run.exchange.buffer(options.precision) == 4.0),
    ]  # fmt: skip


def training(job: Job, run: Software) -> Pairs:
    """Return batch, precision, optimizer and recomputation."""
    options = job.estimate.options
    if options.optimizer not in ("sgd", "momentum", "adam"):
        raise job.refuse("Megatron-LM", f"has no `{options.optimizer}`", "--optimizer adam")
    momentum = {"momentum": 0.9, "sgd": 0.0}.get(options.optimizer)
    if job.recompute == "operators":
        raise job.refuse("Megatron-LM", "does not recompute by operators", "recompute:selective")
    if job.recompute == "stage":
        raise job.refuse("Megatron-LM", "does not recompute whole stages", "recompute:full")
    away = job.word("offload", "what") == "optimizer"
    full, eight = job.recompute == "full", options.precision in ("fp8", "mxfp8")
    recomputed = {"none": None, "best": "full"}.get(job.recompute, job.recompute)
    parts = job.recompute.split("+") if recomputed not in (None, "selective", "full") else None
    layers = job.most_units("recompute") if job.recompute == "best" else int(full)
    four = options.precision == "nvfp4"
    return [
        ("--micro-batch-size", job.micro), ("--global-batch-size", job.batch),
        ("--bf16", options.precision in ("bf16", *NARROW)), ("--fp16", options.precision == "fp16"),
        ("--fp8-format", "hybrid" if eight else None),
        ("--fp8-recipe", "mxfp8" if options.precision == "mxfp8" else None),
        ("--fp4-format", "e2m1" if four else None), ("--fp4-recipe", "nvfp4" if four else None),
        ("--fp8-param-gather",
         options.precision == "fp8" and job.zero >= 1 and run.gather.sent("fp8") == 1.0),
        ("--optimizer", "adam" if momentum is None else "sgd"), ("--sgd-momentum", momentum),
        ("--clip-grad", 1.0),
        ("--recompute-granularity",
         "selective" if parts else recomputed if layers or job.recompute != "best" else None),
        ("--recompute-modules", " ".join(parts) if parts else None),
        ("--recompute-method", "uniform" if full else "block" if layers else None),
        ("--recompute-num-layers", layers or None),
        ("--optimizer-cpu-offload", away), ("--use-precision-aware-optimizer", away),
        ("--optimizer-offload-fraction", 1.0 if away else None),
    ]  # fmt: skip

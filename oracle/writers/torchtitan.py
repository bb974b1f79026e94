"""Overrides for torchtitan's command line, one a line."""

from __future__ import annotations

from typing import Any

from oracle.writers.exported import Job, options

TITLE = "torchtitan overrides"
ORDER = ("pipeline", "data", "sharded", "context", "tensor")
SCHEDULES = {  # its names, by ours and whether stages hold several chunks
    ("gpipe", False): "GPipe", ("1f1b", False): "1F1B", ("1f1b", True): "Interleaved1F1B",
    ("zb-v", True): "ZBVZeroBubble", ("dualpipe-v", True): "DualPipeV",
}  # fmt: skip
RECOMPUTE = {"operators": "selective"}  # every other matrix is kept, as it does by default
CONFIGS = {"llama3-8b": "llama3_8b", "llama3-70b": "llama3_70b", "llama3-405b": "llama3_405b"}


def files(job: Job) -> dict[str, str]:
    return {"torchtitan.args": options([*which(job), *parallel(job), *training(job)])}


def which(job: Job) -> list[tuple[str, Any]]:
    """The module and configuration, for models that it ships; else they are for you to name."""
    config = CONFIGS.get(job.name)
    return [("--module", "llama3"), ("--config", config)] if config else []


def parallel(job: Job) -> list[tuple[str, Any]]:
    """Degrees by its names; replicas are plain (DDP) or shards (FSDP)."""
    title = "torchtitan"
    job.only(title, ORDER)
    order = [name for name, _ in job.axes]
    if order != sorted(order, key=ORDER.index):
        raise job.refuse(title, f"cannot nest {' outside '.join(order)}",
                         "pipeline, data, sharded, context, tensor in this order")  # fmt: skip
    if job.zero == 1:
        raise job.refuse(title, "does not shard the optimizer alone", "zero=2 or zero=3")
    hybrid = job.degree("sharded") > 1
    plain = job.degree("data") if hybrid or job.zero == 0 else 1
    split = job.degree("sharded") if hybrid else job.degree("data") if job.zero else 1
    if hybrid and job.degree("data") > 1 and job.knob("data", "zero"):
        raise job.refuse(title, "shards along one axis only", "data:N without zero")
    if job.degree("context") > 1 and job.knob("context", "kind") == 1:
        raise job.refuse(title, "passes keys round a ring only", "kind=ring")
    if job.degree("expert") > 1 and job.degree("tensor") * job.degree("context") > 1:
        raise job.refuse(title, "deals experts over tensor and context ranks too",
                         "expert parallelism without tensor and context")  # fmt: skip
    shards = "always" if job.zero == 3 else "never"
    sequence = job.knob("tensor", "sequence") == 1
    p = "--parallelism."
    return [
        (p + "data_parallel_replicate_degree", plain), (p + "data_parallel_shard_degree", split),
        (p + "fsdp_reshard_after_forward", shards if job.zero else None),
        (p + "tensor_parallel_degree", job.degree("tensor")),
        (p + ("enable_sequence_parallel" if sequence else "no_enable_sequence_parallel"),
         job.degree("tensor") > 1),
        (p + "context_parallel_degree", job.degree("context")),
        (p + "expert_parallel_degree", job.degree("expert") if job.degree("expert") > 1 else None),
        *_stages(job),
    ]  # fmt: skip


def _stages(job: Job) -> list[tuple[str, Any]]:
    degree, p = job.degree("pipeline"), "--parallelism."
    if degree == 1:
        return [(p + "pipeline_parallel_degree", 1)]
    interleave, order = job.knob("pipeline", "interleave"), job.word("pipeline", "schedule")
    schedule = SCHEDULES.get((order, interleave > 1))
    if schedule is None and interleave > 1:
        raise job.refuse("torchtitan", "interleaves with 1F1B only", "schedule=1f1b")
    if schedule is None:
        raise job.refuse("torchtitan", f"has no schedule `{order}`", "schedule=1f1b")
    if job.knob("pipeline", "cuts") == 1:
        raise job.refuse("torchtitan", "deals layers evenly", "cuts=even")
    block = job.block("torchtitan")
    chunks = degree * interleave
    if block.layers % chunks:
        raise job.refuse("torchtitan", f"cannot deal {block.layers} layers to {chunks} chunks")
    return [
        (p + "pipeline_parallel_degree", degree),
        (p + "pipeline_parallel_schedule", schedule),
        (p + "pipeline_parallel_microbatch_size", job.micro),
        (p + "pipeline_parallel_layers_per_stage", block.layers // chunks),
        (p + "pipeline_parallel_first_stage_less_layers", 0),
        (p + "pipeline_parallel_last_stage_less_layers", 0),
    ]


def training(job: Job) -> list[tuple[str, Any]]:
    """Batch, length and precision."""
    block, said = job.block("torchtitan"), job.estimate.options
    if said.precision in ("fp16", "fp8"):
        raise job.refuse("torchtitan", f"is not told `{said.precision}` by overrides",
                         "--precision bf16")  # fmt: skip
    if said.optimizer != "adam":
        raise job.refuse("torchtitan", f"has no `{said.optimizer}` by overrides",
                         "--optimizer adam")  # fmt: skip
    param = "bfloat16" if said.precision == "bf16" else "float32"
    local = job.micro * job.knob("pipeline", "segments")
    t = "--training."
    return [
        (t + "local_batch_size", local), (t + "global_batch_size", job.batch),
        (t + "seq_len", block.sequence), (t + "mixed_precision_param", param),
        (f"activation_checkpoint:{RECOMPUTE.get(job.recompute, job.recompute)}", True),
    ]  # fmt: skip

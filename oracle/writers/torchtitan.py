"""torchtitan: overrides for its newest command line, and complete jobs of version 0.2.0 as TOML.

Names of fields: torchtitan/config/job_config.py, v0.2.0@29624e37f; of the newest, @b5bcd76c6.
"""

from __future__ import annotations

import json
from typing import Any

from oracle.plan.launchable import instead
from oracle.writers.export import ExportError
from oracle.writers.exported import Job, Start, options

TITLE = "torchtitan overrides"
ORDER = ("pipeline", "data", "sharded", "context", "tensor")
SCHEDULES = {  # its names, by the plan's name and whether stages hold several chunks
    ("gpipe", False): "GPipe", ("1f1b", False): "1F1B", ("1f1b", True): "Interleaved1F1B",
    ("zb-v", True): "ZBVZeroBubble", ("dualpipe-v", True): "DualPipeV",
}  # fmt: skip
RECOMPUTE = {"operators": "selective"}  # every other matrix is kept, its default
CONFIGS = {"llama3-8b": "llama3_8b", "llama3-70b": "llama3_70b", "llama3-405b": "llama3_405b"}
VERSION = "v0.2.0"
UNSTAGED = ("qwen3",)  # models that it cannot split into stages


def files(job: Job) -> dict[str, str]:
    return {"torchtitan.args": options([*which(job), *parallel(job), *training(job)])}


def start(job: Job) -> Start:
    """Return the complete job as a configuration file of a flavor that it ships."""
    run, training_options = job.estimate.options.software, dict(training(job))
    shipped = run.launch.models
    if job.name not in shipped:
        raise job.refuse(f"torchtitan {VERSION}", f"ships no {job.name}", instead(run))
    model, flavor = shipped[job.name].split("/")
    if job.degree("pipeline") > 1 and model in UNSTAGED:
        raise job.refuse(f"torchtitan {VERSION}", f"has no pipeline of {model}", "pipeline:1")
    overlapped = job.word("data", "overlap") == "on" and run.exchange.overlap == "backward"
    if job.replicas > 1 and not overlapped:
        raise job.refuse("torchtitan", "always exchanges gradients under the backward pass",
                         "overlap=on, exchange.overlap=backward")  # fmt: skip
    axes = {**dict(parallel(job, uneven=True)), **dict(experts(job))}
    modes = {"none": ("none", None), "operators": ("selective", "op"), "full": ("full", None)}
    if job.recompute not in modes:
        raise job.refuse(f"torchtitan {VERSION}", f"does not recompute `{job.recompute}`",
                         "recompute:operators or recompute:full")  # fmt: skip
    mode, option = modes[job.recompute]
    tables: dict[str, dict[str, Any]] = {
        "job": {"description": f"{job.name} on {job.devices} devices"},
        "metrics": {"log_freq": 1, "disable_color_printing": True},
        "model": {"name": model, "flavor": flavor, "hf_assets_path": "./tests/assets/tokenizer"},
        "optimizer": {"name": "AdamW", "lr": 1e-4},
        "training": {
            "dataset": "c4_test",
            "max_norm": 1.0,
            **section(training_options, "training"),
        },
        "parallelism": section(axes, "parallelism"),
        "checkpoint": {"enable": False},
        "compile": {"enable": run.kernels.fused},
        "activation_checkpoint": {"mode": mode, "selective_ac_option": option},
    }
    command = ("-m torchtitan.train", '--job.config_file "$HERE/job.toml"',
               '--training.steps "$STEPS"')  # fmt: skip
    return Start(
        {"job.toml": toml(tables)}, command,
        f"a checkout of pytorch/torchtitan at {VERSION} with what it requires, its folder in "
        "TORCHTITAN",
        "pipeline, data replicas, data shards, context, tensor (the device mesh of torchtitan)",
        (), "TORCHTITAN",
    )  # fmt: skip


def section(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the options of one section, by their names in a file."""
    fields = {key.removeprefix(f"--{name}."): value for key, value in arguments.items()
              if key.startswith(f"--{name}.")}  # fmt: skip
    fields.pop("enable_sequence_parallel", None)  # which 0.2.0 always does
    if fields.pop("no_enable_sequence_parallel", None):
        raise ExportError("export", f"torchtitan {VERSION} always cuts tokens beside tensors",
                          "tensor:N,sequence=on")  # fmt: skip
    return fields


def experts(job: Job) -> list[tuple[str, Any]]:
    """Return degrees of experts, dealt over context ranks first, whole ones over tensor's too."""
    degree, tensor, context = (job.degree(axis) for axis in ("expert", "tensor", "context"))
    if degree == 1:
        return []
    uncut = job.word("expert", "cut") == "whole"
    inner = context * (tensor if uncut else 1)
    if degree % inner:
        raise job.refuse("torchtitan", f"deals {degree} experts over {inner} inner ranks first",
                         f"expert:{inner}, or a multiple")  # fmt: skip
    p = "--parallelism."
    return [(p + "expert_parallel_degree", degree),
            (p + "expert_tensor_parallel_degree", 1 if uncut else tensor)]  # fmt: skip


def parts(job: Job) -> list[list[str]]:
    """Return the names of the modules of each chunk of the pipeline."""
    modules, block = [], 0
    for chunk in job.chunks:
        names = ["tok_embeddings"] * chunk.embedding
        names += [f"layers.{block + i}" for i in range(chunk.layers)]
        names += ["norm", "output"] * chunk.loss
        block += chunk.layers
        modules.append(names)
    return modules


def toml(tables: dict[str, dict[str, Any]]) -> str:
    """Return tables of words, numbers and lists as TOML, which writes them as JSON does."""
    texts = []
    for name, table in tables.items():
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()
                 if value is not None]  # fmt: skip
        texts.append("\n".join([f"[{name}]", *lines, ""]))
    return "\n".join(texts)


def which(job: Job) -> list[tuple[str, Any]]:
    """Return the module and configuration of a shipped model; the user names others."""
    config = CONFIGS.get(job.name)
    return [("--module", "llama3"), ("--config", config)] if config else []


def parallel(job: Job, uneven: bool = False) -> list[tuple[str, Any]]:
    """Return degrees by its names; replicas are plain (DDP) or shards (FSDP).

    With `uneven` every module of a pipeline's chunks is named.
    """
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
    inner = job.degree("tensor") * job.degree("context")
    if not uneven and job.degree("expert") > 1 and inner > 1:
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
        *_stages(job, uneven),
    ]  # fmt: skip


def _stages(job: Job, uneven: bool) -> list[tuple[str, Any]]:
    degree, p = job.degree("pipeline"), "--parallelism."
    if degree == 1:
        return [(p + "pipeline_parallel_degree", 1)]
    interleave, order = job.knob("pipeline", "interleave"), job.word("pipeline", "schedule")
    schedule = SCHEDULES.get((order, interleave > 1))
    if schedule is None and interleave > 1:
        raise job.refuse("torchtitan", "interleaves with 1F1B only", "schedule=1f1b")
    if schedule is None:
        raise job.refuse("torchtitan", f"has no schedule `{order}`", "schedule=1f1b")
    if uneven:
        job.knob("pipeline", "cuts")  # they are in the chunks
        return [
            (p + "pipeline_parallel_degree", degree),
            (p + "pipeline_parallel_schedule", schedule),
            (p + "pipeline_parallel_microbatch_size", job.micro),
            (p + "module_fqns_per_model_part", parts(job)),
        ]
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
    """Return batch, length and precision."""
    block, options = job.block("torchtitan"), job.estimate.options
    if options.precision in ("fp16", "fp8", "mxfp8", "nvfp4"):
        raise job.refuse("torchtitan", f"is not told `{options.precision}` by overrides",
                         "--precision bf16")  # fmt: skip
    if options.optimizer != "adam":
        raise job.refuse("torchtitan", f"has no `{options.optimizer}` by overrides",
                         "--optimizer adam")  # fmt: skip
    param = "bfloat16" if options.precision == "bf16" else "float32"
    local = job.micro * job.knob("pipeline", "segments")
    t = "--training."
    return [
        (t + "local_batch_size", local), (t + "global_batch_size", job.batch),
        (t + "seq_len", block.sequence), (t + "mixed_precision_param", param),
        (t + "enable_cpu_offload", True if job.word("offload", "what") != "nothing" else None),
        (f"activation_checkpoint:{RECOMPUTE.get(job.recompute, job.recompute)}", True),
    ]  # fmt: skip

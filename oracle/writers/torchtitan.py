"""torchtitan: overrides for its newest command line, and whole jobs of version 0.2.0 as TOML.

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
SCHEDULES = {  # its names, by ours and whether stages hold several chunks
    ("gpipe", False): "GPipe", ("1f1b", False): "1F1B", ("1f1b", True): "Interleaved1F1B",
    ("zb-v", True): "ZBVZeroBubble", ("dualpipe-v", True): "DualPipeV",
}  # fmt: skip
RECOMPUTE = {"operators": "selective"}  # every other matrix is kept, as it does by default
CONFIGS = {"llama3-8b": "llama3_8b", "llama3-70b": "llama3_70b", "llama3-405b": "llama3_405b"}
VERSION = "v0.2.0"
UNSTAGED = ("qwen3",)  # models that it does not take apart for a pipeline


def files(job: Job) -> dict[str, str]:
    return {"torchtitan.args": options([*which(job), *parallel(job), *training(job)])}


def start(job: Job) -> Start:
    """The whole job as its configuration file, of the flavors that it ships."""
    run, said = job.estimate.options.software, dict(training(job))
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
        "training": {"dataset": "c4_test", "max_norm": 1.0, **section(said, "training")},
        "parallelism": section(axes, "parallelism"),
        "checkpoint": {"enable": False},
        "compile": {"enable": run.kernels.fused},
        "activation_checkpoint": {"mode": mode, "selective_ac_option": option},
    }  # fmt: skip
    command = ("-m torchtitan.train", '--job.config_file "$HERE/job.toml"',
               '--training.steps "$STEPS"')  # fmt: skip
    return Start(
        {"job.toml": toml(tables)}, command,
        f"a checkout of pytorch/torchtitan at {VERSION} with what it requires, its folder in "
        "TORCHTITAN",
        "pipeline, data replicas, data shards, context, tensor (the device mesh of torchtitan)",
        (), "TORCHTITAN",
    )  # fmt: skip


def section(said: dict[str, Any], name: str) -> dict[str, Any]:
    """Options of one section, by their names in a file."""
    known = {key.removeprefix(f"--{name}."): value for key, value in said.items()
             if key.startswith(f"--{name}.")}  # fmt: skip
    known.pop("enable_sequence_parallel", None)  # which 0.2.0 always does
    if known.pop("no_enable_sequence_parallel", None):
        raise ExportError("export", f"torchtitan {VERSION} always cuts tokens beside tensors",
                          "tensor:N,sequence=on")  # fmt: skip
    return known


def experts(job: Job) -> list[tuple[str, Any]]:
    """Experts are dealt over context ranks first, and over tensor ranks where they stay whole."""
    degree, tensor, context = (job.degree(axis) for axis in ("expert", "tensor", "context"))
    if degree == 1:
        return []
    whole = job.word("expert", "cut") == "whole"
    inner = context * (tensor if whole else 1)
    if degree % inner:
        raise job.refuse("torchtitan", f"deals {degree} experts over {inner} inner ranks first",
                         f"expert:{inner}, or a multiple")  # fmt: skip
    p = "--parallelism."
    return [(p + "expert_parallel_degree", degree),
            (p + "expert_tensor_parallel_degree", 1 if whole else tensor)]  # fmt: skip


def parts(job: Job) -> list[list[str]]:
    """The modules of each chunk of the pipeline, by their names."""
    found, block = [], 0
    for chunk in job.chunks:
        names = ["tok_embeddings"] * chunk.embedding
        names += [f"layers.{block + i}" for i in range(chunk.layers)]
        names += ["norm", "output"] * chunk.loss
        block += chunk.layers
        found.append(names)
    return found


def toml(tables: dict[str, dict[str, Any]]) -> str:
    """Tables of words, numbers and lists as TOML; JSON's way to write them is TOML's."""
    found = []
    for name, table in tables.items():
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()
                 if value is not None]  # fmt: skip
        found.append("\n".join([f"[{name}]", *lines, ""]))
    return "\n".join(found)


def which(job: Job) -> list[tuple[str, Any]]:
    """The module and configuration, for models that it ships; else they are for you to name."""
    config = CONFIGS.get(job.name)
    return [("--module", "llama3"), ("--config", config)] if config else []


def parallel(job: Job, uneven: bool = False) -> list[tuple[str, Any]]:
    """Degrees by its names; replicas are plain (DDP) or shards (FSDP).

    With `uneven` the chunks of a pipeline are named module by module.
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
    """Batch, length and precision."""
    block, said = job.block("torchtitan"), job.estimate.options
    if said.precision in ("fp16", "fp8", "mxfp8", "nvfp4"):
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
        (t + "enable_cpu_offload", True if job.word("offload", "what") != "nothing" else None),
        (f"activation_checkpoint:{RECOMPUTE.get(job.recompute, job.recompute)}", True),
    ]  # fmt: skip

"""The configuration file of DeepSpeed."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

from oracle.spec.precision import NARROW
from oracle.writers.exported import Job, Start, filled
from oracle.writers.torchrun import network

TITLE = "DeepSpeed configuration (JSON)"
ORDER = ("pipeline", "data", "sharded", "tensor")  # its ranks, outermost first
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "adam": ("AdamW", {"betas": [0.9, 0.95], "eps": 1e-8}),
    "lamb": ("Lamb", {}),
}


def files(job: Job) -> dict[str, str]:
    return {"ds_config.json": json.dumps(configuration(job), indent=2) + "\n"}


def start(job: Job) -> Start:
    """Return the complete job: a transformer in plain PyTorch, and the engine's configuration."""
    title, run = "DeepSpeed", job.estimate.options.software
    order = [name for name, _ in job.axes]
    if order != sorted(order, key=ORDER.index):
        raise job.refuse(title, f"cannot nest {' outside '.join(order)}",
                         "pipeline, data, tensor in this order")  # fmt: skip
    if job.degree("tensor") > 1 and job.knob("tensor", "sequence") == 1:
        raise job.refuse(title, "does not cut tokens beside tensors", "sequence=off")
    if job.degree("expert") > 1 and job.word("expert", "cut") == "whole":
        raise job.refuse(title, "cuts experts as all else", "cut=tensor")
    config = configuration(job)
    config.pop("tensor_parallel", None)  # the model cuts its own layers
    if "zero_optimization" in config and (size := job.piece(run)):
        config["zero_optimization"]["reduce_bucket_size"] = size
        if run.exchange.overlap == "none":
            config["zero_optimization"]["overlap_comm"] = False
    block = job.block(title)
    stages, tied = job.degree("pipeline"), block.tied_embeddings
    ends = [c.embedding + c.layers + c.loss * (1 + tied) for c in job.chunks]
    constants = {
        "PIPELINE": stages, "DATA": job.replicas, "TENSOR": job.degree("tensor"),
        "EXPERT": job.degree("expert"), "RECOMPUTED": job.recompute == "full",
        "CUTS": [0, *accumulate(ends)],
    }  # fmt: skip
    files = {
        "ds_config.json": json.dumps(config, indent=2) + "\n",
        "train.py": filled("train_deepspeed.py", constants), "model.py": network(job, title),
    }  # fmt: skip
    return Start(files, ("train.py",), f"DeepSpeed {run.version}, or its releases from 0.18 on",
                 "pipeline, data, tensor")  # fmt: skip


def configuration(job: Job) -> dict[str, Any]:
    """Return batch, precision, optimizer and sharding, and stages and tensors where split."""
    job.only("DeepSpeed", ("data", "sharded", "pipeline", "tensor"))
    options = job.estimate.options
    if options.optimizer not in OPTIMIZERS:
        raise job.refuse("DeepSpeed", f"has no `{options.optimizer}`", "adam, lamb or momentum")
    kind, values = OPTIMIZERS[options.optimizer]
    config: dict[str, Any] = {
        "train_batch_size": job.batch,
        "train_micro_batch_size_per_gpu": job.micro,
        "gradient_accumulation_steps": job.segments,
        "optimizer": {"type": kind, "params": {"lr": 1e-4, **values}},
        "gradient_clipping": 1.0,
    }
    if (word := job.word("data", "compress")) != "none":
        config |= _one_bit(job, word)
    if options.precision in ("fp16", "bf16"):
        config[options.precision] = {"enabled": True}
    elif options.precision in NARROW:
        raise job.refuse("DeepSpeed", f"has no {options.precision} of its own", "--precision bf16")
    if job.zero:
        config["zero_optimization"] = _sharding(job)
    if job.degree("pipeline") > 1:
        config["pipeline"] = _stages(job)
    if job.degree("tensor") > 1:
        config["tensor_parallel"] = {"autotp_size": job.degree("tensor")}
    if job.recompute not in ("none", "full"):
        raise job.refuse("DeepSpeed", "recomputes all or nothing", "recompute:full, or none")
    if job.recompute == "full":
        config["activation_checkpointing"] = {"partition_activations": False,
                                              "contiguous_memory_optimization": False}  # fmt: skip
        if "activations" in job.word("offload", "what"):
            config["activation_checkpointing"]["cpu_checkpointing"] = True
    return config


def _one_bit(job: Job, word: str) -> dict[str, Any]:
    """Return the settings of 1-bit Adam, which compresses once its variance is frozen."""
    if word != "onebit" or job.estimate.options.optimizer != "adam":
        raise job.refuse("DeepSpeed", f"has no compress={word} for this optimizer",
                         "compress=onebit with --optimizer adam")  # fmt: skip
    job.notes.append("the variance is frozen after 100 steps: say a fifth of yours, freeze_step")
    job.word("data", "feedback")
    values = {**OPTIMIZERS["adam"][1], "lr": 1e-4, "freeze_step": 100, "comm_backend_name": "nccl"}
    return {"optimizer": {"type": "OneBitAdam", "params": values}, "gradient_clipping": 0.0}


def _sharding(job: Job) -> dict[str, Any]:
    stage = job.zero
    config: dict[str, Any] = {"stage": stage, "overlap_comm": job.word("data", "overlap") == "on"}
    if job.degree("sharded") > 1 and job.degree("data") > 1:
        raise job.refuse("DeepSpeed", "shards over all replicas, not within groups of them",
                         "sharded alone, or data:N,zero=3")  # fmt: skip
    if stage > 1 and job.degree("pipeline") > 1:
        raise job.refuse("DeepSpeed", f"does not combine a pipeline with ZeRO stage {stage}",
                         "zero=1")  # fmt: skip
    if stage == 3 and job.degree("tensor") > 1:
        raise job.refuse("DeepSpeed", "does not combine tensor parallelism with ZeRO stage 3",
                         "zero=1 or zero=2")  # fmt: skip
    offloaded, to = job.word("offload", "what"), job.word("offload", "to")
    quantize = job.word("data", "quantize")
    if quantize in ("weights", "both"):
        config["zero_quantized_weights"] = True
    if quantize in ("gradients", "both"):
        config["zero_quantized_gradients"] = True
    if (near := job.knob("data", "hpz")) > 1:
        config["zero_hpz_partition_size"] = int(near)
    place = {"device": "nvme", "nvme_path": "/local_nvme"} if to == "disk" else {"device": "cpu"}
    if "optimizer" in offloaded:
        config["offload_optimizer"] = place
    if "weights" in offloaded:
        config["offload_param"] = place
    return config


def _stages(job: Job) -> dict[str, Any]:
    if job.knob("pipeline", "interleave") > 1:
        raise job.refuse("DeepSpeed", "does not interleave stages", "interleave=1")
    if job.word("pipeline", "schedule") != "1f1b" and job.segments > 1:
        raise job.refuse("DeepSpeed", "schedules 1F1B only", "schedule=1f1b")
    balanced = job.knob("pipeline", "cuts") == 1
    return {"stages": job.degree("pipeline"), "partition": "parameters" if balanced else "uniform"}

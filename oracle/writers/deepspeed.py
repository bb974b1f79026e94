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
    """The whole job: a transformer in plain PyTorch, and the engine's configuration."""
    title, run = "DeepSpeed", job.estimate.options.software
    order = [name for name, _ in job.axes]
    if order != sorted(order, key=ORDER.index):
        raise job.refuse(title, f"cannot nest {' outside '.join(order)}",
                         "pipeline, data, tensor in this order")  # fmt: skip
    if job.degree("tensor") > 1 and job.knob("tensor", "sequence") == 1:
        raise job.refuse(title, "does not cut tokens beside tensors", "sequence=off")
    if job.degree("expert") > 1 and job.word("expert", "cut") == "whole":
        raise job.refuse(title, "cuts experts as all else", "cut=tensor")
    found = configuration(job)
    found.pop("tensor_parallel", None)  # the model cuts its own layers
    if "zero_optimization" in found and (size := job.piece(run)):
        found["zero_optimization"]["reduce_bucket_size"] = size
        if run.exchange.overlap == "none":
            found["zero_optimization"]["overlap_comm"] = False
    block = job.block(title)
    stages, tied = job.degree("pipeline"), block.tied_embeddings
    ends = [c.embedding + c.layers + c.loss * (1 + tied) for c in job.chunks]
    constants = {
        "PIPELINE": stages, "DATA": job.replicas, "TENSOR": job.degree("tensor"),
        "EXPERT": job.degree("expert"), "RECOMPUTED": job.recompute == "full",
        "CUTS": [0, *accumulate(ends)],
    }  # fmt: skip
    made = {
        "ds_config.json": json.dumps(found, indent=2) + "\n",
        "train.py": filled("train_deepspeed.py", constants), "model.py": network(job, title),
    }  # fmt: skip
    return Start(made, ("train.py",), f"DeepSpeed {run.version}, or its releases from 0.18 on",
                 "pipeline, data, tensor")  # fmt: skip


def configuration(job: Job) -> dict[str, Any]:
    """Batch, precision, optimizer and state sharding; stages and tensors where it knows them."""
    job.only("DeepSpeed", ("data", "sharded", "pipeline", "tensor"))
    options = job.estimate.options
    if options.optimizer not in OPTIMIZERS:
        raise job.refuse("DeepSpeed", f"has no `{options.optimizer}`", "adam, lamb or momentum")
    kind, values = OPTIMIZERS[options.optimizer]
    found: dict[str, Any] = {
        "train_batch_size": job.batch,
        "train_micro_batch_size_per_gpu": job.micro,
        "gradient_accumulation_steps": job.segments,
        "optimizer": {"type": kind, "params": {"lr": 1e-4, **values}},
        "gradient_clipping": 1.0,
    }
    if (word := job.word("data", "compress")) != "none":
        found |= _one_bit(job, word)
    if options.precision in ("fp16", "bf16"):
        found[options.precision] = {"enabled": True}
    elif options.precision in NARROW:
        raise job.refuse("DeepSpeed", f"has no {options.precision} of its own", "--precision bf16")
    if job.zero:
        found["zero_optimization"] = _sharding(job)
    if job.degree("pipeline") > 1:
        found["pipeline"] = _stages(job)
    if job.degree("tensor") > 1:
        found["tensor_parallel"] = {"autotp_size": job.degree("tensor")}
    if job.recompute not in ("none", "full"):
        raise job.refuse("DeepSpeed", "recomputes all or nothing", "recompute:full, or none")
    if job.recompute == "full":
        found["activation_checkpointing"] = {"partition_activations": False,
                                             "contiguous_memory_optimization": False}  # fmt: skip
        if "activations" in job.word("offload", "what"):
            found["activation_checkpointing"]["cpu_checkpointing"] = True
    return found


def _one_bit(job: Job, word: str) -> dict[str, Any]:
    """1-bit Adam, which sends whole gradients until its variance is frozen."""
    if word != "onebit" or job.estimate.options.optimizer != "adam":
        raise job.refuse("DeepSpeed", f"has no compress={word} for this optimizer",
                         "compress=onebit with --optimizer adam")  # fmt: skip
    job.notes.append("the variance is frozen after 100 steps: say a fifth of yours, freeze_step")
    job.word("data", "feedback")
    values = {**OPTIMIZERS["adam"][1], "lr": 1e-4, "freeze_step": 100, "comm_backend_name": "nccl"}
    return {"optimizer": {"type": "OneBitAdam", "params": values}, "gradient_clipping": 0.0}


def _sharding(job: Job) -> dict[str, Any]:
    stage = job.zero
    found: dict[str, Any] = {"stage": stage, "overlap_comm": job.word("data", "overlap") == "on"}
    if job.degree("sharded") > 1 and job.degree("data") > 1:
        raise job.refuse("DeepSpeed", "shards over all replicas, not within groups of them",
                         "sharded alone, or data:N,zero=3")  # fmt: skip
    if stage > 1 and job.degree("pipeline") > 1:
        what = f"does not combine a pipeline with ZeRO stage {stage}"
        raise job.refuse("DeepSpeed", what, "zero=1")
    if stage == 3 and job.degree("tensor") > 1:
        raise job.refuse("DeepSpeed", "does not combine tensor parallelism with ZeRO stage 3",
                         "zero=1 or zero=2")  # fmt: skip
    what, to = job.word("offload", "what"), job.word("offload", "to")
    quantize = job.word("data", "quantize")
    if quantize in ("weights", "both"):
        found["zero_quantized_weights"] = True
    if quantize in ("gradients", "both"):
        found["zero_quantized_gradients"] = True
    if (near := job.knob("data", "hpz")) > 1:
        found["zero_hpz_partition_size"] = int(near)
    place = {"device": "nvme", "nvme_path": "/local_nvme"} if to == "disk" else {"device": "cpu"}
    if "optimizer" in what:
        found["offload_optimizer"] = place
    if "weights" in what:
        found["offload_param"] = place
    return found


def _stages(job: Job) -> dict[str, Any]:
    if job.knob("pipeline", "interleave") > 1:
        raise job.refuse("DeepSpeed", "does not interleave stages", "interleave=1")
    if job.word("pipeline", "schedule") != "1f1b" and job.segments > 1:
        raise job.refuse("DeepSpeed", "schedules 1F1B only", "schedule=1f1b")
    balanced = job.knob("pipeline", "cuts") == 1
    return {"stages": job.degree("pipeline"), "partition": "parameters" if balanced else "uniform"}

"""A torchrun line, and the device mesh of the plan as Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.models.transformer import Transformer
from oracle.spec.precision import NARROW
from oracle.writers.exported import Job, Start, filled
from oracle.writers.nodes import Nodes, ranks_here

TITLE = "torchrun line and init_device_mesh snippet"


def files(job: Job) -> dict[str, str]:
    return {"launch.sh": launch(job), "mesh.py": mesh(job)}


def start(job: Job) -> Start:
    """Return the complete job: a transformer in plain PyTorch, with DDP or FSDP2."""
    title, options, run = "PyTorch alone", job.estimate.options, job.estimate.options.software
    job.only(title, ("data", "sharded"))
    order = [name for name, _ in job.axes]
    if order == ["sharded", "data"]:
        raise job.refuse(title, "shards over neighbouring ranks", "data outside sharded")
    if options.precision in NARROW or options.optimizer not in ("sgd", "momentum", "adam"):
        lacking = options.precision if options.precision in NARROW else options.optimizer
        raise job.refuse(title, f"has no `{lacking}`", "--precision bf16 --optimizer adam")
    if job.recompute == "operators":
        raise job.refuse(title, "recomputes attention or all here", "recompute:selective")
    if job.zero == 1:
        raise job.refuse(title, "does not shard the optimizer alone", "zero=2 or zero=3")
    overlapped = job.word("data", "overlap") == "on" and run.exchange.overlap == "backward"
    if job.replicas > 1 and not overlapped:
        raise job.refuse(title, "always exchanges gradients under the backward pass",
                         "overlap=on, exchange.overlap=backward")  # fmt: skip
    shards = job.degree("sharded") if job.degree("sharded") > 1 else job.replicas
    size = job.piece(run)
    constants = {
        "WRAP": "fsdp" if job.zero >= 2 else "ddp",
        "REPLICAS": job.replicas // shards if job.zero >= 2 else job.replicas,
        "SHARDED": shards if job.zero >= 2 else 1,
        "RESHARD": job.zero == 3, "MICRO": job.micro, "MICRO_BATCHES": job.segments,
        "PRECISION": options.precision, "OPTIMIZER": options.optimizer,
        "REDUCED": {4.0: "fp32", 2.0: "bf16"}[run.exchange.sent(options.precision)],
        "BUCKET": round(4 * size / 2**20, 3) if size else 1e6,
        "HOOK": hook(job, title), "RANK": job.knob("data", "rank"),
        "FEEDBACK": job.word("data", "feedback") == "on",
    }  # fmt: skip
    files = {"train.py": filled("train.py", constants), "model.py": network(job, title)}
    return Start(files, ("train.py",), f"PyTorch {run.version} or later",
                 ", ".join(order) or "data")  # fmt: skip


def hook(job: Job, title: str) -> str:
    """Return the communication hook that compresses the gradients of replicas."""
    word = job.word("data", "compress")
    if word not in ("none", "fp16", "bf16", "powersgd"):
        raise job.refuse(title, f"has no hook for compress={word}", "fp16, bf16 or powersgd")
    if word != "none" and job.zero:
        raise job.refuse(title, "compresses gradients of whole replicas", "zero=0")
    return word


def network(job: Job, title: str) -> str:
    """Return the model in plain PyTorch, in the sizes of the spec."""
    block = job.block(title)
    if block.segments or block.pooler or not block.final_norm or not block.head:
        raise job.refuse(title, "is given no such embedding or heads", "a GPT-like model")
    if block.window:
        raise job.refuse(title, "attends to all words here", "a model without `window`")
    stages = job.degree("pipeline") if "pipeline" in dict(job.axes) else 1
    return filled("model.py", {
        "SIZES": sizes(job, block), "RECOMPUTE": job.recompute, "SHRUNK_LAYERS": max(2, stages),
    })  # fmt: skip


def sizes(job: Job, block: Transformer) -> dict[str, Any]:
    """Return the sizes of the family block, its defaults filled in."""
    gated = block.gated
    bias = not gated if block.bias is None else block.bias
    positions = block.positions or ("rotary" if gated else "learned")
    return {
        "layers": block.layers, "hidden": block.hidden, "heads": block.heads,
        "kv_heads": block.kv_heads or block.heads,
        "width": block.width or block.hidden // block.heads,
        "ffn": block.ffn or 4 * block.hidden, "vocab": block.vocab, "sequence": block.sequence,
        "gated": gated, "causal": block.causal, "tied": block.tied_embeddings,
        "rms": (block.norm or ("rms" if gated else "layer")) == "rms",
        "learned": positions == "learned",
        "rotary": job.rotary if positions == "rotary" else 0,
        "bias": bias, "qkv_bias": bias if block.qkv_bias is None else block.qkv_bias,
        "qk_norm": block.qk_norm,
        "activation": block.activation or ("silu" if gated else "gelu"),
        "dropout": block.dropout, "embedding_norm": block.embedding_norm,
        "experts": block.experts, "active": block.active, "shared": block.shared,
    }  # fmt: skip


def launch(job: Job) -> str:
    """Return a script that starts one node's ranks; every node of a job starts it."""
    head = "\n".join(f"# {line}" for line in job.about())
    before: list[str] = []
    ranks_a_node = str(job.kinds[0].each)
    rendezvous = ["  --standalone"]
    if len(job.kinds) > 1:
        before, ranks_a_node = numbered(job.kinds)
        rendezvous = ['  --node-rank="$NODE_RANK"',
                      '  --master-addr="${MASTER_ADDR:?the first node}" '
                      '--master-port="${MASTER_PORT:-29500}"']  # fmt: skip
    elif job.nodes > 1:
        rendezvous = [
            '  --rdzv-backend=c10d --rdzv-id="${JOB_ID:-oracle}"',
            '  --rdzv-endpoint="${MASTER_ADDR:?the first node}:${MASTER_PORT:-29500}"',
        ]
    words = [
        "exec torchrun",
        f"  --nnodes={job.nodes} --nproc-per-node={ranks_a_node}",
        *rendezvous,
        '  "${TRAIN_SCRIPT:-train.py}" "$@"',
    ]
    lines = ["#!/usr/bin/env bash", head, "set -euo pipefail", *before, " \\\n".join(words)]
    return "\n".join(lines) + "\n"


def numbered(kinds: Sequence[Nodes]) -> tuple[list[str], str]:
    """Return lines of bash that number this node, and the word that holds its ranks."""
    ends = [f"{kind.first} to {kind.first + kind.count - 1}" if kind.count > 1 else str(kind.first)
            for kind in kinds]  # fmt: skip
    message = ", ".join(f"{end} of {kind.partition}" for end, kind in zip(ends, kinds, strict=True))
    message = f"the number of this node: {message}"
    node = f'NODE_RANK="${{NODE_RANK:-${{SLURM_NODEID:?{message}}}}}"'
    lines, ranks_a_node = ranks_here(kinds, "NODE_RANK")
    return [node, *lines], ranks_a_node


def dimensions(job: Job) -> list[tuple[str, int]]:
    """Return (name, size) of the mesh, outermost first; experts are the inner data axis."""
    expert, sizes = job.degree("expert"), []
    if expert > 1 and job.degree("tensor") > 1 and job.word("expert", "cut") == "whole":
        raise job.refuse("a mesh of torch", "has experts along one axis only", "cut=tensor")
    if expert > 1 and job.degree("context") > 1:
        raise job.refuse("a mesh of torch", "has experts along one axis only", "no `context`")
    for name, degree in job.axes:
        if name == "data" and expert > 1:
            sizes += [("data", degree // expert), ("expert", expert)]
        else:
            sizes.append((name, degree))
    return sizes or [("data", 1)]


def partitions(job: Job) -> list[str]:
    """Return Python lines with the work of each partition's ranks, where there are several."""
    if not job.sides:
        return []
    lines, first = (
        ["# partition: its first rank, its ranks, samples of a replica, micro-batches"],
        0,
    )
    lines.append("PARTITIONS = {")
    for side, kind in zip(job.sides, job.kinds, strict=True):
        numbers = f"{first}, {side.devices}, {side.samples:.0f}, {side.micro_batches}"
        lines.append(f'    "{kind.partition}": ({numbers}),')
        first += side.devices
    return [*lines, "}"]


def mesh(job: Job) -> str:
    """Return Python code that makes a mesh with the ranks of the prediction."""
    sizes = dimensions(job)
    shape = ", ".join(str(size) for _, size in sizes)
    names = ", ".join(f'"{name}"' for name, _ in sizes)
    comma = "," if len(sizes) == 1 else ""
    data = [f'"{n}"' for n, _ in sizes if n in ("data", "expert", "sharded", "context")]
    about = [
        f'PLAN = "{job.text}"  # degrees and knobs, outermost first',
        f"BATCH = {job.batch}  # samples an iteration, all devices",
        f"MICRO_BATCH = {job.micro}  # samples that pass through a kernel at once",
        f"MICRO_BATCHES = {job.segments}  # of one device in one iteration",
        f"ZERO = {job.zero}  # what replicas share out: 1 optimizer, 2 gradients, 3 weights",
        f'PRECISION = "{job.estimate.options.precision}"',
        f'OPTIMIZER = "{job.estimate.options.optimizer}"',
        f'RECOMPUTE = "{job.recompute}"',
    ]
    about += partitions(job)
    replicas = f"\nREPLICAS = ({', '.join(data)},)  # these hold the same weights" if data else ""
    return "\n".join(
        [
            f'"""The device mesh of {job.estimate.plans[0]}."""',
            "",
            *(f"# {line}" for line in job.about()),
            "from torch.distributed.device_mesh import DeviceMesh, init_device_mesh",
            "",
            *about,
            f"SHAPE = ({shape}{comma})",
            f"NAMES = ({names}{comma})" + replicas,
            "",
            "",
            'def mesh(device: str = "cuda") -> DeviceMesh:',
            '    """Outermost axis first: the last one joins neighbouring ranks."""',
            "    return init_device_mesh(device, SHAPE, mesh_dim_names=NAMES)",
            "",
        ]
    )

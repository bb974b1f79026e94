"""A training as the files of a job say it, and how many devices its launch starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.plan import grammar
from oracle.readers.jobs.sheet import Said, Sheet
from oracle.readers.spec_text import plain_name

# of what is not read: these change no time or memory that is predicted
HARMLESS = re.compile(
    r"(lr|min_lr|decoupled|weight_decay|adam|clip_|init|seed|log|tensorboard|wandb|save|load|ckpt|"
    r"eval|exit|data_(path|impl|cache|args)|data$|vocab_file|merge|tokenizer|tiktoken|split$|"
    r"train_|num_workers|profile|manual_gc|distributed_(timeout|backend)|dist_ckpt|loss_scale|"
    r"hysteresis|min_loss|norm_epsilon|layernorm_epsilon|rotary|rope|apply|attention_softmax|"
    r"no_(save|load|create|mmap|bias|masked|async|one_logger|log|initialization|check)|mock|"
    r"epochs|warmup|qk_layernorm|no_rope_fusion|norm_target|"
    r"override|use_checkpoint|start_|end_|finetune|reset_|check_for|one_logger|timing|"
    r"empty_unused|transformer_impl|use_mcore|moe_(aux|z_loss|permute|grouped|input_jitter|router|"
    r"per_layer)|result|tee$|local_rank|async_save|calculate|fp8_(amax|margin|interval)|sgd|kill|"
    r"abort|sync_tp|cross_entropy|valid|bert|device|rampup|max_position|DDP_impl|deepspeed(_config|"
    r"_activation_checkpointing|_mpi)?$|zero_stage|job|metrics|checkpoint\.|profiling|comm|"
    r"lr_scheduler|optimizer\.|experimental|debug|fault|memory_estimation|model\.(hf|tokenizer|"
    r"print)|training\.(max_norm|steps|dataset|seed|gc|warmup|deterministic)|compile\.components|"
    r"quantize\.linear\.float8\.(filter|precompute|recipe)|deepspeed\.(steps|wall|scheduler|"
    r"gradient_clipping|optimizer\.params|fp16\.|bf16\.|dump|flops|tensorboard|csv|wandb|monitor|"
    r"prescale|zero_allow|comms|checkpoint|curriculum|zero_optimization\.(contiguous|load|round|"
    r"reduce_scatter|allgather_partitions|stage3_gather|memory|ignore|overlap_comm)))"
)


@dataclass(frozen=True)
class Given:
    """What a user says beside the files; it holds where they say otherwise."""

    model: Any = None  # a shipped name, a file or a spec
    devices: int | None = None
    software: str | None = None


@dataclass(frozen=True)
class Training:
    """Model, software and plan of a job: what a prediction is asked with."""

    model: Any  # a spec as a dict, or what names one
    software: str
    plan: str
    batch: int
    devices: int
    precision: str
    optimizer: str
    framework: str = ""
    named: str = ""
    notes: tuple[str, ...] = field(default=())


def plan_text(axes: Iterable[tuple[str, Any, Mapping[str, Any]]]) -> str:
    """A plan by its axes, outermost first; what is as if nobody had said it is left out.

    >>> plan_text([("data", 4, {"zero": 1, "accumulate": 2}), ("tensor", 1, {})])
    'data:4,zero=1,accumulate=2'
    """
    words = [",".join([f"{name}:{degree}", *(f"{k}={v}" for k, v in knobs.items())])
             for name, degree, knobs in axes]  # fmt: skip
    return grammar.write(grammar.read(" ".join(words) or "serial"))


def called(sheet: Sheet) -> str:
    """A name for the job: that of its first file."""
    return plain_name(Path(next(iter(sheet.texts))).stem, "job")


def world(sheet: Sheet, given: Given) -> tuple[int, Said | None]:
    """How many devices are started, and where that is said; 0 where it is not."""
    if given.devices:
        return given.devices, None
    launch = sheet.launch

    def first(*names: str) -> tuple[int | None, Said | None]:
        for name in names:
            said = launch.get(name)
            if said is None or said.text in ("gpu", "auto", ""):
                continue
            if name == "gres":
                found = re.fullmatch(r"gpus?(?::\w+)*?:(\d{1,4})", said.text)
                return (int(found[1]), said) if found else (None, said)
            counted = said if name != "gpus_per_node" else Said(
                said.text.rpartition(":")[2], said.file, said.line)  # fmt: skip
            return sheet.as_whole(name, counted), said
        return None, None

    total, place = (
        (None, None) if _each(launch) else first("world", "np", "num_processes", "ntasks")
    )
    if total:
        return total, place
    nodes, node_place = first("nnodes", "num_nodes", "nodes")
    each, place = first("nproc_per_node", "num_gpus")
    if each is None and place is None:
        each, place = first("gpus_per_node", "gres")
        tasks, task_place = first("ntasks_per_node")
        if tasks and (each is None or tasks > each):
            each, place = tasks, task_place
    if each is None:
        return 0, place
    return each * (nodes or 1), node_place or place


def _each(launch: Mapping[str, Said]) -> bool:
    """Whether a launcher says how many processes a node has."""
    return bool({"nproc_per_node", "num_gpus"} & set(launch))


def replicas(
    sheet: Sheet, given: Given, inner: int, what: str, place: Said | None, otherwise: int = 0
) -> tuple[int, int]:
    """(devices, how many replicas they make) where each takes `inner` of them; 0 with a fault."""
    devices, said = world(sheet, given)
    if not devices:
        if otherwise:
            return otherwise * inner, otherwise
        if not sheet.faults:
            sheet.fault(said, "nothing says how many devices there are", "--devices N", "E103")
        return inner, 0
    if devices % inner:
        where = f" ({said.place})" if said else ""
        sheet.fault(place, f"{devices} devices{where} are no multiple of {inner}, {what}",
                    f"a multiple of {inner}")  # fmt: skip
        return devices, 0
    return devices, devices // inner


def micro_batches(sheet: Sheet, batch: int, micro: int, data: int, place: Said | None) -> int:
    """Micro-batches of a device; a fault where they are not of one size."""
    if not data:  # as has been said
        return 1
    if batch % (micro * data):
        what = f"a batch of {batch} is not {data} replicas with micro-batches of {micro} each"
        near = max(1, round(batch / (micro * data))) * micro * data
        sheet.fault(place, what, f"e.g. {near}")
    return max(1, batch // (micro * data))


def left(sheet: Sheet, matters: re.Pattern[str]) -> list[str]:
    """What was not read: what may matter with its place, the rest counted in one line."""
    unread = {name: said for name, said in sheet.settings.items()
              if name not in sheet.asked and said.file != "--set"
              and said.text.lower() not in ("false", "none")}  # fmt: skip
    known = {name for name in unread if matters.search(name) and not HARMLESS.match(name)}
    strange = {name for name in unread if not matters.search(name) and not HARMLESS.match(name)}
    notes = [f"{unread[name].place}: `{name}` is not part of the prediction"
             for name in unread if name in known]  # fmt: skip
    if strange:
        few = ", ".join(f"`{name}`" for name in sorted(strange)[:6])
        more = ", …" if len(strange) > 6 else ""
        notes.append(f"unknown, {len(strange)} settings left out: {few}{more}")
    rest = len(unread) - len(known) - len(strange)
    if rest:
        notes.append(f"settings that change nothing that is predicted: {rest} (data, logs, rates)")
    return notes

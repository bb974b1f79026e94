"""The training of a job's files, and the devices that its launch starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.plan import grammar
from oracle.readers.jobs.sheet import Setting, Sheet
from oracle.readers.spec_text import plain_name

# settings that change no predicted time or memory, and are not read
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
class Overrides:
    """The settings of a user, which override those of the files."""

    model: Any = None  # a shipped name, a file or a spec
    devices: int | None = None
    software: str | None = None


@dataclass(frozen=True)
class Training:
    """The model, software and plan of a job: the arguments of a prediction."""

    model: Any  # a spec as a dict, or its name
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
    """Return a plan's text by its axes, outermost first, without defaults.

    >>> plan_text([("data", 4, {"zero": 1, "accumulate": 2}), ("tensor", 1, {})])
    'data:4,zero=1,accumulate=2'
    """
    words = [",".join([f"{name}:{degree}", *(f"{k}={v}" for k, v in knobs.items())])
             for name, degree, knobs in axes]  # fmt: skip
    return grammar.write(grammar.read(" ".join(words) or "serial"))


def called(sheet: Sheet) -> str:
    """Return a name for the job: that of its first file."""
    return plain_name(Path(next(iter(sheet.texts))).stem, "job")


def world(sheet: Sheet, overrides: Overrides) -> tuple[int, Setting | None]:
    """Return the number of devices that are started and its place, or 0 where none says it."""
    if overrides.devices:
        return overrides.devices, None
    launch = sheet.launch

    def first(*names: str) -> tuple[int | None, Setting | None]:
        for name in names:
            setting = launch.get(name)
            if setting is None or setting.text in ("gpu", "auto", ""):
                continue
            if name == "gres":
                match = re.fullmatch(r"gpus?(?::\w+)*?:(\d{1,4})", setting.text)
                return (int(match[1]), setting) if match else (None, setting)
            counted = setting if name != "gpus_per_node" else Setting(
                setting.text.rpartition(":")[2], setting.file, setting.line)  # fmt: skip
            return sheet.as_whole_number(name, counted), setting
        return None, None

    total, place = (
        (None, None) if _says_per_node(launch) else first("world", "np", "num_processes", "ntasks")
    )
    if total:
        return total, place
    nodes, node_place = first("nnodes", "num_nodes", "nodes")
    per_node, place = first("nproc_per_node", "num_gpus")
    if per_node is None and place is None:
        per_node, place = first("gpus_per_node", "gres")
        tasks, task_place = first("ntasks_per_node")
        if tasks and (per_node is None or tasks > per_node):
            per_node, place = tasks, task_place
    if per_node is None:
        return 0, place
    return per_node * (nodes or 1), node_place or place


def _says_per_node(launch: Mapping[str, Setting]) -> bool:
    """Return whether a launcher says how many processes a node has."""
    return bool({"nproc_per_node", "num_gpus"} & set(launch))


def replicas(
    sheet: Sheet, overrides: Overrides, inner: int, degrees: str, place: Setting | None,
    otherwise: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """Return devices and their replicas of `inner` devices each; 0 replicas with a fault."""
    devices, devices_setting = world(sheet, overrides)
    if not devices:
        if otherwise:
            return otherwise * inner, otherwise
        if not sheet.faults:
            sheet.fault(
                devices_setting, "nothing says how many devices there are", "--devices N", "E103"
            )
        return inner, 0
    if devices % inner:
        place_text = f" ({devices_setting.place})" if devices_setting else ""
        sheet.fault(place, f"{devices} devices{place_text} are no multiple of {inner}, {degrees}",
                    f"a multiple of {inner}")  # fmt: skip
        return devices, 0
    return devices, devices // inner


def micro_batches(sheet: Sheet, batch: int, micro: int, data: int, place: Setting | None) -> int:
    """Return the micro-batches of a device; note a fault where they are not of one size."""
    if not data:  # a fault is noted already
        return 1
    if batch % (micro * data):
        complaint = f"a batch of {batch} is not {data} replicas with micro-batches of {micro} each"
        near = max(1, round(batch / (micro * data))) * micro * data
        sheet.fault(place, complaint, f"e.g. {near}")
    return max(1, batch // (micro * data))


def left(sheet: Sheet, matters: re.Pattern[str]) -> list[str]:
    """Return notes on unread settings: those that may matter by name, the others counted."""
    unread = {name: setting for name, setting in sheet.settings.items()
              if name not in sheet.names_read and setting.file != "--set"
              and setting.text.lower() not in ("false", "none")}  # fmt: skip
    important = {name for name in unread if matters.search(name) and not HARMLESS.match(name)}
    strange = {name for name in unread if not matters.search(name) and not HARMLESS.match(name)}
    notes = [f"{unread[name].place}: `{name}` is not part of the prediction"
             for name in unread if name in important]  # fmt: skip
    if strange:
        first_names = ", ".join(f"`{name}`" for name in sorted(strange)[:6])
        more = ", …" if len(strange) > 6 else ""
        notes.append(f"unknown, {len(strange)} settings left out: {first_names}{more}")
    rest = len(unread) - len(important) - len(strange)
    if rest:
        notes.append(f"settings that change nothing that is predicted: {rest} (data, logs, rates)")
    return notes

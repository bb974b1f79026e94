"""torchtitan: its TOML, or the overrides of its command line."""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.frameworks.training import (
    Overrides,
    Training,
    called,
    left,
    micro_batches,
    plan_text,
    replicas,
    world,
)
from oracle.readers.jobs.sheet import Setting, Sheet

NAME = "torchtitan"
MATTERS = re.compile(
    r"^parallelism\.|offload|^compile\.|activation_checkpoint\.|float8|converters|quantize|expert"
)
MODELS = {"llama3_8B": "llama3-8b", "llama3_70B": "llama3-70b", "llama3_405B": "llama3-405b"}
SCHEDULES = {
    "gpipe": ("gpipe", 1), "1f1b": ("1f1b", 1), "interleaved1f1b": ("1f1b", 2),
    "zbvzerobubble": ("zb-v", 2), "dualpipev": ("dualpipe-v", 2),
}  # fmt: skip
RECOMPUTE = {"none": "none", "selective": "operators", "full": "full"}
_P, _T = "parallelism.", "training."


def claims(sheet: Sheet) -> int:
    return 2 * sum(name.startswith((_P, _T)) for name in sheet.settings)


def training(sheet: Sheet, overrides: Overrides) -> Training:
    """Return the degrees of its settings; shards of -1 take the devices that are left."""

    def degree(name: str, smallest: int = 1) -> int:
        value = sheet.whole_number(f"{_P}{name}_degree", default=1, smallest=smallest)
        return 1 if value is None else value

    tensor, context = degree("tensor_parallel"), degree("context_parallel")
    stages, plain = degree("pipeline_parallel"), degree("data_parallel_replicate")
    shard_setting = sheet.setting(f"{_P}data_parallel_shard_degree")
    shards = (
        (sheet.as_whole_number("data_parallel_shard_degree", shard_setting, 1, -1) or 1)
        if shard_setting
        else -1
    )
    inner, place = tensor * context * stages * plain, shard_setting or sheet.setting(
        f"{_P}tensor_parallel_degree")  # fmt: skip
    devices, shards_that_fit = replicas(
        sheet, overrides, inner,
        f"the degrees {tensor} × {context} × {stages} × {plain} beside the shards", place,
        max(0, shards),
    )  # fmt: skip
    if shards > 0 and shards_that_fit and shards != shards_that_fit and world(sheet, overrides)[0]:
        sheet.fault(
            shard_setting,
            f"{shards} shards × {inner} are not {devices} devices",
            f"{shards_that_fit}, or -1",
        )
    shards = shards_that_fit if shards < 0 else shards
    local = sheet.whole_number(f"{_T}local_batch_size", f"{_T}batch_size", default=1) or 1
    data = plain * shards
    total = sheet.setting(f"{_T}global_batch_size")
    batch = (sheet.as_whole_number("global_batch_size", total, -1, -1) or -1) if total else -1
    batch = batch if batch > 0 else local * data
    steps = micro_batches(sheet, batch, local, data, total)
    model, layers = _model(sheet, overrides)
    axes = _axes(sheet, (stages, plain, shards, context, tensor), (steps, local), layers)
    expert = degree("expert_parallel")
    axes += [("expert", expert, {})] if expert > 1 else []
    mode = _recompute(sheet)
    axes += [("recompute", mode, {})] if mode != "none" else []
    kind, tool = _precision(sheet), overrides.software or software(sheet)
    sheet.check()
    notes = (*sheet.notes, *left(sheet, MATTERS))
    return Training(model, tool, plan_text(axes), batch, devices, kind, "adam", NAME,
                    called(sheet), notes)  # fmt: skip


def _model(sheet: Sheet, overrides: Overrides) -> tuple[Any, int]:
    """Return the model that it names, at the length of the training, and its layers."""
    from oracle.models.model import network

    name, flavor = sheet.word("model.name"), sheet.word("model.flavor")
    config = sheet.word("config") or f"{name}_{flavor}"
    shipped = {key.lower(): value for key, value in MODELS.items()}.get(config.lower())
    if overrides.model is None and shipped is None:
        setting = sheet.setting("model.flavor", "config", "model.name")
        sheet.fault(setting, f"no model is known as `{config.strip('_')[:60]}`",
                    "--model NAME or FILE", "E110")  # fmt: skip
        return None, 0
    sheet.names_read.add("module")
    model = overrides.model or shipped
    block = network(model)[0].transformer
    length = sheet.whole_number(f"{_T}seq_len")
    if overrides.model is None and block and length and length != block.sequence:
        block_fields = ("layers", "hidden", "heads", "kv_heads", "ffn", "gated", "vocab",
                        "tied_embeddings")  # fmt: skip
        fields = {key: getattr(block, key) for key in block_fields}
        model = {"name": f"{shipped}-{length}", "source": f"{shipped}, {length} tokens",
                 "transformer": {**fields, "sequence": length}}  # fmt: skip
    return model, block.layers if block else 0


def _axes(
    sheet: Sheet, degrees: tuple[int, int, int, int, int], batches: tuple[int, int], layers: int
) -> list[tuple[str, Any, dict[str, Any]]]:
    stages, plain, shards, context, tensor = degrees
    steps, local = batches
    axes: list[tuple[str, Any, dict[str, Any]]] = []
    if stages > 1:
        axes.append(("pipeline", stages, _stages(sheet, stages, steps, local, layers)))
    usual = "never" if stages > 1 else "always"
    word = sheet.word(f"{_P}fsdp_reshard_after_forward", default="default")
    zero = 2 if (usual if word == "default" else word) == "never" else 3
    data_knobs: dict[str, Any] = {"accumulate": steps} if stages == 1 and steps > 1 else {}
    if plain > 1 and shards > 1:
        axes += [("data", plain, data_knobs), ("sharded", shards, {"zero": zero})]
    elif shards > 1:
        axes.append(("data", shards, {"zero": zero, **data_knobs}))
    elif plain > 1 or data_knobs:
        axes.append(("data", plain, data_knobs))
    if context > 1:
        axes.append(("context", context, {}))
    if tensor > 1:
        off = sheet.word(f"{_P}enable_sequence_parallel").lower() == "false"
        off = off or sheet.has(f"{_P}no_enable_sequence_parallel")
        axes.append(("tensor", tensor, {} if off else {"sequence": "on"}))
    sheet.names_read |= {f"{_P}{name}" for name in (
        "enable_sequence_parallel", "no_enable_sequence_parallel", "fsdp_reshard_after_forward",
        "context_parallel_rotate_method")}  # fmt: skip
    return axes


def _stages(sheet: Sheet, stages: int, steps: int, local: int, layers: int) -> dict[str, Any]:
    """Return schedule, chunks and micro-batches of a pipeline."""
    setting = sheet.setting(f"{_P}pipeline_parallel_schedule")
    word = sheet.word(f"{_P}pipeline_parallel_schedule", default="1F1B")
    if word.lower() not in SCHEDULES:
        sheet.fault(
            setting, f"no schedule `{word[:40]}` is known here", ", ".join(SCHEDULES), "E110"
        )
    schedule, chunks = SCHEDULES.get(word.lower(), ("1f1b", 1))
    micro = sheet.whole_number(f"{_P}pipeline_parallel_microbatch_size", default=1) or 1
    if local % micro:
        sheet.fault(sheet.setting(f"{_P}pipeline_parallel_microbatch_size"),
                    f"a local batch of {local} is not cut by {micro}", "a divisor")  # fmt: skip
    layers_a_chunk = sheet.whole_number(f"{_P}pipeline_parallel_layers_per_stage")
    if layers_a_chunk and layers:
        chunks = max(1, -(-layers // (layers_a_chunk * stages)))
    if steps > 1:
        place = (sheet.setting(f"{_T}global_batch_size") or Setting("")).place
        sheet.notes.append(f"{place}: a local batch is trained {steps} times an iteration, counted "
                           "as one pipeline of all its micro-batches")  # fmt: skip
    for name in ("first_stage_less_layers", "last_stage_less_layers"):
        sheet.names_read.add(f"{_P}pipeline_parallel_{name}")
    knobs: dict[str, Any] = {"segments": max(1, local // micro) * steps}
    knobs |= {"schedule": schedule} if schedule != "1f1b" else {}
    return knobs | ({"interleave": chunks} if chunks > 1 else {})


def _recompute(sheet: Sheet) -> str:
    sheet.names_read |= {"activation_checkpoint.mode", "activation_checkpoint"}
    setting = sheet.settings.get("activation_checkpoint.mode")
    setting = setting or sheet.settings.get("activation_checkpoint")  # `none` is a word by itself
    word = setting.text if setting else "selective"
    if word not in RECOMPUTE:
        sheet.fault(
            setting, f"recomputation `{word[:40]}` is not known", ", ".join(RECOMPUTE), "E110"
        )
    option = sheet.setting("activation_checkpoint.selective_ac_option")
    if word == "selective" and option and option.text != "op":
        sheet.notes.append(f"{option.place}: layers recomputed by `{option.text[:20]}` are counted "
                           "as operators")  # fmt: skip
    return RECOMPUTE.get(word, "none")


def _precision(sheet: Sheet) -> str:
    if "float8" in sheet.word("model.converters"):
        return "fp8"
    kind = sheet.word(f"{_T}mixed_precision_param", default="bfloat16")
    return {"bfloat16": "bf16", "float16": "fp16"}.get(kind, "fp32")


def software(sheet: Sheet) -> str:
    """Return the shipped software, with the fields that the file changes."""
    words = ["torchtitan"]
    async_tensor = (f"{_P}enable_async_tensor_parallel", "compile.enable_async_tensor_parallel")
    if sheet.word(*async_tensor).lower() in ("true",) or "" in _bare(sheet, async_tensor):
        words += [f"tensor.{name}=pipelined"
                  for name in ("forward_column", "forward_row", "backward_row")]  # fmt: skip
    gather = "quantize.linear.float8.enable_fsdp_float8_all_gather"
    if sheet.word(gather).lower() == "true" and "float8" in sheet.word("model.converters"):
        words.append("gather.wire=fp8")
    return ",".join(words)


def _bare(sheet: Sheet, names: tuple[str, ...]) -> list[str]:
    return [sheet.settings[name].text for name in names if name in sheet.settings]

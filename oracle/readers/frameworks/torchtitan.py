"""torchtitan: its TOML, or the overrides of its command line."""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.frameworks.training import (
    Given,
    Training,
    called,
    left,
    micro_batches,
    plan_text,
    replicas,
    world,
)
from oracle.readers.jobs.sheet import Said, Sheet

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


def training(sheet: Sheet, given: Given) -> Training:
    """Degrees as they are said; shards take the devices that are left where it says -1."""

    def degree(name: str, least: int = 1) -> int:
        found = sheet.whole(f"{_P}{name}_degree", default=1, least=least)
        return 1 if found is None else found

    tensor, context = degree("tensor_parallel"), degree("context_parallel")
    stages, plain = degree("pipeline_parallel"), degree("data_parallel_replicate")
    said = sheet.said(f"{_P}data_parallel_shard_degree")
    shards = (sheet.as_whole("data_parallel_shard_degree", said, 1, -1) or 1) if said else -1
    inner, place = tensor * context * stages * plain, said or sheet.said(
        f"{_P}tensor_parallel_degree")  # fmt: skip
    devices, known = replicas(sheet, given, inner, f"the degrees {tensor} × {context} × {stages} × "
                              f"{plain} beside the shards", place, max(0, shards))  # fmt: skip
    if shards > 0 and known and shards != known and world(sheet, given)[0]:
        sheet.fault(said, f"{shards} shards × {inner} are not {devices} devices", f"{known}, or -1")
    shards = known if shards < 0 else shards
    local = sheet.whole(f"{_T}local_batch_size", f"{_T}batch_size", default=1) or 1
    data = plain * shards
    total = sheet.said(f"{_T}global_batch_size")
    batch = (sheet.as_whole("global_batch_size", total, -1, -1) or -1) if total else -1
    batch = batch if batch > 0 else local * data
    steps = micro_batches(sheet, batch, local, data, total)
    model, layers = _model(sheet, given)
    axes = _axes(sheet, (stages, plain, shards, context, tensor), (steps, local), layers)
    expert = degree("expert_parallel")
    axes += [("expert", expert, {})] if expert > 1 else []
    mode = _recompute(sheet)
    axes += [("recompute", mode, {})] if mode != "none" else []
    kind, tool = _precision(sheet), given.software or software(sheet)
    sheet.check()
    notes = (*sheet.notes, *left(sheet, MATTERS))
    return Training(model, tool, plan_text(axes), batch, devices, kind, "adam", NAME,
                    called(sheet), notes)  # fmt: skip


def _model(sheet: Sheet, given: Given) -> tuple[Any, int]:
    """The model that it names, at the length it is trained with; and its layers."""
    from oracle.models.model import network

    name, flavor = sheet.word("model.name"), sheet.word("model.flavor")
    config = sheet.word("config") or f"{name}_{flavor}"
    shipped = {key.lower(): value for key, value in MODELS.items()}.get(config.lower())
    if given.model is None and shipped is None:
        where = sheet.said("model.flavor", "config", "model.name")
        sheet.fault(where, f"no model is known as `{config.strip('_')[:60]}`",
                    "--model NAME or FILE", "E110")  # fmt: skip
        return None, 0
    sheet.asked.add("module")
    what = given.model or shipped
    block = network(what)[0].transformer
    length = sheet.whole(f"{_T}seq_len")
    if given.model is None and block and length and length != block.sequence:
        named = ("layers", "hidden", "heads", "kv_heads", "ffn", "gated", "vocab",
                 "tied_embeddings")  # fmt: skip
        fields = {each: getattr(block, each) for each in named}
        what = {"name": f"{shipped}-{length}", "source": f"{shipped}, {length} tokens",
                "transformer": {**fields, "sequence": length}}  # fmt: skip
    return what, block.layers if block else 0


def _axes(
    sheet: Sheet, degrees: tuple[int, int, int, int, int], batches: tuple[int, int], layers: int
) -> list[tuple[str, Any, dict[str, Any]]]:
    stages, plain, shards, context, tensor = degrees
    steps, local = batches
    found: list[tuple[str, Any, dict[str, Any]]] = []
    if stages > 1:
        found.append(("pipeline", stages, _stages(sheet, stages, steps, local, layers)))
    usual = "never" if stages > 1 else "always"
    word = sheet.word(f"{_P}fsdp_reshard_after_forward", default="default")
    zero = 2 if (usual if word == "default" else word) == "never" else 3
    own: dict[str, Any] = {"accumulate": steps} if stages == 1 and steps > 1 else {}
    if plain > 1 and shards > 1:
        found += [("data", plain, own), ("sharded", shards, {"zero": zero})]
    elif shards > 1:
        found.append(("data", shards, {"zero": zero, **own}))
    elif plain > 1 or own:
        found.append(("data", plain, own))
    if context > 1:
        found.append(("context", context, {}))
    if tensor > 1:
        off = sheet.word(f"{_P}enable_sequence_parallel").lower() == "false"
        off = off or sheet.has(f"{_P}no_enable_sequence_parallel")
        found.append(("tensor", tensor, {} if off else {"sequence": "on"}))
    sheet.asked |= {f"{_P}{name}" for name in (
        "enable_sequence_parallel", "no_enable_sequence_parallel", "fsdp_reshard_after_forward",
        "context_parallel_rotate_method")}  # fmt: skip
    return found


def _stages(sheet: Sheet, stages: int, steps: int, local: int, layers: int) -> dict[str, Any]:
    """Schedule, chunks and micro-batches of a pipeline."""
    said = sheet.said(f"{_P}pipeline_parallel_schedule")
    word = sheet.word(f"{_P}pipeline_parallel_schedule", default="1F1B")
    if word.lower() not in SCHEDULES:
        sheet.fault(said, f"no schedule `{word[:40]}` is known here", ", ".join(SCHEDULES), "E110")
    schedule, chunks = SCHEDULES.get(word.lower(), ("1f1b", 1))
    micro = sheet.whole(f"{_P}pipeline_parallel_microbatch_size", default=1) or 1
    if local % micro:
        sheet.fault(sheet.said(f"{_P}pipeline_parallel_microbatch_size"),
                    f"a local batch of {local} is not cut by {micro}", "a divisor")  # fmt: skip
    each = sheet.whole(f"{_P}pipeline_parallel_layers_per_stage")
    if each and layers:
        chunks = max(1, -(-layers // (each * stages)))
    if steps > 1:
        where = (sheet.said(f"{_T}global_batch_size") or Said("")).place
        sheet.notes.append(f"{where}: a local batch is trained {steps} times an iteration, counted "
                           "as one pipeline of all its micro-batches")  # fmt: skip
    for name in ("first_stage_less_layers", "last_stage_less_layers"):
        sheet.asked.add(f"{_P}pipeline_parallel_{name}")
    found: dict[str, Any] = {"segments": max(1, local // micro) * steps}
    found |= {"schedule": schedule} if schedule != "1f1b" else {}
    return found | ({"interleave": chunks} if chunks > 1 else {})


def _recompute(sheet: Sheet) -> str:
    sheet.asked |= {"activation_checkpoint.mode", "activation_checkpoint"}
    said = sheet.settings.get("activation_checkpoint.mode")
    said = said or sheet.settings.get("activation_checkpoint")  # `none` is a word of its own
    word = said.text if said else "selective"
    if word not in RECOMPUTE:
        sheet.fault(said, f"recomputation `{word[:40]}` is not known", ", ".join(RECOMPUTE), "E110")
    option = sheet.said("activation_checkpoint.selective_ac_option")
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
    """The shipped software, with the fields that the file says otherwise."""
    found = ["torchtitan"]
    async_tensor = (f"{_P}enable_async_tensor_parallel", "compile.enable_async_tensor_parallel")
    if sheet.word(*async_tensor).lower() in ("true",) or "" in _bare(sheet, async_tensor):
        found += [f"tensor.{name}=pipelined"
                  for name in ("forward_column", "forward_row", "backward_row")]  # fmt: skip
    gather = "quantize.linear.float8.enable_fsdp_float8_all_gather"
    if sheet.word(gather).lower() == "true" and "float8" in sheet.word("model.converters"):
        found.append("gather.wire=fp8")
    return ",".join(found)


def _bare(sheet: Sheet, names: tuple[str, ...]) -> list[str]:
    return [sheet.settings[name].text for name in names if name in sheet.settings]

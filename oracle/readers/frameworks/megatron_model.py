"""The model of Megatron-LM's arguments: a `transformer:` block."""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.jobs.sheet import Sheet, show

# architectures that the block cannot express
UNKNOWN = {
    "multi_latent_attention": "multi-head latent attention",
    "hybrid_override_pattern": "a mixture of Mamba and attention", "is_hybrid_model": "Mamba",
    "hybrid_layer_pattern": "a mixture of Mamba and attention",
    "heterogeneous_layers_config_path": "layers that differ",
    "pipeline_model_parallel_split_rank": "an encoder beside a decoder",
    "decoder_seq_length": "an encoder beside a decoder",
    "experimental_attention_variant": "an attention of its own",
    "linear_attention_freq": "linear attention",
}  # fmt: skip
# scripts that train something else, or nothing: by name, or by the folder that they are in
SCRIPTS = re.compile(
    r"(^|/)((multimodal|mimo|tasks|detxoify_lm)/\w+|[^/]*(bert|t5|ict|vision|dino|inpaint|retro|mamba|"
    r"hybrid|vlm|generat|server|inference|preprocess|convert|eval|clip)[^/]*)\.py$"
)
TOKENIZERS = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000, "BertWordPieceLowerCase": 30522,
              "BertWordPieceCase": 28996}  # fmt: skip


def block(sheet: Sheet, tensor: int) -> dict[str, Any]:
    """Return the fields of the block, its vocabulary padded for the tensor ranks."""
    script = sheet.launch.get("script")
    if script and SCRIPTS.search(script.text.lower()):
        complaint = f"`{show('/'.join(script.text.split('/')[-2:]))}` trains no GPT"
        sheet.fault(script, complaint, "--model FILE, with its layers")
    for name, complaint in UNKNOWN.items():
        if sheet.has(name):
            sheet.fault(
                sheet.setting(name),
                f"`{name}`: {complaint} cannot be said as a `transformer:`",
                "--model FILE, a list of layers",
            )
    layers = sheet.required("num_layers", "encoder_num_layers")
    hidden = sheet.required("hidden_size")
    heads = sheet.required("num_attention_heads")
    sequence = sheet.required("seq_length", "encoder_seq_length")
    width = sheet.whole_number("kv_channels")
    if width is None and hidden % heads:
        complaint = f"{heads} heads do not divide {hidden} channels"
        sheet.fault(sheet.setting("num_attention_heads"), complaint, "a divisor, or --kv-channels")
    gated = sheet.has("swiglu", "quick_geglu", "gated_linear_unit")
    usual = 64 * (8 * hidden // 3 // 64) if sheet.has("swiglu") else 4 * hidden
    ffn = sheet.whole_number("ffn_hidden_size", default=usual)
    fields: dict[str, Any] = {"layers": layers, "hidden": hidden, "heads": heads}
    if (
        groups := sheet.whole_number("num_query_groups")
        if sheet.has("group_query_attention")
        else None
    ):
        if heads % groups:
            complaint = f"{groups} groups do not divide {heads} heads"
            sheet.fault(sheet.setting("num_query_groups"), complaint, "a divisor")
        fields["kv_heads"] = groups
    if width is not None and width * heads != hidden:
        fields["width"] = width
    experts = sheet.whole_number("num_experts", "moe_num_experts")
    ffn = (sheet.whole_number("moe_ffn_hidden_size") if experts else None) or ffn or usual
    fields |= {"ffn": ffn, "gated": gated, "vocab": vocabulary(sheet, tensor), "sequence": sequence,
               "tied_embeddings": not sheet.has("untie_embeddings_and_output_weights"),
               "norm": "rms" if sheet.word("normalization") == "RMSNorm" else "layer",
               "positions": _positions(sheet), "bias": not sheet.has("disable_bias_linear"),
               "dropout": _dropout(sheet)}  # fmt: skip
    if sheet.has("add_qkv_bias"):
        fields["qkv_bias"] = True
    if sheet.has("squared_relu"):
        fields["activation"] = "relu"
    elif sheet.has("quick_geglu"):
        fields["activation"] = "gelu"
    if sheet.has("embed_layernorm"):
        fields["embedding_norm"] = True
    if experts:
        fields |= _experts(sheet, experts, ffn)
    return fields


def _positions(sheet: Sheet) -> str:
    sheet.names_read |= {"use_rotary_position_embeddings", "no_position_embedding"}
    kind = sheet.word("position_embedding_type", default="learned_absolute")
    if sheet.has("use_rotary_position_embeddings") or kind in ("rope", "rotary", "mrope", "yarn"):
        return "rotary"
    if kind == "alibi":
        sheet.notes.append("positions by alibi are counted as none: a bias of attention")
    plain = kind in ("none", "alibi", "relative") or sheet.has("no_position_embedding")
    return "none" if plain else "learned"


def _dropout(sheet: Sheet) -> bool:
    rates = [sheet.word(name, default="0.1") for name in ("attention_dropout", "hidden_dropout")]
    return any(rate.strip("0.") != "" for rate in rates)


def _experts(sheet: Sheet, experts: int, ffn: int) -> dict[str, Any]:
    frequency = sheet.word("moe_layer_freq", default="1")
    if frequency not in ("1", "[1]"):
        sheet.fault(
            sheet.setting("moe_layer_freq"),
            f"experts in some layers only ({frequency[:40]})",
            "--model FILE, a list of layers",
        )
    if sheet.word("moe_token_dispatcher_type", default="allgather") == "allgather":
        sheet.notes.append("tokens gathered for experts are priced as sent to them (alltoall)")
    fields: dict[str, Any] = {
        "experts": experts,
        "active": sheet.whole_number("moe_router_topk") or 2,
    }
    shared = sheet.whole_number("moe_shared_expert_intermediate_size")
    if shared:
        fields["shared"] = max(1, round(shared / ffn))
        if shared % ffn:
            sheet.notes.append(f"a shared expert of {shared} is counted as {fields['shared']} "
                               f"of {ffn}")  # fmt: skip
    return fields


def vocabulary(sheet: Sheet, tensor: int) -> int:
    """Return the padded number of words: a multiple of 128 · t unless the job says otherwise."""
    sheet.names_read |= {"make_vocab_size_divisible_by", "vocab_size", "tokenizer_type"}
    if padded := sheet.whole_number("padded_vocab_size", "pad_vocab_size_to"):
        return padded
    unit = (sheet.whole_number("make_vocab_size_divisible_by", default=128) or 128) * tensor
    words = sheet.whole_number("vocab_size")
    if words is None:
        kind = sheet.word("tokenizer_type")
        merges = sheet.settings.get("merge_file")
        sheet.names_read.add("merge_file")
        words = TOKENIZERS.get(kind, 50257 if merges and not kind else 0)
        if not words:
            setting = sheet.setting("tokenizer_type", "tokenizer_model")
            sheet.fault(setting, "nothing says how many words there are: the tokenizer knows",
                        "--set vocab_size=…", "E103")  # fmt: skip
            return unit
        sheet.notes.append(f"{words} words, as {kind or 'GPT-2 BPE'} has them")
    return -(-words // unit) * unit

"""The model that Megatron-LM's arguments say: a `transformer:` block."""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.jobs.sheet import Sheet, show

# architectures that the block has no words for
OTHER = {
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
    """The fields of the block, of the model as its ranks hold it: words padded for them."""
    script = sheet.launch.get("script")
    if script and SCRIPTS.search(script.text.lower()):
        what = f"`{show('/'.join(script.text.split('/')[-2:]))}` trains no GPT"
        sheet.fault(script, what, "--model FILE, with its layers")
    for name, what in OTHER.items():
        if sheet.has(name):
            sheet.fault(sheet.said(name), f"`{name}`: {what} cannot be said as a `transformer:`",
                        "--model FILE, a list of layers")  # fmt: skip
    layers = sheet.required("num_layers", "encoder_num_layers")
    hidden = sheet.required("hidden_size")
    heads = sheet.required("num_attention_heads")
    sequence = sheet.required("seq_length", "encoder_seq_length")
    width = sheet.whole("kv_channels")
    if width is None and hidden % heads:
        what = f"{heads} heads do not divide {hidden} channels"
        sheet.fault(sheet.said("num_attention_heads"), what, "a divisor, or --kv-channels")
    gated = sheet.has("swiglu", "quick_geglu", "gated_linear_unit")
    usual = 64 * (8 * hidden // 3 // 64) if sheet.has("swiglu") else 4 * hidden
    ffn = sheet.whole("ffn_hidden_size", default=usual)
    found: dict[str, Any] = {"layers": layers, "hidden": hidden, "heads": heads}
    if groups := sheet.whole("num_query_groups") if sheet.has("group_query_attention") else None:
        if heads % groups:
            what = f"{groups} groups do not divide {heads} heads"
            sheet.fault(sheet.said("num_query_groups"), what, "a divisor")
        found["kv_heads"] = groups
    if width is not None and width * heads != hidden:
        found["width"] = width
    experts = sheet.whole("num_experts", "moe_num_experts")
    ffn = (sheet.whole("moe_ffn_hidden_size") if experts else None) or ffn or usual
    found |= {"ffn": ffn, "gated": gated, "vocab": vocabulary(sheet, tensor), "sequence": sequence,
              "tied_embeddings": not sheet.has("untie_embeddings_and_output_weights"),
              "norm": "rms" if sheet.word("normalization") == "RMSNorm" else "layer",
              "positions": _positions(sheet), "bias": not sheet.has("disable_bias_linear"),
              "dropout": _dropout(sheet)}  # fmt: skip
    if sheet.has("add_qkv_bias"):
        found["qkv_bias"] = True
    if sheet.has("squared_relu"):
        found["activation"] = "relu"
    elif sheet.has("quick_geglu"):
        found["activation"] = "gelu"
    if sheet.has("embed_layernorm"):
        found["embedding_norm"] = True
    if experts:
        found |= _experts(sheet, experts, ffn)
    return found


def _positions(sheet: Sheet) -> str:
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
    often = sheet.word("moe_layer_freq", default="1")
    if often not in ("1", "[1]"):
        sheet.fault(sheet.said("moe_layer_freq"), f"experts in some layers only ({often[:40]})",
                    "--model FILE, a list of layers")  # fmt: skip
    found: dict[str, Any] = {"experts": experts, "active": sheet.whole("moe_router_topk") or 2}
    shared = sheet.whole("moe_shared_expert_intermediate_size")
    if shared:
        found["shared"] = max(1, round(shared / ffn))
        if shared % ffn:
            sheet.notes.append(f"a shared expert of {shared} is counted as {found['shared']} "
                               f"of {ffn}")  # fmt: skip
    return found


def vocabulary(sheet: Sheet, tensor: int) -> int:
    """Words with those that fill up: a multiple of 128 · t unless the job says otherwise."""
    sheet.asked |= {"make_vocab_size_divisible_by", "vocab_size", "tokenizer_type"}
    if padded := sheet.whole("padded_vocab_size", "pad_vocab_size_to"):
        return padded
    unit = (sheet.whole("make_vocab_size_divisible_by", default=128) or 128) * tensor
    words = sheet.whole("vocab_size")
    if words is None:
        kind = sheet.word("tokenizer_type")
        merges = sheet.settings.get("merge_file")
        sheet.asked.add("merge_file")
        words = TOKENIZERS.get(kind, 50257 if merges and not kind else 0)
        if not words:
            where = sheet.said("tokenizer_type", "tokenizer_model")
            sheet.fault(where, "nothing says how many words there are: the tokenizer knows",
                        "--set vocab_size=…", "E103")  # fmt: skip
            return unit
        sheet.notes.append(f"{words} words, as {kind or 'GPT-2 BPE'} has them")
    return -(-words // unit) * unit

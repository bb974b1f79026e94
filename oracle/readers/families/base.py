"""The common parts of families of models: the registry, sizes, the length of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle.readers.config_json import Config

DEFAULT_SEQUENCE = 2048
# tokens of a sequence in most of a language model's training, before it is stretched:
# Llama 3, arXiv 2407.21783, section 3.4; Mistral 7B, arXiv 2310.06825, Table 1
USUAL = 8192
STRETCHED = "original_max_position_embeddings"
DROPOUTS = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout",
            "embd_pdrop", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop")  # fmt: skip
Family = Callable[[Config], dict[str, Any]]
FAMILIES: dict[str, Family] = {}


def family(*names: str) -> Callable[[Family], Family]:
    def remember(function: Family) -> Family:
        FAMILIES.update(dict.fromkeys(names, function))
        return function

    return remember


def length(config: Config, table: bool = False, otherwise: int = DEFAULT_SEQUENCE) -> int:
    """Return the tokens of a sequence in training, often fewer than the longest."""
    longest = config.optional("sequence")
    if config.length:
        return config.length
    if longest is None:
        config.notes.append(f"no length is given: a sequence of {otherwise} is assumed")
        return otherwise
    scaled = config.nested("rope_scaling") or config.nested("rope_parameters")
    before = [scaled.get(STRETCHED), config.fields.get(STRETCHED)]
    before_stretching = [n for n in before if isinstance(n, int) and 0 < n < longest]
    trained = (
        longest
        if table
        else min([*before_stretching, longest if before_stretching else min(longest, USUAL)])
    )
    if trained < longest:
        why = (
            "before its positions were stretched"
            if before_stretching
            else "the config doesn't say at which"
        )
        config.notes.append(f"trained at a sequence of {trained:,}, {why}; its longest is "
                            f"{longest:,}: --tokens takes another")  # fmt: skip
    return trained


def base(config: Config, table: bool = False) -> dict[str, Any]:
    """Return the sizes of every family; a `table` of positions sets the sequence's length."""
    sequence = length(config, table)
    block: dict[str, Any] = {
        "layers": config.required("layers"), "hidden": config.required("hidden"),
        "heads": config.required("heads"), "vocab": config.required("vocab"), "sequence": sequence,
    }  # fmt: skip
    kv_heads, width = config.optional("kv_heads"), config.optional("width")
    if kv_heads and kv_heads != block["heads"]:
        block["kv_heads"] = kv_heads
    if width and width * block["heads"] != block["hidden"]:
        block["width"] = width
    ffn = config.optional("ffn")
    if ffn and ffn != 4 * block["hidden"]:
        block["ffn"] = ffn
    if config.rate(*DROPOUTS):
        block["dropout"] = True
    return block


def decoder(config: Config, layers: int, heads: int, ffn: int) -> tuple[int, int, int]:
    """Return layers, heads and inner channels of a decoder, by default the encoder's."""
    return (
        config.integer("decoder_layers", default=layers) or layers,
        config.integer("decoder_attention_heads", default=heads) or heads,
        config.integer("decoder_ffn_dim", default=ffn) or ffn,
    )


def function_of(config: Config, otherwise: str, *keys: str) -> str:
    """Return the block's nearest activation to the one that the config names."""
    word = next((config.text(key) for key in keys if config.text(key)), otherwise)
    if word in ("swish", "swiglu"):
        return "silu"
    return next((function for function in ("gelu", "relu", "silu") if function in word), "gelu")

"""What families of models have in common: the registry, sizes, the length of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle.readers.config_json import Config

DEFAULT_SEQUENCE = 2048
# tokens that language models are trained at, most of the time, whatever they are stretched to
# later: Llama 3, arXiv 2407.21783, section 3.4; Mistral 7B, arXiv 2310.06825, Table 1
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
    """Tokens of a sequence as it is trained, which is often shorter than the longest one."""
    longest = config.optional("sequence")
    if config.asked:
        return config.asked
    if longest is None:
        config.notes.append(f"no length is given: a sequence of {otherwise} is assumed")
        return otherwise
    scaled = config.nested("rope_scaling") or config.nested("rope_parameters")
    before = [scaled.get(STRETCHED), config.fields.get(STRETCHED)]
    said = [n for n in before if isinstance(n, int) and 0 < n < longest]
    trained = longest if table else min([*said, longest if said else min(longest, USUAL)])
    if trained < longest:
        why = "before its positions were stretched" if said else "the config doesn't say at which"
        config.notes.append(f"trained at a sequence of {trained:,}, {why}; its longest is "
                            f"{longest:,}: --tokens takes another")  # fmt: skip
    return trained


def base(config: Config, table: bool = False) -> dict[str, Any]:
    """The sizes that every family has; with a `table` of positions it is as long as that."""
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
    """Layers, heads and inner channels of a decoder, which are the encoder's if nothing is said."""
    return (
        config.integer("decoder_layers", default=layers) or layers,
        config.integer("decoder_attention_heads", default=heads) or heads,
        config.integer("decoder_ffn_dim", default=ffn) or ffn,
    )


def function_of(config: Config, otherwise: str, *keys: str) -> str:
    """The nearest activation the block has to the one the config names."""
    word = next((config.text(key) for key in keys if config.text(key)), otherwise)
    if word in ("swish", "swiglu"):
        return "silu"
    return next((known for known in ("gelu", "relu", "silu") if known in word), "gelu")

"""An encoder that reads one sequence and a decoder that writes another: T5, BART."""

from __future__ import annotations

from typing import Any

from oracle.readers.config_json import Config
from oracle.readers.families.base import DROPOUTS, decoder, family, function_of, length
from oracle.readers.families.parts import (
    attention,
    cross,
    dense,
    mlp,
    norm,
    second,
    stack,
    vectors,
)

EQUAL = "what the decoder writes is taken to be as long as what the encoder reads"


@family("t5", "mt5", "umt5", "longt5")
def _t5(config: Config) -> dict[str, Any]:
    """Return layers with RMS norms before them, no biases, and a bias by distances."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    width, vocab = config.integer("d_kv", default=64) or 64, config.required("vocab")
    ffn = config.optional("ffn") or 4 * hidden
    deep = config.integer("num_decoder_layers", default=layers) or layers
    projection = config.text("feed_forward_proj", "relu")
    gated = projection.startswith("gated")
    function = function_of(config.but({"said": projection}), "relu", "said")
    if function == "relu" and gated:
        config.fault("feed_forward_proj", "a gate with relu is no layer kind here")
    buckets = config.integer("relative_attention_num_buckets", default=32) or 32
    tokens, inner = length(config, otherwise=512), heads * width
    dropped = config.rate("dropout_rate") > 0
    config.notes.append(EQUAL)
    wide = None if inner == hidden else width
    self_attention = attention(heads, width=wide, bias=False, flash=False)
    masked = attention(heads, width=wide, bias=False, flash=False, causal=True)
    cross_attention = cross("encoder", heads, width=wide, bias=False, flash=False)
    last = mlp(ffn, bias=False, activation=function, **({"gated": True} if gated else {}))
    tied: dict[str, Any] = {"tied": True} if config.flag("tie_word_embeddings", True) else {}
    distances = vectors("relative positions", buckets * heads, hidden, tokens)
    return {"input": [1, tokens], "layers": [
        {"embedding": {"vocab": vocab, "hidden": hidden}}, distances,
        stack(layers, [self_attention, last], "rms", dropout=dropped), norm("rms", "encoder"),
        second(vocab, hidden, tokens, tied=True), distances,
        stack(deep, [masked, cross_attention, last], "rms", dropout=dropped), norm("rms"),
        dense(vocab, bias=False, role="vocab", **tied), "loss",
    ]}  # fmt: skip


@family("bart", "mbart")
def _bart(config: Config) -> dict[str, Any]:
    """Return layers with norms after them, and positions of a table with two spare rows."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    vocab, ffn = config.required("vocab"), config.optional("ffn") or 4 * hidden
    deep, more, wide = decoder(config, layers, heads, ffn)
    before = config.text("model_type") == "mbart"
    tokens = length(config, table=True, otherwise=1024)
    table = (config.optional("sequence") or tokens) + 2
    function = function_of(config, "gelu", "activation_function")
    dropped = config.rate(*DROPOUTS) > 0
    config.notes.append(EQUAL)
    cross_attention = cross("encoder", more)
    ends = [norm("layer")] if before else []
    return {"input": [1, tokens], "layers": [
        {"embedding": {"vocab": vocab, "hidden": hidden, "positions": table}}, norm("layer"),
        {**stack(layers, [attention(heads), mlp(ffn, activation=function)], after=not before,
                 dropout=dropped), **({} if before else {"name": "encoder"})},
        *([norm("layer", "encoder")] if before else []),
        second(vocab, hidden, tokens, tied=True, positions=table), norm("layer"),
        stack(deep, [attention(more, causal=True), cross_attention, mlp(wide, activation=function)],
              after=not before, dropout=dropped), *ends,
        dense(vocab, bias=False, role="vocab", tied=True), "loss",
    ]}  # fmt: skip

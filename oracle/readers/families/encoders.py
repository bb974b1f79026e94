"""Encoders of text, which look both ways: BERT and its kin."""

from __future__ import annotations

from typing import Any

from oracle.readers.config_json import Config
from oracle.readers.families.base import DROPOUTS, base, family, function_of, length
from oracle.readers.families.parts import attention, dense, mlp, norm, output_fields, stack, vectors

SPARE = "two spare rows of the position table are left out"


@family("bert", "roberta", "xlm-roberta", "camembert")
def _bert(config: Config) -> dict[str, Any]:
    fields = {"hidden_dropout_prob": 0.1, **config.fields}
    plain = config.text("model_type") == "bert"
    block = _encoder(config.but(fields), plain)
    block["segments"] = config.integer("type_vocab_size", default=2 if plain else 1, smallest=0)
    return {"transformer": block}


@family("distilbert")
def _distilbert(config: Config) -> dict[str, Any]:
    return {"transformer": _encoder(config.but({"dropout": 0.1, **config.fields}), True)}


@family("mpnet")
def _mpnet(config: Config) -> dict[str, Any]:
    fields = {"hidden_dropout_prob": 0.1, **config.fields}
    config.notes.append("the relative positions, one number a head and distance, are left out")
    return {"transformer": _encoder(config.but(fields), False)}


def _encoder(config: Config, plain: bool) -> dict[str, Any]:
    """Return the block of an encoder, with the head that its `architectures` name."""
    block = base(config, table=True)
    if not plain:  # positions start behind the padding index
        block["sequence"] -= 2 * (block["sequence"] % 16 == 2)
        config.notes.append(SPARE)
    heads = config.fields.get("architectures")
    kind = str(heads[0]) if isinstance(heads, list) and heads else ""
    block |= {"causal": False, "embedding_norm": True, "final_norm": False}
    if "PreTraining" in kind:
        block |= {"head_transform": True, "pooler": True}
    elif not kind or "MaskedLM" in kind:
        block["head_transform"] = True
    else:
        block["head"] = False
        config.notes.append(f"of {kind[:60]} only the encoder is described")
    if function_of(config, "gelu", "hidden_act", "activation") != "gelu":
        block["activation"] = function_of(config, "gelu", "hidden_act", "activation")
    return block


@family("electra")
def _electra(config: Config) -> dict[str, Any]:
    """Return the discriminator: narrow embeddings, and one output a word."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    ffn, vocab = config.optional("ffn") or 4 * hidden, config.required("vocab")
    narrow = config.integer("embedding_size", default=128) or 128
    segments = config.integer("type_vocab_size", default=2, smallest=0)
    sequence = length(config, table=True, otherwise=512)
    config.notes.append("the discriminator alone; the generator that it is trained beside is not")
    widened = [dense(hidden)] if narrow != hidden else []
    dropped = config.rate(*DROPOUTS) > 0
    return {"input": [1, sequence], "layers": [
        {"embedding": {"vocab": vocab, "hidden": narrow, "positions": sequence, "extra": segments}},
        norm("layer"), *widened,
        stack(layers, [attention(heads), mlp(ffn)], after=True, dropout=dropped),
        dense(hidden), "gelu", dense(1), {"loss": "bce"},
    ]}  # fmt: skip


@family("albert")
def _albert(config: Config) -> dict[str, Any]:
    """Return narrow embeddings, and layers that share the weights of one."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    ffn, vocab = config.optional("ffn") or 4 * hidden, config.required("vocab")
    narrow = config.integer("embedding_size", default=128) or 128
    segments = config.integer("type_vocab_size", default=2, smallest=0)
    if (config.integer("num_hidden_groups", default=1) or 1) > 1:
        config.fault("num_hidden_groups", "several groups of shared layers are not described")
    sequence = length(config, table=True, otherwise=512)
    function = function_of(config, "gelu", "hidden_act")
    layer = stack(layers, [attention(heads), mlp(ffn, activation=function)], after=True,
                  dropout=config.rate(*DROPOUTS) > 0)  # fmt: skip
    return {"input": [1, sequence], "layers": [
        {"embedding": {"vocab": vocab, "hidden": narrow, "positions": sequence, "extra": segments}},
        norm("layer"), dense(hidden), {**layer, "shared": True},
        dense(narrow), "gelu", norm("layer"),
        dense(vocab, role="vocab", tied=True), "loss",
    ]}  # fmt: skip


@family("deberta-v2")
def _deberta(config: Config) -> dict[str, Any]:
    """Return layers that score words and distances separately, by a table of distances."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    ffn, vocab = config.optional("ffn") or 4 * hidden, config.required("vocab")
    sequence = length(config, table=True, otherwise=512)
    if not config.flag("share_att_key") or not config.flag("relative_attention"):
        config.fault("share_att_key", "distances with matrices of their own are not described")
    if config.integer("conv_kernel_size", default=0, smallest=0):
        config.fault("conv_kernel_size", "a convolution beside the layers is not described")
    buckets = 2 * (config.integer("position_buckets", default=256) or 256)
    places = sequence * (config.flag("position_biased_input", True))
    kinds = config.text("pos_att_type", "p2c|c2p").count("|") + 1
    # one product with the table for keys, one for queries, and of each the scores picked out
    scores = heads * sequence * (buckets + 2 * sequence) * kinds
    distances = {"opaque": {
        "name": "distances", "op": "scores of distances", **output_fields(hidden, [sequence], True),
        "flop": 2 * kinds * sequence * buckets * hidden, "moves": scores, "moves_back": 2 * scores,
        "keeps": True}}  # fmt: skip
    attention_layers = [distances, *attention(heads, flash=False)]
    config.notes.append("the head that tells replaced words, and its generator, are left out")
    return {"input": [1, sequence], "layers": [
        {"embedding": {"vocab": vocab, "hidden": hidden, "positions": places}}, norm("layer"),
        vectors("distances and their norm", (buckets + 2) * hidden, hidden, sequence),
        stack(layers, [attention_layers, mlp(ffn)], after=True, dropout=config.rate(*DROPOUTS) > 0),
        "loss",
    ]}  # fmt: skip

"""Transformers of sound: of waves (wav2vec 2.0, HuBERT) and of spectra (Whisper)."""

from __future__ import annotations

from typing import Any

from oracle.readers.config_json import Config
from oracle.readers.families.base import DROPOUTS, decoder, family, function_of
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

CROP = 250_000  # samples at 16 kHz that wav2vec 2.0 is trained on: arXiv 2006.11477, section 4.2


@family("wav2vec2", "hubert", "wavlm", "data2vec-audio")
def _wave(config: Config) -> dict[str, Any]:
    """Return convolutions that make frames of a wave, a convolution of positions, an encoder."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    ffn = config.optional("ffn") or 4 * hidden
    filters = config.counts("conv_dim", [512] * 7)
    kernels = config.counts("conv_kernel", [10, 3, 3, 3, 3, 2, 2])
    strides = config.counts("conv_stride", [5, 2, 2, 2, 2, 2, 2])
    near = config.integer("num_conv_pos_embeddings", default=128) or 128
    groups = config.integer("num_conv_pos_embedding_groups", default=16) or 16
    biased, norm_each = (
        config.flag("conv_bias"),
        config.text("feat_extract_norm", "group") == "layer",
    )
    before = config.flag("do_stable_layer_norm")
    frames = wave = config.length or CROP
    if config.length is None:
        config.notes.append(f"no length is given: {CROP:,} samples of sound (--tokens: another)")
    layers_of_wave: list[Any] = []
    if not len(filters) == len(kernels) == len(strides):
        config.fault("conv_dim", "as many filters, kernels and strides are wanted")
        return {}
    for i, (wide, kernel, stride) in enumerate(zip(filters, kernels, strides, strict=True)):
        frames = (frames - kernel) // stride + 1
        layers_of_wave.append({"conv": {"filters": wide, "kernel": kernel, "stride": stride,
                                        "bias": biased}})  # fmt: skip
        layers_of_wave += [norm("layer" if norm_each else "group")] if norm_each or not i else []
        layers_of_wave.append(function_of(config, "gelu", "feat_extract_activation"))
    if frames < 1:
        config.fault("conv_stride", f"nothing is left of {wave} samples")
        return {}
    if config.text("model_type") == "wavlm":
        config.notes.append("its gated relative positions are left out")
    function = function_of(config, "gelu", "hidden_act")
    layer = [attention(heads), mlp(ffn, activation=function)]
    first = [] if before else [norm("layer")]
    return {"input": [1, wave], "layers": [
        *layers_of_wave, {"reshape": {"to": [filters[-1], frames], "tokens": True}}, norm("layer"),
        dense(hidden, "frames"), vectors("vector of what is masked", hidden, hidden, frames),
        {"conv": {"filters": hidden, "kernel": near, "padding": "same", "groups": groups}},
        vectors("lengths of weights", near, hidden, frames), {"gelu": {"name": "near"}},
        {"add": {"from": ["frames", "near"]}},
        *first, stack(layers, layer, after=not before, dropout=config.rate(*DROPOUTS) > 0),
        *([norm("layer")] if before else []), *_ending(config, hidden),
    ]}  # fmt: skip


def _ending(config: Config, hidden: int) -> list[Any]:
    """Return the output of letters where the model recognises them, else a loss alone."""
    heads = config.fields.get("architectures")
    if isinstance(heads, list) and heads and "CTC" in str(heads[0]):
        return [dense(config.integer("vocab_size", default=32) or 32), "loss"]
    config.notes.append("what it is trained against (codes, clusters) is left out")
    return ["loss"]


@family("whisper")
def _whisper(config: Config) -> dict[str, Any]:
    """Return two convolutions over a spectrum, an encoder, and a decoder of words."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    vocab, ffn = config.required("vocab"), config.optional("ffn") or 4 * hidden
    deep, more, wide = decoder(config, layers, heads, ffn)
    bins = config.integer("num_mel_bins", default=80) or 80
    heard = config.integer("max_source_positions", default=1500) or 1500
    written = config.integer("max_target_positions", default=448) or 448
    config.notes.append("keys have a bias here and none in the network: one vector an attention")
    cross_attention = cross("encoder", more)
    dropped = config.rate(*DROPOUTS) > 0
    return {"input": [bins, 2 * heard], "layers": [
        {"conv": {"filters": hidden, "kernel": 3, "padding": 1}}, "gelu",
        {"conv": {"filters": hidden, "kernel": 3, "stride": 2, "padding": 1}}, "gelu",
        {"reshape": {"to": [hidden, heard], "tokens": True}}, "position",
        stack(layers, [attention(heads), mlp(ffn)], dropout=dropped), norm("layer", "encoder"),
        second(vocab, hidden, written, positions=written),
        stack(deep, [attention(more, causal=True), cross_attention, mlp(wide)], dropout=dropped),
        norm("layer"), dense(vocab, bias=False, role="vocab", tied=True), "loss",
    ]}  # fmt: skip

"""Networks of pictures: transformers of patches, of windows, and convolutions."""

from __future__ import annotations

from typing import Any

from oracle.readers.config_json import Config
from oracle.readers.families.base import family, function_of
from oracle.readers.families.parts import (
    Layer,
    attention,
    classes,
    conv,
    dense,
    mlp,
    norm,
    output_fields,
    scaled,
    second,
    stack,
    vectors,
)


def _image(config: Config, patch: int) -> tuple[int, int, int]:
    """Return channels, pixels a side and patches a side."""
    image = config.integer("image_size", default=224) or 224
    patch = config.integer("patch_size", default=patch) or patch
    channels = config.integer("num_channels", default=3) or 3
    if image < patch or image > 2**16:
        config.fault("image_size", f"an image of {image} in patches of {patch}")
        return channels, patch, 1
    return channels, image, image // patch


def _patches(hidden: int, patch: int, side: int, extra: int, **more: Any) -> list[Layer]:
    """Return layers that cut a picture into patches, one token each, with learned positions."""
    return [
        {"conv": {"filters": hidden, "kernel": patch, "stride": patch, **more}},
        {"reshape": {"to": [hidden, side * side], "tokens": True}},
        {"position": {"extra_tokens": extra}},
    ]


@family("vit", "deit")
def _vit(config: Config) -> dict[str, Any]:
    """Return an encoder of patches, with a classifier."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    ffn = config.optional("ffn") or 4 * hidden
    channels, image, side = _image(config, 16)
    extra = 2 if config.text("model_type") == "deit" else 1
    biased = {} if config.flag("qkv_bias", True) else {"bias": False}
    return {"dataset": "imagenet", "input": [channels, image, image], "layers": [
        *_patches(hidden, image // side, side, extra),
        stack(layers, [attention(heads, **biased), mlp(ffn)]),
        norm("layer"), "first", dense(classes(config.fields)), "loss",
    ]}  # fmt: skip


@family("dinov2")
def _dinov2(config: Config) -> dict[str, Any]:
    """Return the encoder alone, every branch scaled by a vector before it is added."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    ffn = round(hidden * (config.rate("mlp_ratio") or 4))
    channels, image, side = _image(config, 14)
    if config.flag("use_swiglu_ffn"):
        config.fault("use_swiglu_ffn", "its gated MLPs are not described")
    config.notes.append("the heads that it is trained by are left out")
    tokens = side * side + 1
    branch = scaled(hidden, [tokens], True)
    return {"dataset": "imagenet", "input": [channels, image, image], "layers": [
        *_patches(hidden, image // side, side, 1),
        vectors("token for what is masked", hidden, hidden, tokens),
        stack(layers, [[*attention(heads), branch], [*mlp(ffn), branch]]),
        norm("layer"), "first", "loss",
    ]}  # fmt: skip


@family("clip")
def _clip(config: Config) -> dict[str, Any]:
    """Return encoders of a picture and of its caption, one vector each."""
    text = config.but({"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
                       "num_attention_heads": 8, "vocab_size": 49408,
                       "max_position_embeddings": 77, **config.nested("text_config")})  # fmt: skip
    vision = config.but({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
                         "num_attention_heads": 12, **config.nested("vision_config")})  # fmt: skip
    joint = config.integer("projection_dim", default=512) or 512
    words, pixels = text.required("hidden"), vision.required("hidden")
    length = text.optional("sequence") or 77
    channels, image, side = _image(vision, 32)
    towers = []
    for tower, causal in ((text, {"causal": True}), (vision, {})):
        ffn = tower.optional("ffn") or 4 * tower.required("hidden")
        layer = [attention(tower.required("heads"), **causal), mlp(ffn)]
        towers.append(stack(tower.required("layers"), layer))
    config.notes.append("its loss, which meets all samples of a batch, is counted sample by sample")
    return {"input": [channels, image, image], "layers": [
        second(text.required("vocab"), words, length, positions=length),
        towers[0], norm("layer"), "first", dense(joint, "caption", bias=False),
        _from("input", _patches(pixels, image // side, side, 1, bias=False)[0]),
        *_patches(pixels, image // side, side, 1)[1:], norm("layer"),
        towers[1], "first", norm("layer"), dense(joint, "picture", bias=False),
        {"concat": {"from": ["caption", "picture"]}}, "loss",
    ]}  # fmt: skip


@family("siglip")
def _siglip(config: Config) -> dict[str, Any]:
    """Return encoders of a picture and of its caption; one learned query pools the picture."""
    base = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
            "num_attention_heads": 12}  # fmt: skip
    text = config.but({**base, "vocab_size": 32000, "max_position_embeddings": 64,
                       **config.nested("text_config")})  # fmt: skip
    vision = config.but({**base, **config.nested("vision_config")})
    words, pixels = text.required("hidden"), vision.required("hidden")
    tokens, heads = text.optional("sequence") or 64, vision.required("heads")
    ffn = vision.optional("ffn") or 4 * pixels
    channels, image, side = _image(vision, 16)
    towers = [
        stack(tower.required("layers"), [attention(tower.required("heads")),
                                       mlp(tower.optional("ffn") or 4 * tower.required("hidden"))])
        for tower in (text, vision)
    ]  # fmt: skip
    config.notes.append("its loss, which meets all samples of a batch, is counted sample by sample")
    probe = vectors("probe", pixels, pixels, 1)["opaque"]
    return {"input": [channels, image, image], "layers": [
        second(text.required("vocab"), words, tokens, positions=tokens),
        towers[0], norm("layer"), "first", dense(words, "caption"),
        _from("input", _patches(pixels, image // side, side, 0)[0]),
        *_patches(pixels, image // side, side, 0)[1:], towers[1], norm("layer", "seen"),
        {"opaque": {**probe, "name": "probe"}},
        {"cross": {"name": "gathered", "from": ["probe", "seen"], "heads": heads}},
        norm("layer"), *mlp(ffn), {"add": {"name": "picture", "from": ["gathered", "mlp"]}},
        {"concat": {"from": ["caption", "picture"]}}, "loss",
    ]}  # fmt: skip


@family("beit", "data2vec-vision")
def _beit(config: Config) -> dict[str, Any]:
    """Return a classifier with distances in each layer, scaled branches and a mean."""
    hidden, heads, layers = (config.required(size) for size in ("hidden", "heads", "layers"))
    ffn = config.optional("ffn") or 4 * hidden
    channels, image, side = _image(config, 16)
    if not config.flag("use_relative_position_bias"):
        config.fault("use_relative_position_bias", "places without distances are not described")
    tokens = side * side + 1
    table = (2 * side - 1) ** 2 + 3
    distances = vectors("distances", table * heads, hidden, tokens)
    scale = config.fields.get("layer_scale_init_value", 0.1)
    branch = [scaled(hidden, [tokens], True)] if scale else []
    config.notes.append("keys have a bias here and none in the network: one vector an attention")
    patches = _patches(hidden, image // side, side, 1)
    return {"dataset": "imagenet", "input": [channels, image, image], "layers": [
        *patches[:2], {"opaque": {"op": "class token", **output_fields(hidden, [tokens], True),
                                  "weights": hidden, "moves": 2 * hidden * tokens}},
        stack(layers, [[distances, *attention(heads, flash=False), *branch],
                       [*mlp(ffn), *branch]]),
        {"pool": {"kernel": "global", "op": "mean"}}, norm("layer"), "flatten",
        dense(classes(config.fields)), "loss",
    ]}  # fmt: skip


def _from(source: str, layer: Layer) -> Layer:
    """Return a layer that reads another layer than the one before it."""
    ((kind, fields),) = layer.items()
    return {kind: {"from": [source], **fields}}


@family("resnet")
def _resnet(config: Config) -> dict[str, Any]:
    """Return stages of residual blocks, each half as large as the stage before."""
    widths = config.counts("hidden_sizes", [256, 512, 1024, 2048])
    depths = config.counts("depths", [3, 4, 6, 3])
    stem = config.integer("embedding_size", default=64) or 64
    channels = config.integer("num_channels", default=3) or 3
    narrow = config.text("layer_type", "bottleneck") == "bottleneck"
    early = config.flag("downsample_in_bottleneck")
    if len(widths) != len(depths) or sum(depths) > 10_000:
        config.fault("depths", f"{len(depths)} stages of {len(widths)} widths")
        return {}
    layers: list[Any] = [conv(stem, 7, 2), "norm", "relu",
                         {"pool": {"kernel": 3, "stride": 2, "padding": 1}}]  # fmt: skip
    before = stem
    for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        halved = bool(i) or config.flag("downsample_in_first_stage")
        stride = 2 if halved else 1
        layers.append(
            {"layers": _residual(width, stride, narrow, early, before != width or halved)}
        )
        if depth > 1:
            layers.append(
                {"repeat": depth - 1, "layers": _residual(width, 1, narrow, early, False)}
            )
        before = width
    return {"dataset": "imagenet", "input": [channels, 224, 224], "layers": [
        *layers, {"pool": {"kernel": "global", "op": "mean"}}, "flatten",
        dense(classes(config.fields)), "loss",
    ]}  # fmt: skip


def _residual(width: int, stride: int, narrow: bool, early: bool, turned: bool) -> list[Any]:
    """Return two or three convolutions with a short cut."""
    inner = max(1, width // 4)
    branch: list[Any] = (
        [conv(inner, 1, stride if early else 1), "norm", "relu",
         conv(inner, 3, 1 if early else stride), "norm", "relu", conv(width, 1)]
        if narrow else [conv(width, 3, stride), "norm", "relu", conv(width, 3)]
    )  # fmt: skip
    branch.append({"norm": {"name": "branch"}})
    short = [_from("block", conv(width, 1, stride)), {"norm": {"name": "short"}}] if turned else []
    add = {"add": {"from": ["branch", "short" if turned else "block"]}}
    return [*branch, *short, add, "relu"]


@family("convnext")
def _convnext(config: Config) -> dict[str, Any]:
    """Return depthwise convolutions, each followed by an MLP over the channels."""
    widths = config.counts("hidden_sizes", [96, 192, 384, 768])
    depths = config.counts("depths", [3, 3, 9, 3])
    channels, image, side = _image(config, 4)
    shrinks = side // 2 ** (len(widths) - 1)
    if len(widths) != len(depths) or not shrinks or sum(depths) > 10_000:
        config.fault("depths", f"{len(depths)} stages of {len(widths)} widths")
        return {}
    rate = config.fields.get("layer_scale_init_value", 1e-6)
    learned = isinstance(rate, int | float) and rate > 0
    layers: list[Any] = []
    for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        patch = 2 if i else image // side
        down: Layer = {"conv": {"filters": width, "kernel": patch, "stride": patch}}
        layers += [norm("layer"), down] if i else [down, norm("layer")]
        scale = [scaled(width, [side >> i, side >> i], False)] if learned else []
        last = "scaled" if learned else "mlp"
        layers.append({"repeat": depth, "layers": [
            conv(width, 7, groups=width, bias=True), norm("layer"), *mlp(4 * width), *scale,
            {"add": {"from": ["block", last]}},
        ]})  # fmt: skip
    return {"dataset": "imagenet", "input": [channels, image, image], "layers": [
        *layers, {"pool": {"kernel": "global", "op": "mean"}}, "flatten", norm("layer"),
        dense(classes(config.fields)), "loss",
    ]}  # fmt: skip


@family("swin")
def _swin(config: Config) -> dict[str, Any]:
    """Return attention within windows of patches, shifted in every second layer."""
    width = config.integer("embed_dim", default=96) or 96
    depths = config.counts("depths", [2, 2, 6, 2])
    heads = config.counts("num_heads", [3, 6, 12, 24])
    window = config.integer("window_size", default=7) or 7
    ratio = config.rate("mlp_ratio") or 4.0
    channels, image, side = _image(config, 4)
    if len(heads) != len(depths) or side % 2 ** (len(depths) - 1) or sum(depths) > 10_000:
        config.fault("depths", f"{len(depths)} stages of {side} × {side} patches")
        return {}
    patch = image // side
    function = function_of(config, "gelu", "hidden_act")
    layers: list[Any] = [{"conv": {"filters": width, "kernel": patch, "stride": patch}},
                         {"reshape": {"to": [width, side * side], "tokens": True}},
                         norm("layer")]  # fmt: skip
    for i, (depth, stage_heads) in enumerate(zip(depths, heads, strict=True)):
        if i:  # four neighbours become one
            side, width = side // 2, width * 2
            layers += [{"reshape": {"to": [2 * width, side * side], "tokens": True}}, norm("layer"),
                       dense(width, bias=False)]  # fmt: skip
        tokens, near = side * side, min(window, side)
        size = width * tokens
        # cut into windows and put together again, rolled in every second layer
        moved: Layer = {
            "opaque": {
                "name": "windows", "op": "windows", **output_fields(width, [tokens], True),
                "moves": 6 * size, "moves_back": 6 * size,
                "weights": (2 * window - 1) ** 2 * stage_heads,
            }
        }  # fmt: skip
        inside = attention(stage_heads, window=near * near, flash=False,
                           bias=config.flag("qkv_bias", True))  # fmt: skip
        layer = [[*inside, moved], mlp(round(ratio * width), activation=function)]
        layers.append(stack(depth, layer))
    return {"dataset": "imagenet", "input": [channels, image, image], "layers": [
        *layers, norm("layer"), {"reshape": {"to": [width, side, side]}},
        {"pool": {"kernel": "global", "op": "mean"}}, "flatten", dense(classes(config.fields)),
        "loss",
    ]}  # fmt: skip

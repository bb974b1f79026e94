"""Training of vision networks with grouped and depthwise convolutions, and transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from benchmarks.published.networks import (
    Layers,
    convolved,
    efficientnet,
    inverted,
    named,
    residual,
    resnext,
    squeezed,
)
from benchmarks.published.science import alone
from benchmarks.published.table import Case, Row, number, table

HEAD: Layers = [{"pool": {"kernel": "global", "op": "mean"}}, "flatten", {"dense": 1000}, "loss"]


def plain(blocks: Sequence[int], side: int) -> dict[str, Any]:
    """ResNet of two 3×3 convolutions a block (arXiv 1512.03385)."""
    body: Layers = [*convolved(64, 7, "batch", "relu", stride=2, padding=3),
                    {"pool": {"kernel": 3, "stride": 2, "padding": 1}}]  # fmt: skip
    for i, depth in enumerate(blocks):
        filters = 64 * 2**i
        for j in range(depth):
            stride = 2 if i and not j else 1
            branch = convolved(filters, 3, "batch", "relu", stride=stride, padding=1)
            branch += convolved(filters, 3, "batch", "", padding=1)
            body.append(residual(branch, filters, stride, bool(i) and not j))
    return named("resnet", side, [*body, *HEAD])


def vgg(convolutions: Sequence[int], side: int, *, norm: bool) -> dict[str, Any]:
    """VGG (arXiv 1409.1556)."""
    body: Layers = []
    for i, count in enumerate(convolutions):
        for _ in range(count):
            body += convolved(min(64 * 2**i, 512), 3, "batch" if norm else "", "relu",
                              padding=1, bias=True)  # fmt: skip
        body.append("pool")
    dense: Layers = [{"dense": 4096}, "relu", "dropout"] * 2
    return named("vgg", side, [*body, "flatten", *dense, {"dense": 1000}, "loss"])


def vit(width: int, heads: int, side: int, patch: int = 16, layers: int = 12) -> dict[str, Any]:
    """ViT (arXiv 2010.11929) and DeiT, which is the same network."""
    block: Layers = [
        {"norm": "layer"}, {"attention": {"name": "attention", "heads": heads}},
        {"add": {"name": "middle", "from": ["block", "attention"]}},
        {"norm": "layer"}, {"mlp": {"name": "mlp", "ffn": 4 * width}},
        {"add": {"from": ["middle", "mlp"]}},
    ]  # fmt: skip
    tokens = (side // patch) ** 2
    return named("vit", side, [
        {"conv": {"filters": width, "kernel": patch, "stride": patch}},
        {"reshape": {"to": [width, tokens], "tokens": True}}, {"position": {"extra_tokens": 1}},
        {"repeat": layers, "layers": block}, {"norm": "layer"}, "first", {"dense": 1000}, "loss",
    ])  # fmt: skip


def regnet(
    widths: Sequence[int], depths: Sequence[int], group: int, side: int, *, squeeze: bool
) -> dict[str, Any]:
    """RegNet (arXiv 2003.13678): grouped bottlenecks as wide as what they make."""
    body, given = convolved(32, 3, "batch", "relu", stride=2, padding=1), 32
    for filters, depth in zip(widths, depths, strict=True):
        for j in range(depth):
            stride = 1 if j else 2
            branch = convolved(filters, 1, "batch", "relu")
            branch += convolved(filters, 3, "batch", "", stride=stride, padding=1,
                                groups=filters // group)  # fmt: skip
            branch.append({"relu": {"name": "wide"}})
            branch += squeezed(round(given / 4), filters, "relu") if squeeze else []
            branch += convolved(filters, 1, "batch", "")
            body.append(residual(branch, filters, stride, not j))
            given = filters
    return named("regnet", side, [*body, *HEAD])


# kind, stride, expansion, filters, repeats: convolutions, fused and inverted bottlenecks
SMALL = (("c", 1, 1, 24, 2), ("e", 2, 4, 48, 4), ("e", 2, 4, 64, 4), ("i", 2, 4, 128, 6),
         ("i", 1, 6, 160, 9), ("i", 2, 6, 256, 15))  # fmt: skip
MEDIUM = (("c", 1, 1, 24, 3), ("e", 2, 4, 48, 5), ("e", 2, 4, 80, 5), ("i", 2, 4, 160, 7),
          ("i", 1, 6, 176, 14), ("i", 2, 6, 304, 18), ("i", 1, 6, 512, 5))  # fmt: skip
SMALL_RW = (("e", 1, 1, 24, 2), *SMALL[1:-1], ("i", 2, 6, 272, 15))


def efficientnet2(stages: Any, side: int, last: int = 1280) -> dict[str, Any]:
    """EfficientNetV2 (arXiv 2104.00298): fused bottlenecks first, inverted ones later."""
    body, given = convolved(24, 3, "batch", "silu", stride=2, padding=1), 24
    for kind, first, expansion, filters, repeats in stages:
        for j in range(repeats):
            stride = 1 if j else first
            if kind == "i":
                block = inverted(given, filters, 3, stride, expansion, given // 4)
            else:
                wide, act = given * expansion, "silu" if kind == "e" else ""
                block = convolved(wide if kind == "e" else filters, 3, "batch", act,
                                  stride=stride, padding=1)  # fmt: skip
                block += convolved(filters, 1, "batch", "") if kind == "e" else ["silu"]
                block[-1] = (
                    {"norm": {"name": "made"}} if kind == "e" else {"silu": {"name": "made"}}
                )
                if stride == 1 and given == filters:
                    block.append({"add": {"from": ["made", "block"]}})
            body.append({"layers": block})
            given = filters
    return named("efficientnetv2", side, [*body, *convolved(last, 1, "batch", "silu"), *HEAD])


RESNETS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
VITS = {"tiny": (192, 3, 12), "small": (384, 6, 12), "base": (768, 12, 12),
        "large": (1024, 16, 24)}  # fmt: skip
SCALES = {"b0": (1.0, 1.0), "b1": (1.0, 1.1), "b2": (1.1, 1.2), "b3": (1.2, 1.4),
          "b4": (1.4, 1.8)}  # fmt: skip
REGNETS = {
    "regnetx_008": ((64, 128, 288, 672), (1, 3, 7, 5), 16),
    "regnetx_032": ((96, 192, 432, 1008), (2, 6, 15, 2), 48),
    "regnetx_160": ((256, 512, 896, 2048), (2, 6, 13, 1), 128),
    "regnety_008": ((64, 128, 320, 768), (1, 3, 8, 2), 16),
    "regnety_032": ((72, 216, 576, 1512), (2, 5, 13, 1), 24),
    "regnety_080": ((168, 448, 896, 2016), (2, 4, 10, 1), 56),
    "regnety_160": ((224, 448, 1232, 3024), (2, 4, 11, 1), 112),
}


@lru_cache(99)
def network(name: str, side: int) -> Any:
    """A network by timm's name, or None where it is not made here."""
    if name in RESNETS:
        return resnext(RESNETS[name], 1, 64, side)
    if name == "wide_resnet50_2":
        return resnext(RESNETS["resnet50"], 1, 128, side)
    if name in ("resnet18", "resnet34"):
        return plain((2, 2, 2, 2) if name == "resnet18" else (3, 4, 6, 3), side)
    if name.startswith("vgg"):
        return vgg((2, 2, 3, 3, 3) if "16" in name else (2, 2, 4, 4, 4), side, norm="bn" in name)
    if name in REGNETS:
        return regnet(*REGNETS[name], side, squeeze=name.startswith("regnety"))
    if name.startswith(("vit_", "deit_")):
        _, size, patch, _ = name.split("_")
        width, heads, layers = VITS[size]
        return vit(width, heads, side, int(patch.removeprefix("patch")), layers)
    if name == "efficientnet_lite0":
        return efficientnet(1.0, 1.0, side, squeeze=False, act="relu")
    if name.startswith("efficientnet_"):
        return efficientnet(*SCALES[name[-2:]], side)
    if name in ("tf_efficientnetv2_s", "tf_efficientnetv2_m"):
        return efficientnet2(SMALL if name.endswith("s") else MEDIUM, side)
    return efficientnet2(SMALL_RW, side, 1792) if name == "efficientnetv2_rw_s" else None


@table("timm", "timm_train*.csv", "MAPE ≤ 12 %")
def timm(found: list[Row]) -> Iterator[Case]:
    """Steps of timm's networks on one card; two of 35, with parts of their own, are left out."""
    for row in found:
        model = network(row["model"], int(row["input_shape"].split("x")[-1]))
        if model is None:
            continue
        software = f"pytorch-channels-{'last' if row['flags'] == 'channels_last' else 'first'}"
        if row["framework"].startswith("PyTorch 1.10"):  # norms of tokens are faster from 1.11 on
            software = f"{software},kernels.row=1.67 us"
        yield Case(
            (row["model"], row["framework"], row["flags"]), model, alone("rtx-3090"), "serial",
            number(row, "global_batch"), float(row["step_ms"]) / 1000,
            {"precision": "fp16", "optimizer": "momentum"},
            software=software,
        )  # fmt: skip

"""Networks of published tables that are families of one shape: U-Nets, EfficientNets, ResNeXts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Layers = list[Any]


def convolved(filters: int, kernel: Any, norm: str = "instance", act: str = "leaky_relu",
              **more: Any) -> Layers:  # fmt: skip
    """A convolution, its norm and its activation; a bias where there is no norm."""
    found: Layers = [{"conv": {"filters": filters, "kernel": kernel, "bias": not norm} | more}]
    found += [{"norm": norm}] if norm else []
    return found + ([act] if act else [])


def halved(patch: Sequence[int], spacing: Sequence[float]) -> list[tuple[tuple[int, ...], ...]]:
    """(kernel, stride) of each stage of nnU-Net: halved where voxels are fine and many enough.

    An extent is halved while it has eight voxels and its spacing is within twice the finest; its
    window is one voxel until then.
    """
    sizes, space = list(patch), list(spacing)
    kernels, strides = [], [(1,) * len(patch)]
    while True:
        near = [s / min(space) <= 2 for s in space]
        cut = [n and size >= 8 for n, size in zip(near, sizes, strict=True)]
        kernels.append(tuple(3 if n else 1 for n in near))
        if not any(cut) or len(strides) == 6:
            return list(zip(kernels, strides, strict=True))
        sizes = [-(-size // 2) if c else size for size, c in zip(sizes, cut, strict=True)]
        space = [s * 2 if c else s for s, c in zip(space, cut, strict=True)]
        strides.append(tuple(2 if c else 1 for c in cut))


def unet(
    patch: Sequence[int], channels: int, classes: int, *, norm: str = "instance",
    features: Sequence[int] = (32, 64, 128, 256, 320, 320), pools: bool = False,
    deep: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """A U-Net; `deep`: nnU-Net of its authors, with a loss at all but the two coarsest scales."""
    rank = len(patch)
    spacing = (3.6, 0.62, 0.62) if patch[0] * 8 < patch[1] else (1.0,) * rank
    stages = [((3,) * rank, (1,) * rank)] + [((3,) * rank, (2,) * rank)] * (len(features) - 1)
    if deep:
        stages = halved(patch, spacing)
    act = "leaky_relu" if norm else "relu"
    body: Layers = []
    for i, ((kernel, stride), filters) in enumerate(zip(stages, features, strict=False)):
        pad = [k // 2 for k in kernel]
        body += ["pool"] if pools and i else []
        first = {} if pools else {"stride": list(stride)}
        more = {"padding": pad, "bias": deep or not norm}
        body.append({"name": f"down{i}", "layers": [
            *convolved(filters, list(kernel), norm, act, **more, **first),
            *convolved(filters, list(kernel), norm, act, **more)]})  # fmt: skip
    for i in reversed(range(len(stages) - 1)):
        filters, (kernel, _), (_, stride) = features[i], stages[i], stages[i + 1]
        more = {"padding": [k // 2 for k in kernel], "bias": deep or not norm}
        up = {"name": f"up{i}", "filters": filters, "kernel": list(stride), "stride": list(stride)}
        up["from"] = [f"down{i + 1}" if i == len(stages) - 2 else f"join{i + 1}"]
        body += [{"deconv": {**up, "bias": not deep}}, {"concat": {"from": [f"up{i}", f"down{i}"]}}]
        body.append({"name": f"join{i}", "layers": [
            *convolved(filters, list(kernel), norm, act, **more),
            *convolved(filters, list(kernel), norm, act, **more)]})  # fmt: skip
        if deep and 0 < i < len(stages) - 2:  # a prediction at this scale, and its loss
            body += [{"conv": {"from": [f"join{i}"], "filters": classes, "kernel": 1,
                               "bias": False}}, "loss"]  # fmt: skip
    body += [{"conv": {"filters": classes, "kernel": 1, "bias": not deep}}, "loss"]
    name = "x".join(map(str, patch))
    return {"name": f"unet-{name}", "source": "as its table says",
            "input": [channels, *patch], "layers": body}  # fmt: skip


def cosmic() -> dict[str, Any]:
    """NERSC's U-Net of hydrodynamics: windows of four with strides of two, no norms."""
    body: Layers = []
    wide = (64, 128, 256, 512, 512, 512)
    four = {"kernel": 4, "stride": 2, "padding": 1}
    for i, filters in enumerate(wide):
        body += [{"conv": {"filters": filters, **four}}, {"leaky_relu": {"name": f"down{i}"}}]
    for i, filters in reversed(list(enumerate(wide[:-1]))):
        body += [{"deconv": {"filters": filters, **four}}, {"relu": {"name": f"up{i}"}},
                 {"concat": {"from": [f"up{i}", f"down{i}"]}}]  # fmt: skip
    body += [{"deconv": {"filters": 5, **four}}, "tanh", {"loss": "mse"}]
    return {"name": "unet-cosmic", "source": "NERSC/sc21-dl-tutorial, @820c9e4 networks/UNet.py",
            "input": [4, 64, 64, 64], "layers": body}  # fmt: skip


def named(name: str, side: int, body: Layers) -> dict[str, Any]:
    """A network of square pictures."""
    return {"name": f"{name}-{side}", "source": "the paper that the docstring names",
            "input": [3, side, side], "layers": body}  # fmt: skip


def residual(branch: Layers, filters: int, stride: int, projected: bool) -> dict[str, Any]:
    """A block that ends in the sum of a branch, whose last layer is a norm, and its input."""
    skip = "block"
    block = [*branch[:-1], {"norm": {"name": "branch"}}]
    if projected:
        skip = "skip"
        block += [{"conv": {"from": ["block"], "filters": filters, "kernel": 1, "stride": stride,
                            "bias": False}}, {"norm": {"name": "skip"}}]  # fmt: skip
    return {"layers": [*block, {"add": {"from": ["branch", skip]}}, "relu"]}


def resnext(depths: Sequence[int], groups: int, width: int, side: int = 224) -> dict[str, Any]:
    """ResNet (arXiv 1512.03385) or ResNeXt (1611.05431): the middle convolution is grouped."""
    body: Layers = [*convolved(64, 7, "batch", "relu", stride=2, padding=3),
                    {"pool": {"kernel": 3, "stride": 2, "padding": 1}}]  # fmt: skip
    for i, depth in enumerate(depths):
        inner, outer = groups * width * 2**i, 256 * 2**i
        for j in range(depth):
            stride = 2 if i and not j else 1
            branch = convolved(inner, 1, "batch", "relu")
            branch += convolved(inner, 3, "batch", "relu", stride=stride, padding=1, groups=groups)
            branch += convolved(outer, 1, "batch", "")
            body.append(residual(branch, outer, stride, not j))
    body += [{"pool": {"kernel": "global", "op": "mean"}}, "flatten", {"dense": 1000}, "loss"]
    return named("resnext", side, body)


# kernel, stride, expansion, filters, repeats: arXiv 1905.11946, Table 1
STAGES = ((3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3),
          (5, 1, 6, 112, 3), (5, 2, 6, 192, 4), (3, 1, 6, 320, 1))  # fmt: skip


def rounded(filters: float, unit: int = 8) -> int:
    """Filters to a multiple of eight, no more than a tenth below what was asked for."""
    found = max(unit, int(filters + unit / 2) // unit * unit)
    return found + unit if found < 0.9 * filters else found


def squeezed(squeeze: int, channels: int, act: str) -> Layers:
    """Squeeze and excitation: the mean of each channel, two products, a scale."""
    return [
        {"pool": {"kernel": "global", "op": "mean"}},
        {"conv": {"filters": squeeze, "kernel": 1}}, act,
        {"conv": {"filters": channels, "kernel": 1}}, {"sigmoid": {"name": "gate"}},
        {"scale": {"from": ["wide", "gate"]}},
    ]  # fmt: skip


def inverted(
    given: int, filters: int, kernel: int, stride: int, expansion: int, squeeze: int,
    act: str = "silu",
) -> Layers:  # fmt: skip
    """An inverted bottleneck: wider, one filter a channel, squeezed, narrower, and its input."""
    wide = given * expansion
    block: Layers = convolved(wide, 1, "batch", act) if expansion > 1 else []
    block += convolved(wide, kernel, "batch", "", stride=stride, padding=kernel // 2, groups=wide)
    block.append({act: {"name": "wide"}})
    block += squeezed(squeeze, wide, act) if squeeze else []
    block.append({"conv": {"filters": filters, "kernel": 1, "bias": False}})
    block.append({"norm": {"name": "narrow"}})
    if stride == 1 and given == filters:
        block.append({"add": {"from": ["narrow", "block"]}})
    return block


def efficientnet(
    width: float, depth: float, side: int, *, wide: bool = False, squeeze: bool = True,
    act: str = "silu",
) -> dict[str, Any]:  # fmt: skip
    """EfficientNet (arXiv 1905.11946); `wide`: squeezes to a share of the wider channels."""
    given = rounded(32 * width)
    body: Layers = convolved(given, 3, "batch", act, stride=2, padding=1)
    for kernel, stride, expansion, filters, repeats in STAGES:
        made = rounded(filters * width)
        for j in range(math.ceil(repeats * depth)):
            narrow = given * (expansion if wide else 1) // 4 if squeeze else 0
            body.append({"layers": inverted(
                given, made, kernel, 1 if j else stride, expansion, narrow, act)})  # fmt: skip
            given = made
    body += [*convolved(rounded(1280 * width), 1, "batch", act),
             {"pool": {"kernel": "global", "op": "mean"}}, "flatten", "dropout", {"dense": 1000},
             "loss"]  # fmt: skip
    return named("efficientnet", side, body)

"""Shipped models built in PyTorch: what it counts, and what it keeps for the backward pass.

FLOP are 2 per multiply-accumulate, as in `test_models.py`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from grids import rest_slow
from test_models import variant, written

from oracle.models.model import model
from oracle.spec import catalogue

# -- an independent count: the same networks built in PyTorch ---------------------------------

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn
    from torch.utils.flop_counter import FlopCounterMode
except ImportError:  # the test extra brings it, so only a bare machine is without
    if os.environ.get("CI"):
        raise
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed: no recount")


class Recount:
    """Reads a model file once more, on its own, and runs it as PyTorch functions on no data."""

    def __init__(self, spec: dict[str, Any], batch: int = 2) -> None:
        self.weights: list[Tensor] = []
        self.ends: list[Tensor] = []
        self.batch = batch
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            first = torch.empty(batch, *spec["input"], requires_grad=True)
            last = self.run(spec["layers"], first, {})
            self.forward = counter.get_total_flops() / batch
            self.ends.append(last.sum())
            sum(self.ends[1:], self.ends[0]).backward()
        self.flop = counter.get_total_flops() / batch
        self.parameters = sum(w.numel() for w in self.weights)

    def weight(self, *shape: int) -> Tensor:
        self.weights.append(torch.empty(*shape, requires_grad=True))
        return self.weights[-1]

    def run(self, layers: list[Any], x: Tensor, outer: dict[str, Tensor]) -> Tensor:
        scope = {**outer, "block": x}
        for layer in layers:
            if isinstance(layer, dict) and "layers" in layer:
                for _ in range(layer.get("repeat", 1)):
                    x = self.run(layer["layers"], x, scope)
                if "name" in layer:
                    scope[layer["name"]] = x
                continue
            kind, told = (layer, {}) if isinstance(layer, str) else next(iter(layer.items()))
            told = {} if told is None else told if isinstance(told, dict) else {"": told}
            given = [scope[n] for n in told["from"]] if "from" in told else [x]
            x = getattr(self, f"do_{kind}")(given, told)
            if "name" in told:
                scope[told["name"]] = x
        return x

    def do_conv(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        x, rank = given[0], given[0].dim() - 2
        size, groups = each(told["kernel"], rank), told.get("groups", 1)
        stride, dilation = each(told.get("stride", 1), rank), each(told.get("dilation", 1), rank)
        padding = told.get("padding", 0)
        if padding == "same":
            sides: list[int] = []
            for n, k, s in zip(reversed(x.shape[2:]), size[::-1], stride[::-1], strict=True):
                total = max(0, (math.ceil(n / s) - 1) * s + k - n)
                sides += [total // 2, total - total // 2]
            x, padding = F.pad(x, sides), 0
        w = self.weight(told["filters"], x.shape[1] // groups, *size)
        b = self.weight(told["filters"]) if told.get("bias", True) else None
        run = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
        return run(x, w, b, stride, each(padding, rank), dilation, groups)

    def do_deconv(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        x, rank = given[0], given[0].dim() - 2
        w = self.weight(x.shape[1], told["filters"], *each(told["kernel"], rank))
        b = self.weight(told["filters"]) if told.get("bias", True) else None
        run = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        more = (told.get("stride", 1), told.get("padding", 0), told.get("output_padding", 0))
        return run(x, w, b, *more)

    def do_pool(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        x, rank, mean = given[0], given[0].dim() - 2, told.get("op") == "mean"
        if told.get("kernel") == "global":
            return x.mean(dim=tuple(range(2, x.dim())), keepdim=True)
        kernel = told.get("kernel", 2)
        names = "avg_pool" if mean else "max_pool"
        run = getattr(F, f"{names}{rank}d")
        return run(x, kernel, told.get("stride", kernel), told.get("padding", 0),
                   ceil_mode=told.get("ceil", False))  # fmt: skip

    def do_norm(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        x = given[0]
        axis = -1 if x.dim() == 3 else 1
        shape = [1] * x.dim()
        shape[axis] = x.shape[axis]
        scale, shift = self.weight(x.shape[axis]), self.weight(x.shape[axis])
        return x * scale.view(shape) + shift.view(shape)

    def do_dense(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        filters = told.get("filters", told.get(""))
        x = given[0].movedim(1, -1) if given[0].dim() > 3 else given[0]  # of a picture, each point
        made = F.linear(x, self.weight(filters, x.shape[-1]), self.weight(filters))
        return made.movedim(-1, 1) if given[0].dim() > 3 else made

    def do_attention(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        x, heads = given[0], told["heads"]
        b, s, h = x.shape
        packed = self.do_dense([x], {"filters": 3 * h}).view(b, s, 3, heads, h // heads)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        mixed = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        return self.do_dense([mixed.transpose(1, 2).reshape(b, s, h)], {"filters": h})

    def do_mlp(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        up = F.gelu(self.do_dense(given, {"filters": told["ffn"]}))
        return self.do_dense([up], {"filters": given[0].shape[-1]})

    def do_position(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        x, more = given[0], told.get("extra_tokens", 0)
        token = self.weight(1, more, x.shape[2]).expand(x.shape[0], -1, -1)
        x = torch.cat([token, x], 1)
        return x + self.weight(*x.shape[1:])

    def do_reshape(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        return given[0].flatten(2).transpose(1, 2)  # pictures to tokens

    def do_upsample(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        return given[0].expand(-1, -1, *told["to"])  # of one pixel

    def do_loss(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        self.ends.append(given[0].sum())
        return given[0]

    def do_add(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        return sum(given[1:], given[0])

    def do_concat(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        return torch.cat(given, 1)

    def do_first(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        return given[0][:, :1]

    def do_flatten(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        return given[0].flatten(1)

    def do_relu(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        return F.relu(given[0])

    def do_crop(self, given: list[Tensor], told: dict[str, Any]) -> Tensor:
        begins = [(n - to) // 2 for n, to in zip(given[0].shape[2:], told["to"], strict=True)]
        at = [slice(begin, begin + to) for begin, to in zip(begins, told["to"], strict=True)]
        return given[0][(..., *at)]

    do_leaky_relu = do_gelu = do_tanh = do_dropout = do_relu  # nothing that is counted


def each(value: int | list[int], rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else value


# of layer kinds that are not recounted here, or of a thousand layers: their parameters are counted
# by hand elsewhere
ELSEWHERE = {
    "amoebanet-d", "dimenet-plus-plus", "dlrm-dcnv2", "efficientnet-b4", "evoformer",
    "mamba2-2.7b", "nemotron-3-nano", "nemotron-h-56b", "nemotron-h-8b", "qwen3-next-80b-a3b",
    "stable-diffusion-1", "t5-xxl", "whisper-large-v3",
}  # fmt: skip
LISTED = sorted(n for n in catalogue.shipped("models")
                if "layers" in written(n) and n not in ELSEWHERE)  # fmt: skip


@needs_torch
@pytest.mark.parametrize("name", rest_slow(LISTED, [n for n in LISTED if n != "resnet1001"]))
def test_pytorch_counts_the_same_from_the_same_file(name: str) -> None:
    counted, found = Recount(written(name)), model(name)
    assert found.parameters == counted.parameters
    assert found.flop == pytest.approx(3 * counted.forward, rel=1e-3)
    if found.groups.max() == 1:  # PyTorch's counter takes a grouped weight gradient for a full one
        assert found.flop == pytest.approx(counted.flop, rel=1e-3)


if torch is not None:

    class Bottleneck(nn.Module):
        """A residual block of three convolutions, the stride in the second."""

        def __init__(self, given: int, middle: int, stride: int) -> None:
            super().__init__()
            made = 4 * middle
            self.branch = nn.Sequential(
                nn.Conv2d(given, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(True),
                nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle),
                nn.ReLU(True), nn.Conv2d(middle, made, 1, bias=False), nn.BatchNorm2d(made),
            )  # fmt: skip
            self.short = nn.Sequential()
            if given != made or stride > 1:
                self.short = nn.Sequential(
                    nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made)
                )
            self.relu = nn.ReLU(True)

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.branch(x) + self.short(x))

    def resnet(*counts: int) -> nn.Module:
        parts: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True),
            nn.MaxPool2d(3, 2, 1),
        ]  # fmt: skip
        given = 64
        for stage, count in enumerate(counts):
            for i in range(count):
                parts.append(Bottleneck(given, 64 << stage, 2 if stage and not i else 1))
                given = 4 * (64 << stage)
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    def vgg16() -> nn.Module:
        parts: list[nn.Module] = []
        given = 3
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                parts += [nn.Conv2d(given, width, 3, 1, 1), nn.ReLU(True)]
                given = width
            parts.append(nn.MaxPool2d(2))
        dense = [nn.Linear(25088, 4096), nn.ReLU(True), nn.Linear(4096, 4096), nn.ReLU(True)]
        return nn.Sequential(*parts, nn.Flatten(), *dense, nn.Linear(4096, 1000))

    class Scale(nn.Module):
        """RMS norm without the arithmetic that nobody counts."""

        def __init__(self, hidden: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    class Expert(nn.Module):
        """A multilayer perceptron, gated or not."""

        def __init__(self, hidden: int, ffn: int, gated: bool) -> None:
            super().__init__()
            self.up = nn.Linear(hidden, ffn, bias=not gated)
            self.gate = nn.Linear(hidden, ffn, bias=False) if gated else None
            self.down = nn.Linear(ffn, hidden, bias=not gated)

        def forward(self, x: Tensor) -> Tensor:
            up = self.up(x)
            return self.down(F.gelu(up) if self.gate is None else F.silu(self.gate(x)) * up)

    class Mixture(nn.Module):
        """A router and experts, every expert given its fair share of tokens."""

        def __init__(self, hidden: int, ffn: int, experts: int, active: int) -> None:
            super().__init__()
            self.router = nn.Linear(hidden, experts, bias=False)
            self.experts = nn.ModuleList(Expert(hidden, ffn, True) for _ in range(experts))
            self.active = active

        def forward(self, x: Tensor) -> Tensor:
            shares = x.repeat(1, self.active, 1).chunk(len(self.experts), 1)
            sent = torch.cat([e(s) for e, s in zip(self.experts, shares, strict=True)], 1)
            weight = self.router(x).softmax(-1).sum(-1, keepdim=True)
            return sent.view(x.shape[0], self.active, *x.shape[1:]).sum(1) * weight

    class Block(nn.Module):
        """A transformer layer with its attention written out."""

        def __init__(self, t: dict[str, Any]) -> None:
            super().__init__()
            h, self.heads = t["hidden"], t["heads"]
            self.kv, self.width = t.get("kv_heads", self.heads), h // self.heads
            gated, ffn = t.get("gated", False), t.get("ffn", 4 * h)
            joint = (self.heads + 2 * self.kv) * self.width
            self.norm1, self.norm2 = (Scale(h) if gated else nn.LayerNorm(h) for _ in range(2))
            self.qkv = nn.Linear(h, joint, bias=not gated)
            self.out = nn.Linear(h, h, bias=not gated)
            self.mlp = (
                Mixture(h, ffn, t["experts"], t["active"])
                if "experts" in t
                else Expert(h, ffn, gated)
            )

        def forward(self, x: Tensor) -> Tensor:
            b, s, h = x.shape
            packed = self.qkv(self.norm1(x)).view(b, s, -1, self.width).transpose(1, 2)
            q, k, v = packed.split([self.heads, self.kv, self.kv], 1)
            k, v = (each.repeat_interleave(self.heads // self.kv, 1) for each in (k, v))
            mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(b, s, h))
            return x + self.mlp(self.norm2(x))

    class Language(nn.Module):
        """Embedding, blocks, head, of a family block's numbers."""

        def __init__(self, t: dict[str, Any]) -> None:
            super().__init__()
            h, gated = t["hidden"], t.get("gated", False)
            self.table = nn.Embedding(t["vocab"], h)
            self.places = None if gated else nn.Parameter(torch.empty(t["sequence"], h))
            self.blocks = nn.Sequential(*(Block(t) for _ in range(t["layers"])))
            self.norm = Scale(h) if gated else nn.LayerNorm(h)
            self.head = nn.Linear(h, t["vocab"], bias=False)
            if t.get("tied_embeddings", True):
                self.head.weight = self.table.weight

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.table(tokens)
            x = x if self.places is None else x + self.places
            return self.head(self.norm(self.blocks(x)))


def counted(build: Callable[[], Any], *shape: int, tokens: bool = False) -> tuple[int, float]:
    """(parameters, FLOP of forward and backward for one sample) of a module on no data."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        module = build()
        given = (
            torch.empty(2, *shape, dtype=torch.long)
            if tokens
            else torch.empty(2, *shape, requires_grad=True)
        )
        module(given).sum().backward()
    return sum(p.numel() for p in module.parameters()), counter.get_total_flops() / 2


@needs_torch
@pytest.mark.parametrize("name", ["resnet50", "resnet152", "vgg16"])
def test_pictures_as_built_in_pytorch(name: str) -> None:
    build = {
        "resnet50": lambda: resnet(3, 4, 6, 3),
        "resnet152": lambda: resnet(3, 8, 36, 3),
        "vgg16": vgg16,
    }[name]
    parameters, flop = counted(build, 3, 224, 224)
    assert model(name).parameters == parameters
    assert model(name).flop == pytest.approx(flop, rel=1e-3)


@needs_torch
@pytest.mark.parametrize("name", ["gpt2", "llama2-7b", "llama3-8b", "mixtral-8x7b"])
def test_language_models_as_built_in_pytorch(name: str) -> None:
    """Few layers of the real widths; attention written out, so every score counts."""
    found = variant(name, layers=2, sequence=1024, flash=False)
    t = written(name)["transformer"] | {"layers": 2, "sequence": 1024}
    parameters, flop = counted(lambda: Language(t), 1024, tokens=True)
    assert found.parameters == parameters
    assert found.flop == pytest.approx(flop, rel=1e-3)


def test_fused_attention_leaves_out_what_a_causal_mask_hides() -> None:
    every, some = variant("gpt2", flash=False), variant("gpt2", flash=True)
    s, h, layers = 1024, 768, 12
    assert every.flop - some.flop == pytest.approx(6 * layers * 2 * h * s * (s - 1) / 2, rel=1e-9)


# -- what the backward pass keeps -------------------------------------------------------------


@pytest.mark.parametrize(("s", "h", "a"), [(256, 512, 8), (1024, 1024, 16), (2048, 6144, 64)])
def test_a_layer_keeps_what_korthikanti_counts(s: int, h: int, a: int) -> None:
    """34·s·b·h + 5·a·s²·b bytes in 16 bits, arXiv 2205.05198, equation 1."""
    found = variant("megatron-22b", layers=3, sequence=s, hidden=h, heads=a)
    layer = found.folded
    kept = 2 * found.kept[layer].sum() + found.kept_bytes[layer].sum()
    assert kept == pytest.approx(34 * s * h + 5 * a * s**2, rel=1e-12)


def saved(run: Callable[[], Tensor], *but: Tensor) -> Iterator[tuple[int, int]]:
    """(place, bytes) of each memory PyTorch keeps for the backward pass of `run`."""
    left_out = {t.untyped_storage().data_ptr() for t in but}
    found: dict[int, tuple[Tensor, int]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in left_out:
            found[storage.data_ptr()] = (tensor, storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        made = run()
    del made
    yield from ((place, nbytes) for place, (_, nbytes) in found.items())


@needs_torch
def test_a_residual_block_keeps_what_pytorch_keeps() -> None:
    channels, extent, batch = 32, 28, 4
    module = nn.Sequential(Bottleneck(4 * channels, channels, 1), Bottleneck(128, channels, 1))
    x = torch.randn(batch, 4 * channels, extent, extent)
    kept = sum(n for _, n in saved(lambda: module(x), *module.parameters(), *module.buffers()))
    block = [
        {"conv": {"filters": channels, "kernel": 1, "bias": False}}, "norm", "relu",
        {"conv": {"filters": channels, "kernel": 3, "padding": 1, "bias": False}}, "norm", "relu",
        {"conv": {"filters": 4 * channels, "kernel": 1, "bias": False}},
        {"norm": {"name": "branch"}}, {"add": {"from": ["branch", "block"]}}, "relu",
    ]  # fmt: skip
    found = model({
        "name": "two blocks", "source": "made up", "input": [4 * channels, extent, extent],
        "layers": [{"repeat": 2, "layers": block}],
    })  # fmt: skip
    ours = 4 * found.repeat @ found.kept + found.repeat @ found.kept_bytes
    assert batch * ours == pytest.approx(kept, rel=2e-3)  # theirs: two statistics a channel more


@needs_torch
def test_a_transformer_block_keeps_what_pytorch_keeps() -> None:
    s, h, a, batch = 128, 256, 4, 2
    layers = nn.ModuleDict({
        "norm1": nn.LayerNorm(h), "qkv": nn.Linear(h, 3 * h), "out": nn.Linear(h, h),
        "norm2": nn.LayerNorm(h), "up": nn.Linear(h, 4 * h), "down": nn.Linear(4 * h, h),
    }).bfloat16()  # fmt: skip
    hidden = torch.full((s, s), -1e9, dtype=torch.bfloat16).triu(1)

    def drop(x: Tensor) -> Tensor:
        return torch.native_dropout(x, 0.1, True)[0]  # keeps its mask in one byte an element

    def run() -> Tensor:
        x = given
        for _ in range(2):
            packed = layers["qkv"](layers["norm1"](x)).view(batch, s, 3, a, h // a)
            q, k, v = packed.permute(2, 0, 3, 1, 4)
            mixed = drop(torch.softmax(q @ k.transpose(-1, -2) + hidden, -1)) @ v
            x = x + drop(layers["out"](mixed.transpose(1, 2).reshape(batch, s, h)))
            x = x + drop(layers["down"](F.gelu(layers["up"](layers["norm2"](x)))))
        return x

    given = torch.randn(batch, s, h, dtype=torch.bfloat16, requires_grad=True)
    kept = sum(n for _, n in saved(run, *layers.parameters(), hidden))
    found = variant("megatron-22b", layers=2, sequence=s, hidden=h, heads=a)
    layer = found.folded
    ours = 2 * (2 * found.kept[layer].sum() + found.kept_bytes[layer].sum())
    # theirs: two fp32 statistics a token and norm more
    assert batch * ours == pytest.approx(kept, rel=0.01)


def test_kept_tensors_are_counted_once() -> None:
    """A convolution keeps its input, a ReLU its output: one tensor between them, kept once."""
    found = model({
        "name": "once", "source": "made up", "input": [3, 8, 8],
        "layers": [{"conv": {"filters": 4, "kernel": 1}}, "relu",
                   {"conv": {"filters": 5, "kernel": 1}}],
    })  # fmt: skip
    assert np.allclose(found.kept, [3 * 64, 4 * 64, 0])


@needs_torch
def test_fused_attention_keeps_what_pytorch_keeps() -> None:
    """Queries, keys, values, what comes out, and one sum in fp32 a query and head."""
    s, h, a, batch = 128, 256, 4, 2
    layers = nn.ModuleDict({
        "norm1": nn.LayerNorm(h), "qkv": nn.Linear(h, 3 * h), "out": nn.Linear(h, h),
        "norm2": nn.LayerNorm(h), "up": nn.Linear(h, 4 * h), "down": nn.Linear(4 * h, h),
    }).bfloat16()  # fmt: skip

    def run() -> Tensor:
        x = given
        for _ in range(2):
            packed = layers["qkv"](layers["norm1"](x)).view(batch, s, 3, a, h // a)
            q, k, v = packed.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layers["out"](mixed.transpose(1, 2).reshape(batch, s, h))
            x = x + layers["down"](F.gelu(layers["up"](layers["norm2"](x))))
        return x

    given = torch.randn(batch, s, h, dtype=torch.bfloat16, requires_grad=True)
    kept = sum(n for _, n in saved(run, *layers.parameters()))
    found = variant("mpt-7b", layers=2, sequence=s, hidden=h, heads=a)
    layer = found.folded
    ours = 2 * (2 * found.kept[layer].sum() + found.kept_bytes[layer].sum())
    assert batch * ours == pytest.approx(kept, rel=0.01)

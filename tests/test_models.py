"""Shipped models hold what their papers say, and what PyTorch counts when it builds them.

Parameters are compared exactly where a publication or a released checkpoint gives them exactly.
FLOP are 2 per multiply-accumulate of convolutions and matrix products; forward and backward
together are three times the forward pass, the first layer's data gradient included.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import yaml

from oracle import specs
from oracle.models import Model, model

FOLDER = specs.shelf() / "models"


def written(name: str) -> dict[str, Any]:
    """A shipped model as its file has it."""
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def variant(name: str, **changes: Any) -> Model:
    """A shipped transformer with some fields of its family block changed."""
    spec = written(name)
    spec["transformer"].update(changes)
    return model(spec)


# -- figures typed in from publications ------------------------------------------------------

EXACT = {
    # torchvision 0.19, `meta["num_params"]` of the default weights
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
    "alexnet": 61_100_840,
    "inception-v3": 27_161_264,  # with the auxiliary head
    "vit-l16": 304_326_632,
    # released checkpoints on Hugging Face (safetensors parameter totals)
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "bert-large": 336_226_108,  # BertForPreTraining
    "bloom-176b": 176_247_271_424,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    # llm-foundry, scripts/train/benchmarking/README.md
    "mpt-7b": 6_658_859_008,
    "mpt-30b": 29_975_214_080,
    "mpt-70b": 64_862_437_376,
    # pytorch/examples, mnist; LeCun 1998 with a full second convolution
    "mnist-cnn": 1_199_882,
    "lenet5": 61_706,
}

ROUNDED = {
    # name: (published, unit, places printed)
    "vgg16-226": (169, 1e6, 0),  # ParaDL
    "resnet50-226": (25.6, 1e6, 1),
    "alexnet-226": (62.4, 1e6, 1),
    "cosmoflow-512": (2, 1e6, 0),  # ParaDL
    "cosmoflow-256": (2, 1e6, 0),
    "deepcam": (56.5, 1e6, 1),  # MLPerf HPC
    "unet3d": (31, 1e6, 0),
    "gpt3-175b": (175, 1e9, 0),  # arXiv 2005.14165, Table 2.1
    "megatron-175b": (175, 1e9, 0),  # arXiv 2205.05198, Table 3
    "opt-175b": (175, 1e9, 0),  # arXiv 2205.01068, Table 1
    "megatron-2.5b": (2.5, 1e9, 1),  # arXiv 1909.08053, Table 1
    "megatron-22b": (22, 1e9, 0),
    "mt-nlg-530b": (530, 1e9, 0),
    # arXiv 2104.04473, Table 1
    "megatron-1.7b": (1.7, 1e9, 1),
    "megatron-3.6b": (3.6, 1e9, 1),
    "megatron-7.5b": (7.5, 1e9, 1),
    "megatron-18.4b": (18.4, 1e9, 1),
    "megatron-39.1b": (39.1, 1e9, 1),
    "megatron-76.1b": (76.1, 1e9, 1),
    "megatron-145.6b": (145.6, 1e9, 1),
    "megatron-310.1b": (310.1, 1e9, 1),
    "megatron-529.6b": (529.6, 1e9, 1),
    "megatron-1008b": (1008.0, 1e9, 1),
}

FORWARD_GMAC = {
    # torchvision 0.19, `meta["_ops"]`: multiply-accumulates of one forward pass, in 1e9
    "resnet50": 4.089,
    "resnet152": 11.514,
    "vgg16": 15.47,
    "alexnet": 0.714,
    "vit-l16": 61.555,
}


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert model(name).parameters == EXACT[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_round_to_the_published_ones(name: str) -> None:
    published, unit, places = ROUNDED[name]
    # a unit of the last printed place: some publications cut, some round, some leave out norms
    assert model(name).parameters / unit == pytest.approx(published, abs=10.0**-places)


def test_every_shipped_model_is_held_against_a_publication() -> None:
    assert set(specs.shipped("models")) == set(EXACT) | set(ROUNDED)


@pytest.mark.parametrize("name", FORWARD_GMAC)
def test_forward_work_is_the_published_one(name: str) -> None:
    assert model(name).flop / 6e9 == pytest.approx(FORWARD_GMAC[name], abs=6e-4)


MEGATRON = sorted(n for n in specs.shipped("models") if n.startswith(("megatron-", "mt-nlg")))


@pytest.mark.parametrize("name", MEGATRON)
def test_megatron_formulas(name: str) -> None:
    """Parameters and FLOP of arXiv 2104.04473, section 5.1: P and F (without recomputation)."""
    t = written(name)["transformer"]
    n, h, s, v = t["layers"], t["hidden"], t["sequence"], t["vocab"]
    parameters = 12 * n * h**2 * (1 + 13 / (12 * h) + (v + s) / (12 * n * h))
    assert model(name).parameters == pytest.approx(parameters + 2 * h, rel=1e-12)  # + last norm
    flop = 72 * s * n * h**2 * (1 + s / (6 * h) + v / (12 * n * h))
    assert model(name).flop == pytest.approx(flop, rel=1e-12)


PARADL_GFLOP = {
    # forward and backward of one sample; (as counted elsewhere, why ours differs, ours)
    "vgg16-226": (97.8, "", 97.766),
    "alexnet-226": (6.8, "", 6.789),
    # 2,844 counts the element-wise and pooling work as well, about 10 GFLOP
    "cosmoflow-512": (2844, "element-wise work", 2833.837),
    # 21.05 leaves out the four projections (2.158 GFLOP)
    "resnet50-226": (21.05, "projections", 23.161),
}


@pytest.mark.parametrize("name", PARADL_GFLOP)
def test_work_against_the_figures_of_paradl(name: str) -> None:
    elsewhere, why, ours = PARADL_GFLOP[name]
    found = model(name)
    assert found.flop / 1e9 == pytest.approx(ours, abs=5e-4)
    if not why:
        assert found.flop / 1e9 == pytest.approx(elsewhere, abs=0.05)
    if why == "element-wise work":
        streamed = found.repeat @ (found.y * found.mask(lambda r: r.kind in ("activation", "pool")))
        assert found.flop + 2 * streamed == pytest.approx(elsewhere * 1e9, rel=2e-3)
    if why == "projections":
        shortcuts = [64 * 256 * 56**2, 256 * 512 * 28**2, 512 * 1024 * 14**2, 1024 * 2048 * 7**2]
        assert found.flop / 1e9 - 6e-9 * sum(shortcuts) == pytest.approx(elsewhere, rel=3e-3)


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
        return F.linear(given[0], self.weight(filters, given[0].shape[-1]), self.weight(filters))

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

    do_leaky_relu = do_tanh = do_dropout = do_relu  # nothing that is counted


def each(value: int | list[int], rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else value


LISTED = sorted(n for n in specs.shipped("models") if "layers" in written(n))


@needs_torch
@pytest.mark.parametrize("name", LISTED)
def test_pytorch_counts_the_same_from_the_same_file(name: str) -> None:
    counted, found = Recount(written(name)), model(name)
    assert found.parameters == counted.parameters
    assert found.flop == pytest.approx(3 * counted.forward, rel=1e-3)
    if found.groups.max() == 1:  # PyTorch's counter takes a grouped weight gradient for a full one
        assert found.flop == pytest.approx(counted.flop, rel=1e-3)

"""Networks as anybody writes them in PyTorch: nothing here knows the oracle."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv(inputs: int, filters: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution and its batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, filters, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(filters),
    )


class Bottleneck(nn.Module):
    """A residual block of ResNet-50 (arXiv 1512.03385, Figure 5)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.reduce, self.square = conv(inputs, width, 1), conv(width, width, 3, stride)
        self.expand = conv(width, 4 * width, 1)
        changes = stride > 1 or inputs != 4 * width
        self.shortcut = conv(inputs, 4 * width, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.square(F.relu(self.reduce(x))))
        return F.relu(self.expand(y) + self.shortcut(x))


def resnet50(blocks: Sequence[int] = (3, 4, 6, 3), classes: int = 1000) -> nn.Module:
    """Return ResNet-50, or one of other depths."""
    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for level, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if level and not number else 1
            layers.append(Bottleneck(inputs, 64 * 2**level, stride))
            inputs = 256 * 2**level
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class ChannelNorm(nn.Module):
    """A layer norm over the channels of a picture."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """A block of ConvNeXt (arXiv 2201.03545): 7 × 7 depthwise, then two products."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext_tiny(blocks: Sequence[int] = (3, 3, 9, 3), classes: int = 1000) -> nn.Module:
    """Return ConvNeXt-T, or one of other depths."""
    widths = (96, 192, 384, 768)
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0])]
    for level, count in enumerate(blocks):
        if level:
            layers += [ChannelNorm(widths[level - 1]),
                       nn.Conv2d(widths[level - 1], widths[level], 2, 2)]  # fmt: skip
        layers += [ConvNextBlock(widths[level]) for _ in range(count)]
    head = nn.Linear(widths[len(blocks) - 1], classes)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


class MobileBlock(nn.Module):
    """An inverted bottleneck with squeeze and excitation (arXiv 1905.11946)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = inputs * expand
        self.expand = conv(inputs, wide, 1) if expand > 1 else None
        self.depthwise = conv(wide, wide, kernel, stride, wide)
        self.squeeze, self.excite = nn.Conv2d(wide, inputs // 4, 1), nn.Conv2d(inputs // 4, wide, 1)
        self.project, self.residual = conv(wide, outputs, 1), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else F.silu(self.expand(x))
        y = F.silu(self.depthwise(y))
        gate = self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        y = self.project(y * torch.sigmoid(gate))
        return x + y if self.residual else y


# expansion, filters, blocks, stride, kernel of each stage
EFFICIENTNET_B0 = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
                   (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))  # fmt: skip


def efficientnet_b0(stages: int = 7, classes: int = 1000) -> nn.Module:
    """Return EfficientNet-B0, or its first stages."""
    layers: list[nn.Module] = [conv(3, 32, 3, 2), nn.SiLU()]
    inputs = 32
    for expand, filters, count, stride, kernel in EFFICIENTNET_B0[:stages]:
        for number in range(count):
            layers.append(MobileBlock(inputs, filters, kernel, 1 if number else stride, expand))
            inputs = filters
    return nn.Sequential(*layers, conv(inputs, 1280, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(1280, classes))  # fmt: skip


def volume_convs(inputs: int, filters: int, stride: int = 1) -> nn.Sequential:
    """Return two convolutions of 3³, each with instance norm and leaky ReLU."""
    layers: list[nn.Module] = []
    for step in (stride, 1):
        layers += [nn.Conv3d(inputs, filters, 3, step, 1, bias=False),
                   nn.InstanceNorm3d(filters, affine=True), nn.LeakyReLU(inplace=True)]  # fmt: skip
        inputs = filters
    return nn.Sequential(*layers)


class UNet3d(nn.Module):
    """A 3-D U-Net of MLPerf's widths: five floors down, and up again with what was kept."""

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256, 320), classes: int = 3) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.first = volume_convs(1, widths[0])
        self.down = nn.ModuleList(volume_convs(wide, deep, 2) for wide, deep in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose3d(deep, wide, 2, 2) for wide, deep in pairs[::-1])
        self.join = nn.ModuleList(volume_convs(2 * wide, wide) for wide, _ in pairs[::-1])
        self.head = nn.Conv3d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        floors = [self.first(x)]
        for down in self.down:
            floors.append(down(floors[-1]))
        y = floors.pop()
        for up, join in zip(self.up, self.join, strict=True):
            y = join(torch.cat([up(y), floors.pop()], 1))
        return self.head(y)


def cosmoflow(floors: int = 5, size: int = 128) -> nn.Module:
    """Return CosmoFlow of MLPerf HPC (mlcommons/hpc, cosmoflow/models/cosmoflow.py)."""
    layers: list[nn.Module] = []
    inputs = 4
    for floor in range(floors):
        layers += [nn.Conv3d(inputs, 32 * 2**floor, 3, padding=1), nn.LeakyReLU(), nn.MaxPool3d(2)]
        inputs = 32 * 2**floor
    features = inputs * (size // 2**floors) ** 3
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(features, 128), nn.LeakyReLU(), nn.Dropout(0.5),
        nn.Linear(128, 64), nn.LeakyReLU(), nn.Dropout(0.5), nn.Linear(64, 4), nn.Tanh(),
    )  # fmt: skip


class TransformerLayer(nn.Module):
    """A layer of BERT, GPT-2, ViT or Llama, by its norms, its mask and its gate."""

    def __init__(self, hidden: int, heads: int, ffn: int, *, causal: bool, before: bool,
                 gated: bool = False) -> None:  # fmt: skip
        super().__init__()
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.heads, self.causal, self.before = heads, causal, before
        self.norm1, self.norm2 = norm(hidden), norm(hidden)
        bias = not gated
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)
        self.gate = nn.Linear(hidden, ffn, bias=False) if gated else None
        self.up, self.down = nn.Linear(hidden, ffn, bias=bias), nn.Linear(ffn, hidden, bias=bias)

    def attend(self, x: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, dim=-1))  # fmt: skip
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, hidden))

    def mlp(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(F.gelu(self.up(x)))
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x: Tensor) -> Tensor:
        if self.before:
            x = x + self.attend(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.mlp(x))


class Words(nn.Module):
    """A language model: embeddings, layers, a norm, and the vocabulary."""

    def __init__(self, layers: Sequence[nn.Module], hidden: int, vocab: int, places: int,
                 *, tied: bool, norm: type[nn.Module] = nn.LayerNorm) -> None:  # fmt: skip
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.places = nn.Embedding(places, hidden) if places else None
        self.layers, self.norm = nn.ModuleList(layers), norm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        if self.places is not None:
            x = x + self.places(torch.arange(words.shape[1], device=words.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def bert_large(layers: int = 24, hidden: int = 1024, tokens: int = 512) -> nn.Module:
    """Return BERT-large's body with the vocabulary behind every token."""
    stack = [TransformerLayer(hidden, hidden // 64, 4 * hidden, causal=False, before=False)
             for _ in range(layers)]  # fmt: skip
    return Words(stack, hidden, 30522, tokens, tied=True)


def gpt2_xl(layers: int = 48, hidden: int = 1600, tokens: int = 1024) -> nn.Module:
    """Return GPT-2 XL without dropout."""
    stack = [TransformerLayer(hidden, hidden // 64, 4 * hidden, causal=True, before=True)
             for _ in range(layers)]  # fmt: skip
    return Words(stack, hidden, 50257, tokens, tied=True)


def llama_1b(layers: int = 16, hidden: int = 2048) -> nn.Module:
    """Return a Llama of 0.95 billion weights: RMS norms, gated, without biases."""
    stack = [TransformerLayer(hidden, hidden // 64, 11 * hidden // 4, causal=True, before=True,
                              gated=True) for _ in range(layers)]  # fmt: skip
    return Words(stack, hidden, 32000, 0, tied=False, norm=nn.RMSNorm)


class LowRank(nn.Module):
    """A frozen product with a trained one of low rank beside it (arXiv 2106.09685)."""

    def __init__(self, frozen: nn.Linear, rank: int = 16) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + 2.0 * self.up(self.down(x))


def llama_lora(layers: int = 16, hidden: int = 2048) -> nn.Module:
    """Return the same Llama frozen, with adapters beside the products of its attention."""
    model = llama_1b(layers, hidden).requires_grad_(False)
    for layer in model.layers:
        layer.qkv, layer.out = LowRank(layer.qkv), LowRank(layer.out)
    return model


class Experts(nn.Module):
    """Eight gated experts of which each token chooses two; each gets the tokens that chose it."""

    def __init__(self, hidden: int, ffn: int, experts: int = 8, active: int = 2) -> None:
        super().__init__()
        self.active, self.router = active, nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.ModuleList([nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False),
                           nn.Linear(ffn, hidden, bias=False)])
            for _ in range(experts)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        share, chosen = torch.topk(self.router(flat).softmax(-1), self.active, dim=-1)
        share = share / share.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for number, (gate, up, down) in enumerate(self.experts):
            token, place = torch.where(chosen == number)
            tokens = flat[token]
            made = down(F.silu(gate(tokens)) * up(tokens))
            out.index_add_(0, token, (made * share[token, place, None]).to(out.dtype))
        return out.view_as(x)


class MixtureLayer(TransformerLayer):
    """A layer of Llama whose feed-forward part is a mixture of experts."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__(hidden, hidden // 64, 64, causal=True, before=True, gated=True)
        self.gate, self.up, self.down = None, nn.Identity(), nn.Identity()
        self.experts = Experts(hidden, ffn)

    def mlp(self, x: Tensor) -> Tensor:
        return self.experts(x)


def mixture(layers: int = 8, hidden: int = 1024) -> nn.Module:
    """Return a mixture of eight experts with 0.8 billion weights."""
    stack = [MixtureLayer(hidden, 7 * hidden // 2) for _ in range(layers)]
    return Words(stack, hidden, 32000, 0, tied=False, norm=nn.RMSNorm)


class ViT(nn.Module):
    """ViT-L/16: patches as tokens, a token for the class."""

    def __init__(self, layers: int = 24, hidden: int = 1024, side: int = 224) -> None:
        super().__init__()
        tokens = (side // 16) ** 2 + 1
        self.patches = nn.Conv2d(3, hidden, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.places = nn.Parameter(torch.zeros(1, tokens, hidden))
        self.layers = nn.Sequential(*(
            TransformerLayer(hidden, hidden // 64, 4 * hidden, causal=False, before=True)
            for _ in range(layers)
        ))  # fmt: skip
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


def separable(inputs: int, filters: int, stride: int = 1) -> nn.Sequential:
    """Return a depthwise and a pointwise convolution with a batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.Conv2d(inputs, filters, 1, bias=False), nn.BatchNorm2d(filters),
    )  # fmt: skip


class XceptionBlock(nn.Module):
    """Three separable convolutions beside a shortcut (arXiv 1610.02357)."""

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList([separable(inputs, filters), separable(filters, filters),
                                    separable(filters, filters, stride)])  # fmt: skip
        changes = stride > 1 or inputs != filters
        self.shortcut = conv(inputs, filters, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for step in self.steps:
            y = step(F.relu(y))
        return y + self.shortcut(x)


class DeepCam(nn.Module):
    """DeepCAM's encoder and decoder: DeepLabv3+ on an Xception, without its dilated pyramid."""

    def __init__(self, middle: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(16, 32, 3, 2), nn.ReLU(), conv(32, 64, 3), nn.ReLU())
        self.low = XceptionBlock(64, 128, 2)
        deep = [XceptionBlock(128, 256, 2), XceptionBlock(256, 728, 2)]
        deep += [XceptionBlock(728, 728, 1) for _ in range(middle)]
        self.deep, self.pyramid = nn.Sequential(*deep), conv(728, 256, 1)
        self.up1 = nn.ConvTranspose2d(256, 256, 4, 4)
        self.less, self.join = conv(128, 48, 1), nn.Sequential(conv(304, 256, 3), nn.ReLU())
        self.up2, self.head = nn.ConvTranspose2d(256, 64, 4, 4), nn.Conv2d(64, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        low = self.low(self.stem(x))
        y = self.up1(F.relu(self.pyramid(self.deep(low))))
        y = self.join(torch.cat([y, F.relu(self.less(low))], 1))
        return self.head(F.relu(self.up2(y)))

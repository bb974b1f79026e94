"""Torch modules as people write them, for the importer's tests: sums and joins are functional."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    def __init__(self, given: int, width: int, stride: int = 1) -> None:
        super().__init__()
        made = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(given, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, made, 1, bias=False), nn.BatchNorm2d(made)
        self.project = (
            nn.Sequential(nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made))
            if given != made or stride != 1
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        y = self.norm3(self.conv3(y))
        y += x if self.project is None else self.project(x)
        return torch.relu_(y)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]  # fmt: skip
        given = 64
        for times, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
            for i in range(times):
                layers.append(Bottleneck(given, width, stride if i == 0 else 1))
                given = 4 * width
        self.body = nn.Sequential(*layers)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(2048, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.body(x)), 1))


class VGG16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        given = 3
        for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
            if width:
                layers += [nn.Conv2d(given, width, 3, padding=1), nn.ReLU(inplace=True)]
                given = width
            else:
                layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.head = nn.Sequential(
            nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Dropout(), nn.Linear(4096, 1000),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.pool(self.features(x)).view(len(x), -1))


class Joined(nn.Module):
    """A small U-shaped network: a branch is kept, upsampled to, and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.c, self.d = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = F.relu(self.a(x))
        return self.d(torch.cat([kept, self.c(F.relu(self.b(kept)))], dim=1))


class GptBlock(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        n, t, h = x.shape
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, h))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attend(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class HandMade(GptBlock):
    """The same with scores and their softmax written out, and GELU by its tanh."""

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        n, t, h = x.shape
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        later = torch.ones(t, t, dtype=torch.bool).tril().logical_not()
        scores = scores.masked_fill(later, float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(n, t, h))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attend(self.norm1(x)))
        y = self.up(self.norm2(x))
        y = 0.5 * y * (1 + torch.tanh(0.79788456 * (y + 0.044715 * y**3)))
        return x + self.dropout(self.down(y))


class GPT2(nn.Module):
    block: type[GptBlock] = GptBlock

    def __init__(self, hidden: int = 768, heads: int = 12, layers: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50257, hidden), nn.Embedding(1024, hidden)
        self.dropout = nn.Dropout(0.1)
        self.body = nn.Sequential(*(self.block(hidden, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, 50257, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        x = self.dropout(self.words(words) + self.places(places))
        return self.head(self.norm(self.body(x)))


class HandMadeGPT2(GPT2):
    block = HandMade


class RmsNorm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        self.norm1, self.norm2 = RmsNorm(hidden), RmsNorm(hidden)
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.width, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.width, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        n, t, h = x.shape
        y = self.norm1(x)
        q = self.q(y).view(n, t, self.heads, self.width).transpose(1, 2)
        k = self.k(y).view(n, t, self.kv_heads, self.width).transpose(1, 2)
        v = self.v(y).view(n, t, self.kv_heads, self.width).transpose(1, 2)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        times = self.heads // self.kv_heads
        k, v = (one.repeat_interleave(times, dim=1) for one in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, h))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(
        self, layers: int = 80, hidden: int = 8192, heads: int = 64, kv_heads: int = 8,
        ffn: int = 28672, vocab: int = 32000,
    ) -> None:  # fmt: skip
        super().__init__()
        self.words, self.width = nn.Embedding(vocab, hidden), hidden // heads
        self.body = nn.ModuleList(LlamaBlock(hidden, heads, kv_heads, ffn) for _ in range(layers))
        self.norm, self.head = RmsNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        places = torch.arange(words.shape[1], device=words.device).float()[:, None]
        angle = places * torch.arange(self.width, device=words.device)[None]
        cos, sin = angle.cos(), angle.sin()
        for block in self.body:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


class ViTL16(nn.Module):
    def __init__(self, hidden: int = 1024, layers: int = 24) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.places = nn.Parameter(torch.zeros(1, 197, hidden))
        layer = nn.TransformerEncoderLayer(
            hidden, 16, 4 * hidden, dropout=0.0, activation="gelu", batch_first=True,
            norm_first=True,
        )  # fmt: skip
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.body(x))[:, 0])


class Growing(nn.Module):
    """Every layer reads all that were made before it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList(nn.Conv2d(16 + 8 * i, 8, 3, padding=1) for i in range(4))
        self.head = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.body:
            x = torch.cat([x, F.relu(conv(x))], 1)
        return self.head(x.mean((2, 3)))


class Squeezed(nn.Module):
    """Channels are weighed by a branch of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32)
        self.each = nn.Conv2d(32, 32, 3, 1, 1, groups=32)
        self.less, self.more, self.head = nn.Linear(32, 8), nn.Linear(8, 32), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.hardswish(self.norm(self.stem(x)))
        y = self.each(x)
        gate = F.relu(self.less(F.adaptive_avg_pool2d(y, 1).flatten(1)))
        y = y * torch.sigmoid(self.more(gate))[:, :, None, None]
        return self.head((x + y).mean([2, 3]))


class Volume(nn.Module):
    """Three extents, a norm of each sample, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Conv3d(16, 4, 3, padding=1), nn.InstanceNorm3d(4, affine=True)
        self.b, self.c = nn.Conv3d(4, 8, 3, 2, 1), nn.Conv3d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = F.leaky_relu(self.norm(self.a(x)))
        return self.c(torch.cat([kept, F.interpolate(F.relu(self.b(kept)), scale_factor=2)], 1))


class Wide(nn.Module):
    """Norms and matrices with the channels last, sums with the channels second."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.each = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.scale = nn.LayerNorm(channels), nn.Parameter(torch.ones(channels))
        self.up, self.down = nn.Linear(channels, 64), nn.Linear(64, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.each(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.a, self.b = nn.Conv2d(16, 8, 3), nn.Linear(8, 3), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = F.relu(self.body(x)).mean((2, 3))
        return {"main": self.a(y), "aside": self.b(y)}


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 64, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Looks(nn.Module):
    """Decides by a value: there is nothing to trace."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x) if bool((x > 0).all()) else x


def broken() -> nn.Module:
    raise RuntimeError("no such luck")


number = 7

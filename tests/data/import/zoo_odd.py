"""Torch modules with operators that have no layer kind, as people write them, all of them small."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from zoo import RmsNorm


class RmsBlock(nn.Module):
    """Norms by hand around a gated MLP."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.norm, self.last = RmsNorm(hidden), RmsNorm(hidden)
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((hidden, 64), (hidden, 64), (64, hidden))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return self.last(x + self.down(F.silu(self.gate(y)) * self.up(y)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.body = nn.LSTM(16, 24, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 100)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.words(words))[0])


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)[0][:, -1])


class SqueezeExcite(nn.Module):
    """Channels weighed by a branch of 1 × 1 convolutions over `x.mean(keepdim=True)`."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.less, self.more = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.norm(self.stem(x)))
        gate = y.mean((2, 3), keepdim=True)
        y = y * torch.sigmoid(self.more(F.silu(self.less(gate))))
        return self.head(y.mean((2, 3)))


class Glu(nn.Module):
    """Halves that gate each other, joined along the tokens afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.conv, self.head = nn.Linear(16, 64), nn.Conv1d(32, 32, 3, 1, 1), nn.Linear(
            32, 5)  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.up(x).chunk(2, dim=-1)
        y = left * torch.sigmoid(right)
        y = self.conv(y.transpose(1, 2)).transpose(1, 2)
        return self.head(torch.cat([y, left], dim=1))


class FftMixer(nn.Module):
    """Tokens mixed by a Fourier transform, channels by an MLP."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 64), nn.Linear(64, hidden)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(1):
            x = self.norm(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
            x = self.last(x + self.down(F.gelu(self.up(x))))
        return self.head(x.mean(1))


class Siamese(nn.Module):
    """Two pictures through the same layers; how far apart are they?"""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8),
        )  # fmt: skip
        self.head = nn.Linear(8, 1)

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.head((self.body(one) - self.body(other)).abs())


class UNet(nn.Module):
    """Two floors down and up again, with what was kept joined in."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
            for i, o in ((1, 8), (8, 16), (16, 32))
        )
        self.up1, self.up2 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.d, self.e = nn.Conv2d(32, 16, 3, 1, 1), nn.Conv2d(16, 8, 3, 1, 1)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.a(x)
        two = self.b(F.max_pool2d(one, 2))
        low = self.c(F.max_pool2d(two, 2))
        two = F.relu(self.d(torch.cat([self.up1(low), two], 1)))
        return self.head(F.relu(self.e(torch.cat([self.up2(two), one], 1))))


class Depthwise(nn.Module):
    """Inverted bottlenecks with a scale of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.scale = nn.Conv2d(3, 8, 3, 2, 1), nn.Parameter(torch.ones(8, 1, 1))
        self.wide, self.each, self.thin = nn.Conv2d(8, 48, 1), nn.Conv2d(
            48, 48, 3, 1, 1, groups=48), nn.Conv2d(48, 8, 1)  # fmt: skip
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.stem(F.pad(x, (0, 1, 0, 1))))
        y = self.thin(F.relu6(self.each(F.relu6(self.wide(x)))))
        return self.head((x + self.scale * y).mean((2, 3)))


class GroupedQueries(nn.Module):
    """Grouped-query attention with einsum, a norm of the queries, and a mask by hand."""

    def __init__(self, hidden: int = 32, heads: int = 4, kv_heads: int = 2) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = (nn.Linear(hidden, kv_heads * self.width, bias=False) for _ in range(2))
        self.out, self.norm = nn.Linear(hidden, hidden, bias=False), RmsNorm(self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, h = x.shape
        times = self.heads // self.kv_heads
        q = self.norm(self.q(x).view(n, t, self.kv_heads, times, self.width))
        k, v = (one(x).view(n, t, self.kv_heads, self.width) for one in (self.k, self.v))
        scores = torch.einsum("btgrd,bsgd->bgrts", q, k) / self.width**0.5
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        shares = scores.masked_fill(later, float("-inf")).softmax(-1)
        return x + self.out(torch.einsum("bgrts,bsgd->btgrd", shares, v).reshape(n, t, h))


class Experts(nn.Module):
    """A mixture of experts as Mixtral's: each expert is given the tokens that chose it."""

    def __init__(self, hidden: int = 16, experts: int = 4, active: int = 2) -> None:
        super().__init__()
        self.active, self.router = active, nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, 32), nn.SiLU(), nn.Linear(32, hidden))
            for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, h = x.shape
        flat = x.view(-1, h)
        shares, chosen = torch.topk(self.router(flat).softmax(-1), self.active, dim=-1)
        out = torch.zeros_like(flat)
        mask = F.one_hot(chosen, num_classes=len(self.experts)).permute(2, 1, 0)
        for i, expert in enumerate(self.experts):
            place, token = torch.where(mask[i])
            out.index_add_(0, token, expert(flat[token]) * shares[token, place, None])
        return out.view(n, t, h)


class Volumes(nn.Module):
    """Three extents, a max over channels, a sum over depth."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv3d(1, 4, 3, padding=1), nn.Conv3d(4, 8, (1, 3, 3), (1, 2, 2))
        self.norm, self.head = nn.GroupNorm(2, 8), nn.Linear(9, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.leaky_relu(self.norm(self.b(F.leaky_relu(self.a(x)))))
        return self.head(y.amax(1).sum(1).flatten(1))


class Recommender(nn.Module):
    """Dense features and bags of words, their products, and an MLP, as DLRM has it."""

    def __init__(self, tables: int = 3, wide: int = 8) -> None:
        super().__init__()
        self.low = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, wide), nn.ReLU())
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(50 + i, wide, mode="sum") for i in range(tables)
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(wide + pairs, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        x = self.low(dense)
        every = [x, *(table(words[:, i]) for i, table in enumerate(self.tables))]
        each = torch.stack(every, dim=1)
        products = torch.bmm(each, each.transpose(1, 2))
        row, column = torch.tril_indices(len(every), len(every), offset=-1)
        return self.top(torch.cat([x, products[:, row, column]], dim=1))


class Decoder(nn.Module):
    """A vector grown to a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 8 * 4 * 4)
        self.body = nn.Sequential(
            nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.ConvTranspose2d(8, 4, 3, 1, 0, dilation=2), nn.ReLU(), nn.PixelShuffle(2),
            nn.Conv2d(1, 1, 3), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.first(x).view(-1, 8, 4, 4))


class Encoder(nn.Module):
    """PyTorch's own encoder behind a learned class token, one position table wider than used."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, hidden), nn.Parameter(torch.zeros(1, 40, hidden))
        self.token = nn.Parameter(torch.zeros(1, 1, hidden))
        layer = nn.TransformerEncoderLayer(hidden, 4, 64, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(hidden, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.token.expand(len(words), -1, -1), self.words(words)], dim=1)
        return self.head(self.body(x + self.places[:, : x.shape[1]])[:, 0])


class Attended(nn.Module):
    """Encoder and decoder: keys and values of another tensor than the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.body(x, y)


class Spare(nn.Module):
    """Half of it is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(8, 8), nn.ModuleList([nn.Linear(8, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class Breaks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 4), nn.Linear(5, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def build_model() -> nn.Module:
    """Says nothing of what is built."""
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU())

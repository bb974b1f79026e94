"""A GPT with adapters beside frozen weights, in PyTorch alone: bytes alive while it is trained.

As the family block of `benchmarks.memories.counted` has it, and Hugging Face's PEFT trains it: what
is frozen asks for no gradient, so autograd keeps what the gradients of adapters and of activations
need and no more [hu2021]. With checkpointing each block is made again from its input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from oracle.executor.measure.memory_count import MemoryCount

MATRICES = {"qkv": "attention", "out": "attention", "up": "mlp", "down": "mlp"}


class Adapted(nn.Module):
    """A frozen matrix, and two narrow ones beside it whose product is added."""

    def __init__(self, given: int, made: int, rank: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(given, made).requires_grad_(False)
        self.down = nn.Linear(given, rank, bias=False) if rank else None
        self.up = nn.Linear(rank, made, bias=False) if rank else None

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.frozen(x)
        return made if self.up is None or self.down is None else made + self.up(self.down(x))


class Block(nn.Module):
    """Attention and an MLP, each behind a norm."""

    def __init__(self, hidden: int, heads: int, ranks: dict[str, int]) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(hidden).requires_grad_(False) for _ in range(2))
        sizes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
        self.matrices = nn.ModuleDict({
            name: Adapted(hidden * given, hidden * made, ranks[name])
            for name, (given, made) in sizes.items()
        })  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        matrices = self.matrices
        parts = matrices["qkv"](self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        core = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + matrices["out"](core.transpose(1, 2).flatten(-2))
        return x + matrices["down"](functional.gelu(matrices["up"](self.norm2(x))))


class Adapters(nn.Module):
    """The whole: a table of words and places, blocks, and the product over the vocabulary."""

    def __init__(self, family: dict[str, Any], rank: int, part: str, again: bool) -> None:
        super().__init__()
        hidden, vocab = family["hidden"], family["vocab"]
        ranks = {name: rank * (part in ("", of) or part == name) for name, of in MATRICES.items()}
        self.words = nn.Embedding(vocab, hidden).requires_grad_(False)
        self.places = nn.Parameter(torch.zeros(family["sequence"], hidden), requires_grad=False)
        self.blocks = nn.ModuleList(
            Block(hidden, family["heads"], ranks) for _ in range(family["layers"])
        )
        self.norm = nn.LayerNorm(hidden).requires_grad_(False)
        self.head = nn.Linear(hidden, vocab, bias=False).requires_grad_(False)
        self.again = again

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = self.words(tokens) + self.places
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        logits = self.head(self.norm(x)).flatten(0, 1)
        return functional.cross_entropy(logits, target.flatten())


def counted(family: dict[str, Any], train: str, batch: int, again: bool) -> MemoryCount:
    """A step with momentum of adapters, `lora:4:attention`, its bytes counted."""
    _, rank, part = (*train.split(":"), "")[:3]
    torch.manual_seed(0)
    model = Adapters(family, int(rank), part, again)
    weights = list(model.parameters())
    learned = [weight for weight in weights if weight.requires_grad]
    for weight in learned:
        weight.grad = torch.zeros_like(weight)
    held = {"weights": weights, "gradients": [weight.grad for weight in learned],
            "optimizer": [torch.zeros_like(weight) for weight in learned]}  # fmt: skip
    tokens, target = torch.randint(family["vocab"], (2, batch, family["sequence"]))
    count = MemoryCount(held, [tokens, target])
    with count:
        count.enter("forward")
        loss = model(tokens, target)
        count.enter("backward")
        loss.backward()
    return count

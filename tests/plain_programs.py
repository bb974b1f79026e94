"""Networks as plain PyTorch programs on one process, written apart from the executor.

Weights are named by the row that has them and by what they are: `2.weight`.
"""

from types import SimpleNamespace
from typing import ClassVar

import torch
import torch.nn.functional as F

from oracle.executor.local.weights import initial


def at(row):
    """What is to be known of a row to draw its weights."""
    return SimpleNamespace(index=row, shape=SimpleNamespace(experts=0))


def weights(shapes, dtype):
    """The seeded values that every engine begins with."""
    return {
        name: initial(at(int(row)), kind, shape, 0).to(dtype).requires_grad_()
        for name, shape in shapes.items()
        for row, _, kind in [name.partition(".")]
    }


class Vgg:
    """Three convolutions and a classifier: `VGG` of the executor's tests."""

    shapes: ClassVar = {
        "0.weight": (8, 3, 3, 3), "0.bias": (8,), "2.weight": (16, 8, 3, 3), "2.bias": (16,),
        "5.weight": (8, 16, 3, 3), "7.weight": (12, 384), "7.bias": (12,),
    }  # fmt: skip

    def loss(self, w, x, target):
        x = F.relu(F.conv2d(x, w["0.weight"], w["0.bias"], padding=1))
        x = F.relu(F.max_pool2d(F.conv2d(x, w["2.weight"], w["2.bias"], padding=1), 2))
        x = F.conv2d(x, w["5.weight"], padding=1).flatten(1)
        return F.cross_entropy(F.linear(x, w["7.weight"], w["7.bias"]), target, reduction="sum")


class Resnet:
    """A stem, a block with a projection, two without: `RESNET` of the executor's tests."""

    shapes: ClassVar = {"0.weight": (8, 3, 7, 7), "4.weight": (8, 8, 3, 3),
              "7.weight": (16, 8, 3, 3), "9.weight": (16, 8, 1, 1),
              "29.weight": (12, 16), "29.bias": (12,),
              **{f"{i}.weight": (16, 16, 3, 3) for i in (13, 16, 20, 23)},
              **{f"{i}.{name}": (8 if i < 6 else 16,) for i in (1, 5, 8, 10, 14, 17, 21, 24)
                 for name in ("weight", "bias")}}  # fmt: skip

    def loss(self, w, x, target):
        def norm(x, i):
            return F.batch_norm(x, None, None, w[f"{i}.weight"], w[f"{i}.bias"], training=True)

        x = F.relu(norm(F.conv2d(x, w["0.weight"], stride=2, padding=3), 1))
        x = F.max_pool2d(x, 3, 2, 1)
        branch = F.relu(norm(F.conv2d(x, w["4.weight"], padding=1), 5))
        branch = norm(F.conv2d(branch, w["7.weight"], padding=1), 8)
        x = F.relu(branch + norm(F.conv2d(x, w["9.weight"]), 10))
        for i in (13, 20):
            branch = F.relu(norm(F.conv2d(x, w[f"{i}.weight"], padding=1), i + 1))
            x = F.relu(norm(F.conv2d(branch, w[f"{i + 3}.weight"], padding=1), i + 4) + x)
        x = x.mean((2, 3))
        return F.cross_entropy(F.linear(x, w["29.weight"], w["29.bias"]), target, reduction="sum")


class Gpt:
    """Two blocks with norms before, learned positions: `GPT` of the executor's tests."""

    shapes: ClassVar = {"0.table": (32, 16), "0.positions": (8, 16), "22.weight": (32, 16),
              **{f"{i}.{name}": (16,) for i in (1, 6, 11, 16, 21) for name in ("weight", "bias")},
              **{f"{i + k}.{name}": shape for i in (0, 10) for k, out, into in (
                  (2, 48, 16), (4, 16, 16), (7, 64, 16), (9, 16, 64))
                 for name, shape in (("weight", (out, into)), ("bias", (out,)))}}  # fmt: skip

    def loss(self, w, x, target):
        def linear(x, i):
            return F.linear(x, w[f"{i}.weight"], w[f"{i}.bias"])

        def norm(x, i):
            return F.layer_norm(x, (16,), w[f"{i}.weight"], w[f"{i}.bias"])

        x = w["0.table"][x] + w["0.positions"]
        for i in (0, 10):
            q, k, v = linear(norm(x, i + 1), i + 2).view(*x.shape[:2], 3, 4, 4).unbind(2)
            scores = torch.einsum("bqhc,bkhc->bhqk", q, k) / 2
            ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            mixed = torch.einsum("bhqk,bkhc->bqhc", scores.masked_fill(ahead, -6e4).softmax(-1), v)
            x = x + linear(mixed.flatten(2), i + 4)
            x = x + linear(F.gelu(linear(norm(x, i + 6), i + 7)), i + 9)
        y = F.linear(norm(x, 21), w["22.weight"])
        return F.cross_entropy(y.flatten(0, 1), target.flatten(), reduction="sum") / 8


class Llama:
    """Two blocks of grouped queries, rotations and gates, a table in two uses: `LLAMA8`."""

    shapes: ClassVar = {"0.table": (30, 24), **{f"{i}.weight": (24,) for i in (1, 7, 12, 18, 23)},
              **{f"{i + k}.weight": shape for i in (0, 11) for k, shape in (
                  (2, (48, 24)), (5, (24, 24)), (8, (80, 24)), (10, (24, 40)))}}  # fmt: skip

    def loss(self, w, x, target):
        def norm(x, i):
            return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{i}.weight"]

        def turned(x):
            steps = torch.arange(3, dtype=torch.float64)
            angle = torch.arange(8)[:, None] * 10000.0 ** (-steps / 3)
            turn = torch.polar(torch.ones(8, 3, dtype=torch.float64), angle)
            pair = torch.complex(x[..., :3].double(), x[..., 3:].double()) * turn[:, None]
            return torch.cat([pair.real, pair.imag], -1).to(x)

        table = w["0.table"]
        x = table[x]
        for i in (0, 11):
            q, k, v = F.linear(norm(x, i + 1), w[f"{i + 2}.weight"]).split([24, 12, 12], -1)
            q, k, v = (one.unflatten(-1, (-1, 6)) for one in (q, k, v))
            k, v = (one.repeat_interleave(2, 2) for one in (turned(k), v))
            scores = torch.einsum("bqhc,bkhc->bhqk", turned(q), k) / 6**0.5
            ahead = torch.ones(8, 8, dtype=torch.bool).triu(1)
            mixed = torch.einsum("bhqk,bkhc->bqhc", scores.masked_fill(ahead, -6e4).softmax(-1), v)
            x = x + F.linear(mixed.flatten(2), w[f"{i + 5}.weight"])
            gate, up = F.linear(norm(x, i + 7), w[f"{i + 8}.weight"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, w[f"{i + 10}.weight"])
        y = F.linear(norm(x, 23), table)
        return F.cross_entropy(y.flatten(0, 1), target.flatten(), reduction="sum") / 8


PROGRAMS = {"vgg": Vgg(), "resnet": Resnet(), "gpt": Gpt(), "llama": Llama()}
OPTIMIZERS = {
    "sgd": lambda w: torch.optim.SGD(w, lr=0.05),
    "momentum": lambda w: torch.optim.SGD(w, lr=0.05, momentum=0.9),
    "adam": lambda w: torch.optim.Adam(w, lr=0.05),
}


def trained(name, x, target, steps, parts, optimizer, dtype):
    """Losses of each step and the weights after them; norms see one part of the batch at a time."""
    program = PROGRAMS[name]
    w = weights(program.shapes, dtype)
    update, losses = OPTIMIZERS[optimizer](list(w.values())), []
    for _ in range(steps):
        update.zero_grad()
        each = [
            program.loss(w, a, b) / len(x)
            for a, b in zip(x.chunk(parts), target.chunk(parts), strict=True)
        ]
        sum(each).backward()
        update.step()
        losses.append(float(sum(each)))
    return losses, {name: value.detach() for name, value in w.items()}

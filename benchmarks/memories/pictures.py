"""Memory of networks of pictures and volumes in plain PyTorch: counted, and predicted.

Modules as torchvision and nnU-Net have them run one step on tensors without contents; PyTorch's
own tracker counts the bytes alive at most. What kernels take and give back is left out of both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.published.networks import efficientnet, resnext
from benchmarks.table import Table, figure
from oracle.models.model import model
from oracle.predict.defaults import options_for
from oracle.predict.estimate import estimate as predict
from oracle.spec.catalogue import system
from oracle.spec.software import Software

WHERE, SOFTWARE = "dgx-2", "pytorch-channels-first"
CLOSE = 0.03
STAGES = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
          (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))  # fmt: skip


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), nn.SiLU(inplace=True),
            nn.Conv2d(squeezed, channels, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.gate(x) * x)


class Residual(nn.Module):
    """A branch, and what it is added to."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None, last: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut, self.last = branch, shortcut, last

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(x)
        y += x if self.shortcut is None else self.shortcut(x)
        return torch.as_tensor(self.last(y))


def convolved(given: int, made: int, kernel: int, stride: int = 1, groups: int = 1,
              act: type[nn.Module] | None = nn.SiLU) -> nn.Sequential:  # fmt: skip
    """A convolution, its batch norm, and an activation in place."""
    layers: list[nn.Module] = [
        nn.Conv2d(given, made, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(made),
    ]
    return nn.Sequential(*layers, *([act(inplace=True)] if act else []))


def efficient(width: float, depth: float) -> nn.Module:
    """EfficientNet, as torchvision/models/efficientnet.py builds it, without stochastic depth."""

    def channels(count: int) -> int:
        rounded = max(8, int(count * width + 4) // 8 * 8)
        return rounded + 8 * (rounded < 0.9 * count * width)

    given = channels(32)
    layers: list[nn.Module] = [convolved(3, given, 3, 2)]
    for expansion, kernel, stride, filters, repeats in STAGES:
        for copy in range(int(np.ceil(repeats * depth))):
            wide, made = given * expansion, channels(filters)
            step = stride if copy == 0 else 1
            branch = nn.Sequential(
                *([convolved(given, wide, 1)] if expansion > 1 else []),
                convolved(wide, wide, kernel, step, wide), Gate(wide, max(1, given // 4)),
                convolved(wide, made, 1, act=None),
            )  # fmt: skip
            alike = step == 1 and given == made
            layers.append(Residual(branch, None, nn.Identity()) if alike else branch)
            given = made
    head = 4 * channels(320)
    return nn.Sequential(*layers, convolved(given, head, 1), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(head, 1000))  # fmt: skip


def residual(blocks: tuple[int, ...], groups: int, width: int) -> nn.Module:
    """ResNet and ResNeXt with bottlenecks, as torchvision/models/resnet.py builds them."""
    conv, given = partial(convolved, act=nn.ReLU), 64
    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for stage, repeats in enumerate(blocks):
        inner, made = groups * width * 2**stage, 256 * 2**stage
        for copy in range(repeats):
            stride = 2 if copy == 0 and stage else 1
            branch = nn.Sequential(conv(given, inner, 1), conv(inner, inner, 3, stride, groups),
                                   convolved(inner, made, 1, act=None))  # fmt: skip
            shortcut = None if copy else convolved(given, made, 1, stride, act=None)
            layers.append(Residual(branch, shortcut, nn.ReLU(inplace=True)))
            given = made
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 1000))


class Joined(nn.Module):
    """nnU-Net, as NVIDIA/DeepLearningExamples PyTorch/Segmentation/nnUNet/models builds it."""

    def __init__(self, rank: int, features: tuple[int, ...]) -> None:
        super().__init__()
        conv, deconv, norm = ((nn.Conv2d, nn.ConvTranspose2d, nn.InstanceNorm2d) if rank == 2 else
                              (nn.Conv3d, nn.ConvTranspose3d, nn.InstanceNorm3d))  # fmt: skip

        def block(given: int, made: int, stride: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for channels, step in ((given, stride), (made, 1)):
                layers += [conv(channels, made, 3, step, 1, bias=False), norm(made, affine=True),
                           nn.LeakyReLU(0.01, inplace=True)]  # fmt: skip
            return nn.Sequential(*layers)

        entered = (4, *features)
        self.down = nn.ModuleList(block(entered[level], made, 1 + (level > 0))
                                  for level, made in enumerate(features))  # fmt: skip
        self.up = nn.ModuleList(deconv(features[level + 1], features[level], 2, 2)
                                for level in range(len(features) - 1))  # fmt: skip
        self.join = nn.ModuleList(block(2 * made, made, 1) for made in features[:-1])
        self.head = conv(features[0], 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        skips.pop()
        for level in reversed(range(len(skips))):
            x = self.join[level](torch.cat((self.up[level](x), skips.pop()), 1))
        return torch.as_tensor(self.head(x))


WIDE = (32, 64, 128, 256, 512, 512)
VOLUMES = (*WIDE[:4], 320, 320)
# its module, what the engine calls it, the shape of a sample and of its target, samples
NETWORKS: dict[str, tuple[Any, Any, tuple[int, ...], tuple[int, ...], int]] = {
    **{f"efficientnet-b{n}": (partial(efficient, *scale), efficientnet(*scale, side),
                              (3, side, side), (), 8)
       for n, (*scale, side) in enumerate([(1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 260),
                                           (1.2, 1.4, 300), (1.4, 1.8, 380)])},
    "resnet50": (partial(residual, (3, 4, 6, 3), 1, 64), "resnet50", (3, 224, 224), (), 8),
    "resnext101-32x4d": (partial(residual, (3, 4, 23, 3), 32, 4), resnext((3, 4, 23, 3), groups=32,
                         width=4), (3, 224, 224), (), 8),
    "nnunet-2d": (partial(Joined, 2, WIDE), "nnunet-2d", (4, 192, 160), (192, 160), 8),
    "nnunet-3d": (partial(Joined, 3, VOLUMES), "nnunet-3d", (4, 128, 128, 128), (128,) * 3, 1),
}  # fmt: skip


def counted(name: str) -> float:
    """Bytes of activations, their gradients and what else is not kept by weight, at most."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    make, _, shape, target, batch = NETWORKS[name]
    with FakeTensorMode(allow_non_fake_inputs=True):
        module, samples = make().train(), torch.empty(batch, *shape)
        wanted = torch.empty(batch, *target, dtype=torch.long)
        for weights in module.parameters():  # there from the step before, as the engine has them
            weights.grad = torch.zeros_like(weights)
        tracker = MemTracker()
        tracker.track_external(module, samples)
        with tracker:
            nn.functional.cross_entropy(module(samples), wanted).backward()
        (by_kind,) = tracker.get_tracker_snapshot("peak").values()
    kinds = {str(kind).rpartition(".")[2]: nbytes for kind, nbytes in by_kind.items()}
    return float(kinds["Total"] - kinds["PARAM"] - kinds["BUFFER"] - kinds["GRAD"])


def predicted(name: str, software: Software | str = SOFTWARE) -> float:
    """The same as the engine has it, without workspace of convolutions."""
    what, where, batch = model(NETWORKS[name][1]), system(WHERE), NETWORKS[name][-1]
    options = options_for(what, where, "fp32", "momentum", software=software, workspace=0.0)
    found = predict(what, where, ["serial"], [batch], options).memory_kinds
    return float(found["activations"][0] + found["workspace"][0])


def table(quick: bool = False) -> Table:
    """Each network's bytes, counted and predicted."""
    rows, off = [], []
    for name in [*NETWORKS][:: 4 if quick else 1]:
        pair = counted(name), predicted(name)
        off.append(pair[1] / pair[0] - 1)
        rows.append({"network": name, "counted MB": f"{pair[0] / 1e6:.1f}",
                     "predicted MB": f"{pair[1] / 1e6:.1f}", "off": f"{off[-1]:+.1%}"})  # fmt: skip
    return {
        "title": "pictures: activations and their gradients in PyTorch, at most", "rows": rows,
        "figures": {"networks within 3 %": figure((np.abs(off) <= CLOSE).sum(), "", "all"),
                    "largest": figure(np.abs(off).max(), "", "≤ 0.03")},
        "notes": ["left out of both: what kernels take and give back before they return"],
    }  # fmt: skip

"""Run trainings by plain PyTorch and write what each took, a line of JSON as it ends."""

from __future__ import annotations

import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.gpu import models
from benchmarks.gpu.trainings import Training

WARM_UP, STEPS = 5, 20


class Again(nn.Module):
    """A layer that is run again in the backward pass."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.layer, x, use_reentrant=False)


def built(training: Training, *, tiny: bool = False) -> nn.Module:
    """Return the network of a training, on the device that is set as the default."""
    model: nn.Module = getattr(models, training.build)(**(training.tiny if tiny else {}))
    if training.recompute:
        for number, layer in enumerate(model.layers):
            model.layers[number] = Again(layer)
    return model.train()


def batch_of(training: Training, model: nn.Module, device: str) -> tuple[Tensor, Tensor]:
    """Return random samples and what the network shall say of them."""
    if training.tokens:
        words = torch.randint(1000, (training.batch, training.tokens), device=device)
        return words, words
    samples = torch.randn((training.batch, *training.sample), device=device)
    if training.last:
        samples = samples.to(memory_format=torch.channels_last)
    if training.target == "values":
        return samples, torch.rand((training.batch, 4), device=device)
    shape = training.sample[1:] if training.target == "pixels" else ()
    return samples, torch.randint(3, (training.batch, *shape), device=device)


def loss_of(training: Training, made: Tensor, target: Tensor) -> Tensor:
    """Return the loss that a training of this kind takes."""
    if training.target == "values":
        return F.mse_loss(made.float(), target)
    if training.target == "words":
        return F.cross_entropy(made.flatten(0, 1).float(), target.flatten())
    return F.cross_entropy(made.float(), target)


def optimizer_of(training: Training, model: nn.Module) -> torch.optim.Optimizer:
    """Return PyTorch's own optimizer of what is trained, able to run inside a graph."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    if training.optimizer == "adam":
        inside = training.graph and trained[0].is_cuda
        return torch.optim.AdamW(trained, lr=1e-4, capturable=inside)
    return torch.optim.SGD(trained, lr=1e-3, momentum=0.9)


def step_of(training: Training, model: nn.Module, device: str) -> Callable[[], None]:
    """Return one whole step: forward, backward, update."""
    samples, target = batch_of(training, model, device)
    optimizer = optimizer_of(training, model)
    forward = torch.compile(model) if training.compiled else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=not training.graph)
        with torch.autocast(device, torch.bfloat16, cache_enabled=not training.graph):
            made = forward(samples)
        loss_of(training, made, target).backward()
        optimizer.step()

    return step


def replayed(step: Callable[[], None]) -> Callable[[], None]:
    """Return the same step as a CUDA graph that is replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measured(training: Training, *, tiny: bool) -> dict[str, Any]:
    """Return the seconds of the steps of a training, and the bytes it held at most."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = built(training, tiny=tiny).to(device)
    if training.last:
        model = model.to(memory_format=torch.channels_last)
    step = step_of(training, model, device)
    if training.graph and on_gpu:
        step = replayed(step)
    seconds = []
    for number in range(2 if tiny else WARM_UP + STEPS):
        begin = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        if tiny or number >= WARM_UP:
            seconds.append(time.perf_counter() - begin)
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    held = {}
    if on_gpu:
        held = {"allocated": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved()}  # fmt: skip
    return {"seconds": middle, "quarters": [low, high], **held}


def run(trainings: Iterable[Training], path: Path, seconds: float, *, tiny: bool) -> bool:
    """Measure trainings until the time is up; return whether none failed."""
    end, sound = time.monotonic() + seconds, True
    with path.open("a", encoding="utf-8") as file:
        for training in trainings:
            if time.monotonic() > end:
                row: dict[str, Any] = {"left": "no time"}
            else:
                try:
                    row = measured(training.small() if tiny else training, tiny=tiny)
                except Exception:  # the next training may run
                    row, sound = {"failed": traceback.format_exc(limit=-3)}, False
            file.write(json.dumps({"name": training.name, **row}) + "\n")
            file.flush()
    return sound

"""Training steps by PyTorch's own classes, timed like those of the native engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import get_process_group_ranks as members_of
from torch.distributed.tensor.parallel import loss_parallel

from oracle.executor.pytorch.network import Network, loss_of
from oracle.executor.pytorch.replicas import Account, Arrivals
from oracle.executor.pytorch.setting import Setting


class Training:
    """Steps on this rank of a network that an engine has wrapped."""

    def __init__(
        self, setting: Setting, networks: Sequence[Network], wrapped: nn.Module,
        optimizer: torch.optim.Optimizer, accounts: list[Account] | None = None,
    ) -> None:  # fmt: skip
        self.setting, self.networks, self.wrapped = setting, networks, wrapped
        self.optimizer, self.accounts = optimizer, accounts or []
        self.replicas = setting.degree("data", "sharded", "context")
        first = setting.samples[0]
        self.micro_batches = [(a - first, b - first) for a, b in setting.micro_batches]
        self.ddp = hasattr(wrapped, "no_sync")
        self.arrivals = Arrivals(wrapped, setting.wire.timer) if self.ddp else None
        scaled = setting.job.precision == "fp16"
        self.scaler = torch.amp.GradScaler(setting.device.type, enabled=scaled)
        self.timer = setting.wire.timer
        self.updates = 0

    def step(self, x: Tensor, target: Tensor) -> Tensor:
        """Run one iteration on this rank's samples; returns its part of the mean loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.loss_context():
            loss = self.passes(x, target)
        with self.timer.phase("update"):
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.updates += 1
        return loss

    def passes(self, x: Tensor, target: Tensor) -> Tensor:
        """Run all micro-batches, forward and backward."""
        losses = []
        for number, (a, b) in enumerate(self.micro_batches):
            last = number == len(self.micro_batches) - 1
            if self.accounts and self.setting.zero == 2:  # weights stay for the next micro-batch
                self.wrapped.set_reshard_after_backward(last)
            with nullcontext() if last or not self.ddp else self.wrapped.no_sync():
                with self.phase("forward"), self.cast():
                    loss = self.loss(self.wrapped(x[a:b]), target[a:b])
                with self.phase("backward"):
                    # replicas' gradients are averaged
                    self.scaler.scale(loss * self.replicas).backward()
                    if last and self.arrivals and self.replicas > 1:
                        self.waited()
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def loss(self, y: Tensor, target: Tensor) -> Tensor:
        if self.setting.narrow:
            y = y.float()
        return loss_of(self.setting.loss, y, target, self.setting.job.batch)

    def waited(self) -> None:
        """Count the wait for gradients after the last of them was there."""
        assert self.arrivals
        nbytes = sum(w.numel() * w.element_size() for w in self.wrapped.parameters())
        members = members_of(self.setting.mesh["data"].get_group())
        self.setting.wire.count("data: gradients", "allreduce", self.replicas, nbytes,
                                self.arrivals.last, members)  # fmt: skip

    def kept_bytes(self) -> dict[str, float]:
        """Bytes that stay on this device from step to step, gradients among them."""
        weights = [w for group in self.optimizer.param_groups for w in group["params"]]
        gradients = [w.grad for w in weights if w.grad is not None]
        inner = getattr(self.optimizer, "optim", self.optimizer)  # the one inside ZeRO-1's
        slots = [t for state in inner.state.values() for t in state.values()
                 if isinstance(t, Tensor)]  # fmt: skip
        nbytes = {"weights": local_bytes(weights), "gradients": local_bytes(gradients),
                  "optimizer": local_bytes(slots)}  # fmt: skip
        # DDP's buckets hold all gradients again, unless gradients are views of them
        copies = self.setting.software.state.copies(self.setting.job.precision)
        return nbytes | ({"buffers": nbytes["gradients"]} if self.ddp and copies > 0 else {})

    def full_weights(self) -> dict[str, Tensor]:
        """All weights of this device's networks, gathered from all ranks."""
        return {name: value for network in self.networks
                for name, value in network.full_weights().items()}  # fmt: skip

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase of a step, whose messages accounts count as its own."""
        for account in self.accounts:
            account.backward = name == "backward"
        self.setting.wire.enter(name, "")
        with self.timer.phase(name):
            yield

    def cast(self) -> AbstractContextManager[Any]:
        """Make products in fewer bits, where nothing else casts them."""
        if self.setting.narrow is None or self.accounts:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast(
            self.setting.device.type, dtype=self.setting.narrow
        )
        return context

    def loss_context(self) -> AbstractContextManager[Any]:
        """The context in which a loss of words that are cut over ranks is made."""
        return loss_parallel() if self.setting.degree("tensor") > 1 else nullcontext()


def local_bytes(tensors: Iterable[Tensor]) -> float:
    """Bytes of a rank's parts of tensors, each counted once, without plain numbers."""
    parts = {id(t): getattr(t, "_local_tensor", t) for t in tensors if t.dim()}
    return float(sum(part.numel() * part.element_size() for part in parts.values()))

"""Training steps by PyTorch's own classes, timed as those of the native engine are."""

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
    """Steps of a network that an engine has wrapped, on this rank."""

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
        """One iteration on the own samples; returns this device's part of the mean loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.apart():
            loss = self.passes(x, target)
        with self.timer.phase("update"):
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.updates += 1
        return loss

    def passes(self, x: Tensor, target: Tensor) -> Tensor:
        """All micro-batches, forward and back."""
        losses = []
        for number, (a, b) in enumerate(self.micro_batches):
            last = number == len(self.micro_batches) - 1
            if self.accounts and self.setting.zero == 2:  # weights stay for the next one
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
        """Count what was waited for gradients after the last of them was there."""
        assert self.arrivals
        nbytes = sum(w.numel() * w.element_size() for w in self.wrapped.parameters())
        members = members_of(self.setting.mesh["data"].get_group())
        self.setting.wire.count("data: gradients", "allreduce", self.replicas, nbytes,
                                self.arrivals.last, members)  # fmt: skip

    def kept(self) -> dict[str, float]:
        """Bytes that stay on this device from step to step: gradients lie there till the next."""
        weights = [w for group in self.optimizer.param_groups for w in group["params"]]
        gradients = [w.grad for w in weights if w.grad is not None]
        own = getattr(self.optimizer, "optim", self.optimizer)  # under ZeRO-1 the own part's
        slots = [t for state in own.state.values() for t in state.values()
                 if isinstance(t, Tensor)]  # fmt: skip
        found = {"weights": local_bytes(weights), "gradients": local_bytes(gradients),
                 "optimizer": local_bytes(slots)}  # fmt: skip
        # DDP's buckets hold all gradients again, unless gradients are views of them
        apart = self.ddp and self.setting.software.state.copies(self.setting.job.precision) > 0
        return found | ({"buffers": found["gradients"]} if apart else {})

    def whole(self) -> dict[str, Tensor]:
        """All weights of this device's networks, put together from all ranks."""
        return {name: one for each in self.networks for name, one in each.whole().items()}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """One of a step's phases; what an account counts in it goes to the messages."""
        for account in self.accounts:
            account.backward = name == "backward"
        self.setting.wire.enter(name, "")
        with self.timer.phase(name):
            yield

    def cast(self) -> AbstractContextManager[Any]:
        """Products in fewer bits, where nothing else casts them."""
        if self.setting.narrow is None or self.accounts:
            return nullcontext()
        found: AbstractContextManager[Any] = torch.autocast(
            self.setting.device.type, dtype=self.setting.narrow
        )
        return found

    def apart(self) -> AbstractContextManager[Any]:
        """How the loss of words that are cut over ranks is made."""
        return loss_parallel() if self.setting.degree("tensor") > 1 else nullcontext()


def local_bytes(tensors: Iterable[Tensor]) -> float:
    """Bytes of what a rank holds of tensors that may be cut; of each once, of numbers none."""
    held = {id(t): getattr(t, "_local_tensor", t) for t in tensors if t.dim()}
    return float(sum(one.numel() * one.element_size() for one in held.values()))

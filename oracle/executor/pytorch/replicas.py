"""Replicas and shards by PyTorch's own classes: DDP, ZeroRedundancyOptimizer, fully_shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import get_process_group_ranks as members_of
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from oracle.executor.measure.clock import Moment, Timer
from oracle.executor.messages.calls import gather, newest
from oracle.executor.messages.wire import Wire, size_of
from oracle.executor.passes.forward import every_other
from oracle.executor.pytorch.network import Network, row_of, span_in
from oracle.executor.pytorch.setting import Setting

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, float]]] = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
}
MIB = 2.0**20


def remake(network: Network, mode: str) -> None:
    """Recompute activations: all of a block's, every other product's, or those of attention."""
    for i, unit in enumerate(network.units):
        span = span_in(unit)
        if mode in ("full", "operators") and span.remade:
            options = {"context_fn": every_other} if mode == "operators" else {}
            network.units[i] = checkpoint_wrapper(unit, **options)
        for op in span.operations if mode == "selective" else ():
            if op.shape.work == "attention":
                unit.rows[str(op.index)] = checkpoint_wrapper(row_of(unit, op))


def optimizer_of(setting: Setting, network: nn.Module, rate: float) -> torch.optim.Optimizer:
    """PyTorch's optimizer of all weights of this device, sharded under ZeRO-1."""
    kind, options = OPTIMIZERS[setting.job.optimizer]
    # each list has weights of one kind: those that DTensor cuts over one mesh, or plain ones
    groups: dict[DeviceMesh | None, list[Tensor]] = {}
    for weight in network.parameters():
        groups.setdefault(getattr(weight, "device_mesh", None), []).append(weight)
    fused = setting.software.kernels.optimizer == "fused"
    # PyTorch has no fused kernel of momentum for DTensor
    fused = fused and (kind is not torch.optim.SGD or list(groups) == [None])
    arguments: dict[str, Any] = {"lr": rate, **options, "fused" if fused else "foreach": True}
    if setting.zero == 1:
        from torch.distributed.optim import ZeroRedundancyOptimizer  # takes seconds to import

        group = setting.mesh["data"].get_group()
        return ZeroRedundancyOptimizer(network.parameters(), kind, process_group=group, **arguments)
    return kind([{"params": weights} for weights in groups.values()], **arguments)


# --- DistributedDataParallel -------------------------------------------------------------------


def replicated(setting: Setting, network: Network) -> DistributedDataParallel:
    """The network in DistributedDataParallel, with buckets as the software has them.

    It always overlaps: where the plan says `overlap=off`, all gradients go into one bucket, which
    is full when the backward pass is over.
    """
    numbers = {"data": setting.degree("data"), "devices": setting.wire.mesh.size}
    size = np.ravel(setting.software.exchange.piece(4.0, numbers))
    off = not setting.plan.axis("data").overlap[0, 0]
    wrapped = DistributedDataParallel(
        network, process_group=setting.mesh["data"].get_group(),
        bucket_cap_mb=2**20 if off else float(size[0]) / MIB,
        # tables of segments exist, and nothing here reads them
        find_unused_parameters=any(
            name == "extra" and op.shape.kind == "embedding" for op, name, _ in network.weights()
        ),
        gradient_as_bucket_view=setting.software.state.copies(setting.job.precision) == 0,
    )  # fmt: skip
    word = setting.plan.axis("data").word("compress")
    if word in ("fp16", "bf16"):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        hook = (
            default_hooks.fp16_compress_hook if word == "fp16" else default_hooks.bf16_compress_hook
        )
        wrapped.register_comm_hook(setting.mesh["data"].get_group(), hook)
    return wrapped


class Arrivals:
    """Notes when the last gradient of a backward pass was there; what follows is waiting."""

    def __init__(self, network: nn.Module, timer: Timer) -> None:
        self.timer = timer
        self.last: Moment = 0.0
        for weight in network.parameters():
            weight.register_post_accumulate_grad_hook(self._arrived)

    def _arrived(self, _: Tensor) -> None:
        self.last = self.timer.now()


# --- fully_shard -------------------------------------------------------------------------------


@dataclass
class Account:
    """Counts messages of FSDP2 under the names by which they are priced."""

    wire: Wire
    axis: str
    zero: int
    each_micro_batch: bool  # every micro-batch scatters gradients
    backward: bool = False

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class Gather(Account):
    """FSDP2's allgather, counted; where gloo has two ranks, by the executor's swap."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False
    ) -> Any:
        began = self.wire.timer.now()
        work = gather(output_tensor, input_tensor, group, async_op)
        often = " again" if self.backward else ""
        label = f"{self.axis}: weights{' renewed' if self.zero < 3 else often}"
        self.wire.count(label, "allgather", group.size(), size_of(output_tensor), began,
                        members_of(group))  # fmt: skip
        return work


class Scatter(Account):
    """FSDP2's reduce-scatter, counted."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any,
        async_op: bool = False,
    ) -> Any:  # fmt: skip
        began = self.wire.timer.now()
        call = newest("reduce_scatter_single", "reduce_scatter_tensor")
        work = call(output_tensor, input_tensor, group=group, op=op, async_op=async_op)
        label = f"{self.axis}: gradients scattered{' each time' if self.each_micro_batch else ''}"
        self.wire.count(label, "reduce_scatter", group.size(), size_of(input_tensor), began,
                        members_of(group))  # fmt: skip
        return work


def sharded(setting: Setting, network: Network) -> list[Account]:
    """Put each unit in `fully_shard`; weights stay gathered under ZeRO-2, and within a pipeline.

    The outer dimension of a mesh of two dimensions replicates (HSDP).
    """
    data, inner = setting.degree("data", "context"), setting.degree("sharded")
    flat = data > 1 and inner == 1 and setting.zero > 1
    mesh = setting.mesh["data"] if flat else setting.mesh["data", "sharded"]
    if data == 1:
        mesh = setting.mesh["sharded"]
    reshards = setting.zero >= 3 and setting.degree("pipeline") == 1
    how: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": reshards}
    if setting.narrow:
        how["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=setting.narrow, reduce_dtype=torch.float32
        )
    for group in _groups(network):
        fully_shard(group if len(group) > 1 else group[0], **how)
    fully_shard(network, **how)
    axis = "sharded" if inner > 1 else "data"
    account_fields = setting.wire, axis, setting.zero, len(setting.micro_batches) > 1
    accounts = Gather(*account_fields), Scatter(*account_fields)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            # gloo has no mean
            module.set_force_sum_reduction_for_comms(setting.synchronous)
            module.set_custom_all_gather(accounts[0])
            module.set_custom_reduce_scatter(accounts[1])
    return list(accounts)


def _groups(network: Network) -> list[list[nn.Module]]:
    """Units that are sharded together: each alone, unless they share a weight."""
    groups: list[list[nn.Module]] = []
    for unit in network.units:
        weights = set(unit.parameters())
        mates = [group for group in groups
                 if weights & {w for mate in group for w in mate.parameters()}]  # fmt: skip
        if mates:
            mates[0].append(unit)
        elif weights:
            groups.append([unit])
    return groups

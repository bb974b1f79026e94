"""Attention over tokens that are cut, by the ring of PyTorch's context parallelism."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental._context_parallel import _attention as pytorch
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from oracle.executor.local.graph import Operation
from oracle.executor.passes import operators
from oracle.executor.pytorch.modules import Attention, RowModule
from oracle.executor.pytorch.network import Network
from oracle.executor.pytorch.setting import Setting
from oracle.executor.supported import NotSupported

TOKENS = 2  # the dimension of queries, keys and values that is cut
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]  # that go in a ring
FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def cut(setting: Setting, network: Network) -> None:
    """Tell rows which tokens this device holds, and let attention see the others."""
    assert setting.tokens is not None
    wide = setting.job.precision == "fp64"
    if wide and setting.device.type != "cpu":
        raise NotSupported("`context` in fp64 on a GPU, where PyTorch has no fused attention of it")
    group = setting.wire.mesh.group(("context",))
    mesh = DeviceMesh.from_group(group.handle, setting.device.type)
    tokens = setting.tokens.to(setting.device)
    for unit in network.units:
        for op in unit.span.operations:
            if op.shape.work == "attention":
                unit.rows[str(op.index)] = CutAttention(op, network.parts, mesh)
                # without a causal mask any order of tokens is as good
                pytorch._cp_options.enable_load_balance = op.shape.causal
            elif isinstance(row := unit.rows[str(op.index)], RowModule):
                row.tokens = tokens
    pytorch._cp_options.convert_to_f32 = not wide
    pytorch.custom_ops[FORWARD] = lambda _, arguments, options: forward(*arguments, **options)
    pytorch.custom_ops[BACKWARD] = lambda _, arguments, options: backward(*arguments, **options)
    pytorch._enable_context_parallel_dispatcher()


class Kernel(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Attention in one kernel, or in a ring of kernels where its inputs are cut."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(FUSED):
            return scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class CutAttention(Attention):
    """Attention of this device's heads and tokens to the tokens of all devices."""

    def __init__(self, op: Operation, parts: int, mesh: DeviceMesh) -> None:
        super().__init__(op, parts)
        style = pytorch._ContextParallel(TOKENS, pytorch._ContextParallel.AttentionType.SDPA)
        self.kernel = parallelize_module(Kernel(op.shape.causal), mesh, style)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = operators.split_heads(self.op, x, self.heads, self.kv_heads)
        several = self.heads // self.kv_heads  # the ring knows of no heads that share keys
        k, v = (tensor.repeat_interleave(several, 1) for tensor in (k, v))
        return self.kernel(q, k, v).transpose(1, 2).flatten(-2)


# --- the ring of a CPU's kernel, of which PyTorch has none -------------------------------------


def forward(
    q: DTensor, k: DTensor, v: DTensor, dropout_p: float = 0.0, is_causal: bool = False,
    **named: Any,
) -> tuple[DTensor, ...]:  # fmt: skip
    """The outputs of this device's queries over all keys and values, and the sums of scores."""
    outputs = pytorch._templated_ring_attention(
        q.device_mesh.get_group(), TOKENS, FORWARD, q.to_local(), k.to_local(), v.to_local(),
        is_causal, dropout_p=dropout_p, **named,
    )  # fmt: skip
    return _cut_as(q, outputs)


def backward(
    gradient: DTensor, q: DTensor, k: DTensor, v: DTensor, outputs: DTensor, sums: DTensor,
    dropout_p: float, is_causal: bool, **named: Any,
) -> tuple[DTensor, ...]:  # fmt: skip
    """Gradients of this device's queries, keys and values."""
    gradients = pytorch._templated_ring_attention_backward(
        q.device_mesh.get_group(), TOKENS, BACKWARD, gradient.to_local(), "grad_out", q.to_local(),
        k.to_local(), v.to_local(), outputs.to_local(), sums.to_local(), is_causal,
        dropout_p=dropout_p, **named,
    )  # fmt: skip
    return _cut_as(q, gradients)


def _cut_as(like: DTensor, parts: tuple[Tensor, ...]) -> tuple[DTensor, ...]:
    return tuple(DTensor.from_local(part, like.device_mesh, [Shard(TOKENS)]) for part in parts)

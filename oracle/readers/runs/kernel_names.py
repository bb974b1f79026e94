"""The group of kernels, or the collective, of the name of a kernel on a device."""

from __future__ import annotations

import re
from functools import lru_cache

# tried in this order; names of libraries: NCCL and RCCL, cuDNN, MIOpen, cuBLAS, CUTLASS,
# Tensile (Cijk_), FlashAttention, PyTorch's foreach optimizers, Apex, Transformer Engine
_GROUPS = (
    ("update", r"multi_tensor_apply|multitensor|adam(w)?_?(kernel|functor)|fusedadam|fused_sgd|"
               r"lamb|l2norm|optimizer"),
    ("attention", r"flash|fmha|attention|mha_|_attn|attn_|scaled_dot_product"),
    ("conv", r"conv(?!ert)|wgrad|dgrad|fprop|implicit_gemm|winograd|cudnn_\w*xregs|scudnn|igrouped|"
             r"miopen\w*(sp3|asm)|naive_conv|nchwtonhwc|nhwctonchw"),
    ("memory", r"norm|bn_(fw|bw)|pool|elementwise|reduce|softmax|memcpy|memset|copy|cat|dropout|"
               r"embedding|index|scatter|gather|transpose|permute|fill|triton"),
    ("gemm", r"gemm|nvjet|cutlass|cublas|cijk_|matmul|xmma|splitk|sgemv|gemv|dot_kernel"),
)  # fmt: skip
_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _GROUPS)
_NCCL = re.compile(r"(?:nccl|rccl|msccl)\w*?_?(AllReduce|ReduceScatter|AllGather|Broadcast|Reduce|"
                   r"SendRecv|AllToAll|Generic)", re.I)  # fmt: skip
_OPERATIONS = {
    "allreduce": "allreduce", "reducescatter": "reduce_scatter", "allgather": "allgather",
    "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "sendrecv", "alltoall": "alltoall",
    "generic": "",
}  # fmt: skip


@lru_cache(2**14)
def operation_of(name: str) -> str | None:
    """Return the collective of a kernel; "" for an unnamed one of a library, None for others."""
    match = _NCCL.search(name[:400])
    if match:
        return _OPERATIONS[match[1].lower()]
    return "" if re.match(r"(void )?(nccl|rccl)", name[:16], re.I) else None


@lru_cache(2**14)
def group_of(name: str) -> str:
    """Return `gemm`, `conv`, `attention`, `update`, or `memory`, also for unknown kernels."""
    text = name[:400].lower()
    return next((group for group, pattern in _PATTERNS if pattern.search(text)), "memory")

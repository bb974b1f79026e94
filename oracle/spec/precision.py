"""Precisions of a training, and the bytes of an activation in each."""

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
MIXED = ("fp16", "bf16", "fp8")
# bytes of an activation between kernels: training in fp8 keeps them in 16 bits
ACTIVATION_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 2.0}

"""Precisions of a training, and the bytes of an activation in each."""

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")
# bytes of an operand of linear layers' products where those are narrower than what is between
# them; in blocks a scale of one byte for 32 numbers of 8 bits, or for 16 of 4 [rouhani2023;
# nvfp4]
NARROW = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
MIXED = ("fp16", "bf16", *NARROW)
# bytes of an activation between kernels: training in 8 or 4 bits keeps them in 16
ACTIVATION_BYTES = {"fp32": 4.0, "tf32": 4.0, **dict.fromkeys(MIXED, 2.0)}

"""How wide numbers are that software keeps or sends, and values that differ by precision."""

from __future__ import annotations

from typing import Literal

from oracle.spec.precision import ACTIVATION_BYTES, NARROW

# bytes of a number: as wide as activations are, or as operands of products are, with their scales,
# or of its own
Width = Literal["compute", "narrow", "fp32", "bf16", "fp16", "fp8"]
WIDTHS = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "none": 0.0}


def bytes_of(width: str, precision: str) -> float:
    """Bytes of a number of this width, in a training of this precision."""
    if width == "narrow" and precision in NARROW:
        return NARROW[precision]
    return ACTIVATION_BYTES[precision] if width in ("compute", "narrow") else WIDTHS[width]


def width_of(width: Width | dict[str, Width], precision: str) -> str:
    """The width in a training of this precision."""
    if isinstance(width, str):
        return width
    return width.get(precision) or width.get("other") or "compute"


def number_of(value: float | dict[str, float], precision: str) -> float:
    """The number in a training of this precision."""
    if isinstance(value, dict):
        return value.get(precision, value.get("other", 0.0))
    return value

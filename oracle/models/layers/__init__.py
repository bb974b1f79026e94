"""The layer kinds: what each makes of its input's shape, and the rows of work it becomes.

A kind is one frozen dataclass whose fields are what a spec file says and whose `rows` method
says what it does. Adding a kind is adding one class to a file of this folder, or one file, or a
class anywhere that is imported; the registry `kinds` finds it by itself. Rows hold *shapes*;
FLOP, bytes and weights are derived.
"""

from importlib import import_module
from pkgutil import iter_modules

from oracle.models.layers.base import Extents, Layer, Misfit, Row, Shape, along
from oracle.models.layers.pictures import Conv, Deconv, Pool, Upsample
from oracle.models.layers.placed import Placed, kinds
from oracle.models.layers.plain import (
    Activation,
    Add,
    Concat,
    Dense,
    Dropout,
    Flatten,
    Loss,
    Norm,
    Reshape,
)
from oracle.models.layers.tokens import Attention, Embedding, First, Mlp, Moe, Position, Skew

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "Activation", "Add", "Attention", "Concat", "Conv", "Deconv", "Dense", "Dropout", "Embedding",
    "Extents", "First", "Flatten", "Layer", "Loss", "Misfit", "Mlp", "Moe", "Norm", "Placed",
    "Pool", "Position", "Reshape", "Row", "Shape", "Skew", "Upsample", "along", "kinds",
]  # fmt: skip

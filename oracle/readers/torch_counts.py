"""The cost of each call of a traced module, and its place in the module and its source."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.flop_counter import flop_registry

from oracle.readers.operations import Counted
from oracle.readers.torch_ops import BATCH

OURS = tuple(str(Path(path).parent) for path in (torch.__file__, Path(__file__).parent))
# operators that move data or add it up: their backward pass needs nothing of the forward pass
LINEAR = (
    "add", "sub", "rsub", "neg", "clone", "copy", "_to_copy", "cat", "stack", "sum", "mean", "roll",
    "flip", "index", "index_select", "index_add", "index_put", "gather", "scatter", "scatter_add",
    "constant_pad_nd", "repeat", "tril", "triu", "im2col", "col2im", "pixel_shuffle", "fill",
    "reflection_pad2d", "replication_pad2d", "slice_scatter", "select_scatter", "embedding",
    "_embedding_bag", "cumsum", "expand_copy", "view_copy", "_fft_r2c", "_fft_c2r", "_fft_c2c",
)  # fmt: skip
PARTLY = ("embedding", "_embedding_bag", "index", "index_select", "gather")  # read some places
FFT = ("_fft_r2c", "_fft_c2r", "_fft_c2c")


class Places:
    """The stack of modules whose forward pass is under way, with their lines of source."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.names = {id(inner): name for name, inner in module.named_modules()}
        self.within: list[str] = []

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the begin and the end of every module's forward pass."""
        begun = register_module_forward_pre_hook(self._begin)
        ended = register_module_forward_hook(self._end)
        try:
            yield
        finally:
            begun.remove()
            ended.remove()

    def _begin(self, module: torch.nn.Module, args: Any) -> None:
        self.within.append(self.names.get(id(module), ""))

    def _end(self, module: torch.nn.Module, args: Any, out: Any) -> None:
        self.within.pop()

    def current_place(self) -> str:
        """Return `body.*.attend, zoo.py:62`: without numbers of modules, equal blocks agree."""
        path = re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", next(reversed(self.within), ""))
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else ""
        return re.sub(r"[^\w.*,:/ -]", "_", ", ".join(filter(None, (path, line)))[:200])

    def failed(self, trace: TracebackType | None) -> str:
        """Return where a forward pass broke off."""
        line = ""
        while trace is not None:
            name = trace.tb_frame.f_code.co_filename
            if not name.startswith(OURS):
                line = f"{Path(name).name}:{trace.tb_lineno}"
            trace = trace.tb_next
        path = next((path for path in reversed(self.within) if path), "")
        return ", ".join(filter(None, (f"module `{path}`" if path else "", line)))


def words_of(tensor: torch.Tensor) -> float:
    """Return the size of a tensor in elements of the traced precision (fp32)."""
    return float(tensor.numel() * tensor.element_size() / 4)


def counted(
    func: Any, args: Sequence[Any], kwargs: Any, out: Any, tensors: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor], place: str,
) -> Counted:  # fmt: skip
    """Return the cost of one call: FLOP as torch counts them, elements read and written."""
    name = func._schema.name.partition("::")[2]
    plain = name.rstrip("_")
    largest = max(results, key=torch.Tensor.numel, default=None)
    if largest is None:
        return Counted(name, place, ())
    formula = flop_registry.get(func.overloadpacket)
    flop = float(formula(*args, **kwargs, out_val=out)) if formula else 0.0
    inputs = [t for t in tensors if t.dim()]
    x, y = sum(map(words_of, inputs)), sum(map(words_of, results))
    if plain in PARTLY:  # of a table, what is looked up
        x = min(x, y + max((words_of(t) for t in inputs[1:]), default=0.0))
        if plain == "_embedding_bag":
            x = sum(map(words_of, inputs[1:2])) * largest.shape[-1]
    if plain in FFT:
        size = math.prod(inputs[0].shape[axis] for axis in args[1])
        flop = 5.0 * max(inputs[0].numel(), largest.numel()) * math.log2(max(2, size))
    linear = plain in LINEAR
    moves = x + y
    back = 2 * (x + y) if formula else x + y if linear else 2 * x + y
    pointwise = torch.Tag.pointwise in func.tags and all(t.shape == largest.shape for t in inputs)
    return Counted(name, place, tuple(largest.shape), flop, moves, back, not linear, 0.0, pointwise)


def recurrent(name: str, x: torch.Tensor, matrices: Sequence[torch.Tensor], out: torch.Tensor,
              place: str) -> Counted:  # fmt: skip
    """Return the cost of a recurrent network: matrices at every step, gates between them."""
    wide = [t for t in matrices if t.dim() == 2]
    steps = x.numel() // x.shape[-1]  # of all samples
    gates = float(sum(t.shape[0] for t in wide)) * steps
    sequential_steps = max(1, steps // BATCH) * max(1, len(wide) // 2)
    return Counted(
        name, place, tuple(out.shape), 2.0 * steps * sum(t.numel() for t in wide), 1.5 * gates,
        2.5 * gates, True, gates, False, sequential_steps,
    )  # fmt: skip

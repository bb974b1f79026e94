"""What each call of a traced module costs, and where in the module and its source it stands."""

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
# what only moves data or adds it up: its backward pass needs nothing of the forward pass
LINEAR = (
    "add", "sub", "rsub", "neg", "clone", "copy", "_to_copy", "cat", "stack", "sum", "mean", "roll",
    "flip", "index", "index_select", "index_add", "index_put", "gather", "scatter", "scatter_add",
    "constant_pad_nd", "repeat", "tril", "triu", "im2col", "col2im", "pixel_shuffle", "fill",
    "reflection_pad2d", "replication_pad2d", "slice_scatter", "select_scatter", "embedding",
    "_embedding_bag", "cumsum", "expand_copy", "view_copy", "_fft_r2c", "_fft_c2r", "_fft_c2c",
)  # fmt: skip
PARTLY = ("embedding", "_embedding_bag", "index", "index_select", "gather")  # read by place
FFT = ("_fft_r2c", "_fft_c2r", "_fft_c2c")


class Places:
    """The module whose forward pass is under way, and the line of its owner's source."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.names = {id(one): name for name, one in module.named_modules()}
        self.within: list[str] = []

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Every module tells when its forward pass begins and ends."""
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

    def here(self) -> str:
        """`body.*.attend, zoo.py:62`: numbers of modules left out, so that equal blocks agree."""
        path = re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", next(reversed(self.within), ""))
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else ""
        return re.sub(r"[^\w.*,:/ -]", "_", ", ".join(filter(None, (path, line)))[:200])

    def failed(self, trace: TracebackType | None) -> str:
        """Where a forward pass broke off."""
        line = ""
        while trace is not None:
            name = trace.tb_frame.f_code.co_filename
            if not name.startswith(OURS):
                line = f"{Path(name).name}:{trace.tb_lineno}"
            trace = trace.tb_next
        path = next((path for path in reversed(self.within) if path), "")
        return ", ".join(filter(None, (f"module `{path}`" if path else "", line)))


def words_of(tensor: torch.Tensor) -> float:
    """Elements of a tensor, one of the traced precision (fp32) being one."""
    return float(tensor.numel() * tensor.element_size() / 4)


def counted(
    func: Any, args: Sequence[Any], kwargs: Any, out: Any, tensors: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor], at: str,
) -> Counted:  # fmt: skip
    """What one call costs: FLOP as torch counts them, elements read and written."""
    name = func._schema.name.partition("::")[2]
    plain = name.rstrip("_")
    made = max(results, key=torch.Tensor.numel, default=None)
    if made is None:
        return Counted(name, at, ())
    formula = flop_registry.get(func.overloadpacket)
    flop = float(formula(*args, **kwargs, out_val=out)) if formula else 0.0
    given = [t for t in tensors if t.dim()]
    x, y = sum(map(words_of, given)), sum(map(words_of, results))
    if plain in PARTLY:  # of a table, what is looked up
        x = min(x, y + max((words_of(t) for t in given[1:]), default=0.0))
        if plain == "_embedding_bag":
            x = sum(map(words_of, given[1:2])) * made.shape[-1]
    if plain in FFT:
        size = math.prod(given[0].shape[axis] for axis in args[1])
        flop = 5.0 * max(given[0].numel(), made.numel()) * math.log2(max(2, size))
    linear = plain in LINEAR
    moves = x + y
    back = 2 * (x + y) if formula else x + y if linear else 2 * x + y
    each = torch.Tag.pointwise in func.tags and all(t.shape == made.shape for t in given)
    return Counted(name, at, tuple(made.shape), flop, moves, back, not linear, 0.0, each)


def recurrent(name: str, x: torch.Tensor, matrices: Sequence[torch.Tensor], out: torch.Tensor,
              at: str) -> Counted:  # fmt: skip
    """A recurrent network: its matrices at every step, and the gates between them."""
    wide = [t for t in matrices if t.dim() == 2]
    steps = x.numel() // x.shape[-1]  # of all samples
    gates = float(sum(t.shape[0] for t in wide)) * steps
    often = max(1, steps // BATCH) * max(1, len(wide) // 2)
    return Counted(
        name, at, tuple(out.shape), 2.0 * steps * sum(t.numel() for t in wide), 1.5 * gates,
        2.5 * gates, True, gates, False, often,
    )  # fmt: skip

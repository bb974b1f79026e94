"""The part of a model that is trained: all, adapters beside frozen weights, or nothing.

    full                 every weight
    lora:16              two matrices of rank 16 beside each matrix of attention and MLPs
    lora:16:attention    beside those of attention alone; or of `mlp`, or that make q, k and v
    forward              no gradient is taken: inference

A frozen weight has no gradient, hence no product that makes one, no exchange and no state of the
optimizer; the gradient of what goes in still passes through it [hu2021, §4.1].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from oracle.models.layers import Row
from oracle.spec.document import refusal

PARTS = ("attention", "mlp")
FORMS = "full, forward, lora:16, or lora:16:attention, lora:16:qkv, lora:16:mlp"


@dataclass(frozen=True)
class Training:
    """The part of a model that is trained."""

    text: str = "full"
    rank: int = 0  # of adapters; 0: none
    parts: tuple[str, ...] = PARTS  # whose matrices have them
    ahead: bool = False  # and of these only the first, that take what the layer is given
    forward: bool = False  # nothing is trained

    @property
    def full(self) -> bool:
        """Whether every weight is trained."""
        return not (self.rank or self.forward)

    def adapted(self, row: Row) -> bool:
        """Whether a matrix has an adapter beside it."""
        roles = ("column",) if self.ahead else ("column", "row")
        wide = row.work == "gemm" and row.role in roles and not row.experts
        return bool(self.rank) and wide and row.kind in self.parts


FULL = Training()


def training(text: str) -> Training:
    """Read a training from text; raise a SpecError that lists the forms."""
    if text == "full":
        return FULL
    if text == "forward":
        return Training(text, forward=True)
    match = re.fullmatch(r"lora:([1-9]\d{0,4})(?::(attention|qkv|mlp))?", text)
    if match is None:
        raise refusal("options", f"no training is called `{text[:40]}`", FORMS, "E110")
    parts = {None: PARTS, "qkv": ("attention",)}.get(match[2], (match[2],))
    return Training(text, int(match[1]), parts, match[2] == "qkv")


def frozen(row: Row) -> Row:
    """Return the row with fixed weights: no product needs its input for their gradient."""
    linear = row.work in ("gemm", "conv")
    return replace(row, frozen=True, needs=row.needs.replace("x", "") if linear else row.needs)


def adapters(row: Row, rank: int) -> Iterator[Row]:
    """Yield the rows beside a frozen matrix: down to the rank, up again, and their sum.

    The matrix down from a cut input makes parts of a sum, and the matrix up to a cut output takes
    all of the sum, as the frozen matrix does [NVIDIA/NeMo, nemo/collections/llm/peft]. The output
    is scaled and added, and its gradient is added to the gradient of the input.
    """
    narrow, cut = replace(row.made, channels=rank), row.role == "row"
    back = 1 + 3 * row.given.size / row.made.size
    yield Row(f"{row.name}.a", row.kind, "gemm", row.given, narrow, needs="x",
              role="row" if cut else "", weights=row.given.channels * rank,
              adapter=True)  # fmt: skip
    yield Row(f"{row.name}.b", row.kind, "gemm", narrow, row.made, needs="x",
              role="" if cut else "column", sequence=cut and row.made.tokens,
              weights=rank * row.made.channels, adapter=True)  # fmt: skip
    yield Row(f"{row.name}.sum", row.kind, "stream", row.made, row.made, pieces=2,
              role="" if cut else "heads", sequence=cut and row.made.tokens,
              reads=(2, 3), rereads=(1, back))  # fmt: skip

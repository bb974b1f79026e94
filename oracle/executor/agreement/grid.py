"""An allreduce over a grid: reduce-scatter along rows, allreduce along columns, rows again."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.executor.agreement.links import Links
from oracle.executor.parts import deal
from oracle.network.collectives.grid import square


def side(name: str, ranks: int) -> int:
    """The length of a row by `torus2d:8`, or as near to square as can be; 0 where none fits."""
    bare, _, number = name.partition(":")
    row = int(number) if number else square(ranks)
    return row if bare == "torus2d" and 1 < row < ranks and ranks % row == 0 else 0


def over_grid(buffer: Tensor, row: int, links: Links) -> Tensor:
    """Sum in place, ranks in rows of so many."""
    place, size = links.group.place, links.group.size
    flat = buffer.view(-1)
    across = [place // row * row + k for k in range(row)]
    down = list(range(place % row, size, row))
    parts = deal(flat.numel(), row)
    a, b = _reduce_scatter(flat, parts, across, links)
    mine = flat[a:b]
    pieces = deal(mine.numel(), len(down))
    _reduce_scatter(mine, pieces, down, links)
    _allgather(mine, pieces, down, links)
    _allgather(flat, parts, across, links)
    return buffer


def _reduce_scatter(
    flat: Tensor, parts: list[tuple[int, int]], ring: list[int], links: Links
) -> tuple[int, int]:
    """Sum parts round a ring; the part that ends here whole is that after the own place."""
    at, n = ring.index(links.group.place), len(ring)
    for step in range(n - 1):
        a, b = parts[(at - step) % n]
        c, d = parts[(at - step - 1) % n]
        flat[c:d] += links.swap(
            flat[a:b], ring[(at + 1) % n], torch.empty_like(flat[c:d]), ring[at - 1]
        )
    return parts[(at + 1) % n]


def _allgather(flat: Tensor, parts: list[tuple[int, int]], ring: list[int], links: Links) -> None:
    at, n = ring.index(links.group.place), len(ring)
    for step in range(n - 1):
        a, b = parts[(at + 1 - step) % n]
        c, d = parts[(at - step) % n]
        flat[c:d] = links.swap(
            flat[a:b], ring[(at + 1) % n], torch.empty_like(flat[c:d]), ring[at - 1]
        )

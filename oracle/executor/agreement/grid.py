"""An allreduce over a grid: reduce-scatter along rows, allreduce along columns, rows again."""

from __future__ import annotations

import torch
from torch import Tensor

from oracle.executor.agreement.links import Links
from oracle.executor.local.parts import deal
from oracle.network.collectives.grid import square


def side(name: str, ranks: int) -> int:
    """The length of a row by `torus2d:8`, or as near to square as can be; 0 where none fits."""
    bare, _, number = name.partition(":")
    row = int(number) if number else square(ranks)
    return row if bare == "torus2d" and 1 < row < ranks and ranks % row == 0 else 0


def over_grid(buffer: Tensor, row: int, links: Links) -> Tensor:
    """Sum a buffer in place over ranks that stand in rows of `row`."""
    place, size = links.group.place, links.group.size
    flat = buffer.view(-1)
    across = [place // row * row + k for k in range(row)]
    down = list(range(place % row, size, row))
    parts = deal(flat.numel(), row)
    a, b = _reduce_scatter(flat, parts, across, links)
    part = flat[a:b]
    pieces = deal(part.numel(), len(down))
    _reduce_scatter(part, pieces, down, links)
    _allgather(part, pieces, down, links)
    _allgather(flat, parts, across, links)
    return buffer


def _reduce_scatter(
    flat: Tensor, parts: list[tuple[int, int]], ring: list[int], links: Links
) -> tuple[int, int]:
    """Sum parts round a ring; the part after this rank's place ends complete here."""
    position, n = ring.index(links.group.place), len(ring)
    for step in range(n - 1):
        a, b = parts[(position - step) % n]
        c, d = parts[(position - step - 1) % n]
        flat[c:d] += links.swap(
            flat[a:b], ring[(position + 1) % n], torch.empty_like(flat[c:d]), ring[position - 1]
        )
    return parts[(position + 1) % n]


def _allgather(flat: Tensor, parts: list[tuple[int, int]], ring: list[int], links: Links) -> None:
    position, n = ring.index(links.group.place), len(ring)
    for step in range(n - 1):
        a, b = parts[(position + 1 - step) % n]
        c, d = parts[(position - step) % n]
        flat[c:d] = links.swap(
            flat[a:b], ring[(position + 1) % n], torch.empty_like(flat[c:d]), ring[position - 1]
        )

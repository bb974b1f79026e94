"""One workspace shared out among all kernels of a step: which of them get how much [oyama2018].

    min Σ seconds[k, c] x[k, c]   where each kernel k takes one of its ways c, Σ_c x[k, c] = 1,
                                  and Σ bytes[k, c] x[k, c] ≤ all there is

Ways of a kernel are those that no other beats in both bytes and seconds. Kernels that have the
same ways are one, taken so many times. The program is solved exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from oracle.kernels.divisions import Menu
from oracle.kernels.whole_numbers import solved
from oracle.models.model import Floats

Ways: TypeAlias = tuple[tuple[float, float], ...]  # (bytes, seconds), fewest bytes first
GAP = 1e-9  # of the best there may be, relative


def limits(kernels: Sequence[tuple[Menu, Floats]], total: float) -> list[Floats]:
    """Bytes that each kernel may take, (kinds of plans, rows) for each menu of rows.

    Beside a menu stands how often each of its rows is there; copies of a row do alike.
    """
    spread = [_ways(menu, copies) for menu, copies in kernels]
    kinds = max((len(each) for each in spread), default=1)
    found = [np.zeros((kinds, len(copies))) for _, copies in kernels]
    for kind in range(kinds):
        where: dict[Ways, list[tuple[int, int]]] = {}
        for k, each in enumerate(spread):
            for row, ways in enumerate(each[min(kind, len(each) - 1)]):
                if ways:
                    where.setdefault(ways, []).append((k, row))
        counts = tuple(map(len, where.values()))
        for at, taken in zip(where.values(), least(tuple(where), counts, total), strict=True):
            for (k, row), room in zip(at, taken, strict=True):
                found[k][kind, row] = room / kernels[k][1][row]
    return found


def _ways(menu: Menu, copies: Floats) -> list[list[Ways]]:
    """Of each kind of plans and row, all copies together: what no other way beats."""
    rooms = np.stack(np.broadcast_arrays(*(np.atleast_2d(room) for room in menu.rooms())))
    rooms = np.broadcast_to(rooms, np.broadcast_shapes(rooms.shape, (1, 1, len(copies))))
    taken = [menu.best(room) for room in rooms]
    size = np.broadcast_shapes(rooms.shape[1:], *(each.seconds.shape for each in taken))
    seconds, most = (
        np.stack([np.broadcast_to(getattr(each, name), size) for each in taken])
        for name in ("seconds", "room")
    )
    return [
        [pareto(number * most[:, kind, row], number * seconds[:, kind, row]) if number else ()
         for row, number in enumerate(copies)]
        for kind in range(size[0])
    ]  # fmt: skip


def pareto(rooms: Floats, seconds: Floats) -> Ways:
    """Ways that are faster than all that take as little."""
    found: list[tuple[float, float]] = []
    for at in np.lexsort((seconds, rooms)):
        if not found or seconds[at] < found[-1][1]:
            found.append((float(rooms[at]), float(seconds[at])))
    return tuple(found)


@lru_cache(4096)
def least(
    kernels: tuple[Ways, ...], counts: tuple[int, ...], total: float
) -> tuple[tuple[float, ...], ...]:
    """Bytes of each of so many kernels of each kind, so that all together take least seconds."""
    fastest = sum(ways[-1][0] * count for ways, count in zip(kernels, counts, strict=True))
    if fastest <= total:
        return tuple((ways[-1][0],) * n for ways, n in zip(kernels, counts, strict=True))
    from scipy.optimize import Bounds, LinearConstraint
    from scipy.sparse import csr_array

    rooms, seconds = np.array([way for ways in kernels for way in ways]).T
    owner = np.repeat(np.arange(len(kernels)), [len(ways) for ways in kernels])
    members = csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))))
    there_is = np.array(counts, float)
    found = solved(
        seconds / seconds.max(), integrality=np.ones(len(owner)),
        bounds=Bounds(0, there_is[owner]), options={"mip_rel_gap": GAP},
        constraints=[LinearConstraint(members, there_is, there_is),
                     LinearConstraint(rooms[None] / max(total, 1.0), -np.inf, 1.0)],
    )  # fmt: skip
    if found.x is None:
        raise ArithmeticError(f"workspace was not shared out: {found.message}")
    number = np.rint(found.x).astype(int)
    return tuple(
        tuple(np.repeat(rooms[owner == k], number[owner == k]).tolist())
        for k in range(len(kernels))
    )

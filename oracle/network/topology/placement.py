"""Where the ranks of a job sit: device numbers by rank, for `RankGroups`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.network.arrays import Ints


def block(devices: int) -> Ints:
    """Consecutive ranks fill a node, then the next: rank r on device r."""
    return np.arange(devices)


def round_robin(devices: int, unit: int) -> Ints:
    """Consecutive ranks go to consecutive nodes of `unit` devices, and round again."""
    return np.arange(devices).reshape(-1, unit).T.ravel()


def by_axis(sizes: Sequence[int], order: Sequence[int]) -> Ints:
    """Ranks of a mesh (sizes outermost first) laid out with its axes in another order.

    `order` lists the axes from the farthest apart to the closest.
    """
    shape = tuple(sizes[axis] for axis in order)
    places = np.arange(int(np.prod(shape))).reshape(shape)
    return np.transpose(places, np.argsort(np.asarray(order))).ravel()

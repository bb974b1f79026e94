"""Where the ranks of a job sit: device numbers by rank, for `Groups(pattern, devices, device)`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.network.topology.fabric import Ids


def block(devices: int) -> Ids:
    """Consecutive ranks fill a node, then the next: rank r on device r."""
    return np.arange(devices)


def round_robin(devices: int, unit: int) -> Ids:
    """Consecutive ranks go to consecutive nodes of `unit` devices, and round again."""
    return np.arange(devices).reshape(-1, unit).T.ravel()


def by_axis(sizes: Sequence[int], order: Sequence[int]) -> Ids:
    """Ranks of a mesh (sizes outermost first) laid out with its axes in another order.

    `order` lists the axes from the farthest apart to the closest.
    """
    shape = tuple(sizes[axis] for axis in order)
    places = np.arange(int(np.prod(shape))).reshape(shape)
    return np.transpose(places, np.argsort(np.asarray(order))).ravel()

"""Seconds of writing a training's state and of reading it back, to shared files or to disks.

    T = max( bytes / min(BW, N BW_node),  fullest / BW_node,  files o / MD )      shared files
    T = fullest / rate                                                  a node's own disks

N nodes are at it at once: all that hold a part of their own, or the one of rank 0. The fullest of
them has the largest part, an even share where nothing else is said.
"""

from __future__ import annotations

import numpy as np

from oracle.spec.storage import SharedFiles
from oracle.storage import file_system
from oracle.storage.arrays import Floats, Number
from oracle.storage.unknown import Machine


def seconds(
    machine: Machine, nbytes: Number, nodes: Number, files: Number = 1.0, to: str = "shared",
    fullest: Number = 0.0,
) -> Floats | None:  # fmt: skip
    """Seconds in which so many nodes write these bytes together; None where they have no such."""
    each = np.maximum(fullest, np.asarray(nbytes) / nodes)
    if to == "local":
        if machine.local is None or machine.local.write is None:
            return None
        return np.asarray(each / machine.local.write)
    shared = machine.shared
    if shared is None or (least := _least(shared, each, files)) is None:
        return None
    return np.maximum(file_system.write(shared, nodes, nbytes), least)


def loaded(
    machine: Machine, nbytes: Number, nodes: Number, files: Number = 1.0, to: str = "shared",
    fullest: Number = 0.0,
) -> Floats | None:  # fmt: skip
    """Seconds in which so many nodes read these bytes together; None where they have no such."""
    each = np.maximum(fullest, np.asarray(nbytes) / nodes)
    if to == "local":
        return None if machine.local is None else np.asarray(each / machine.local.read)
    shared = machine.shared
    if shared is None or (least := _least(shared, each, files)) is None:
        return None
    return np.maximum(np.asarray(nbytes) / shared.bandwidth, least)


def _least(shared: SharedFiles, each: Floats, files: Number) -> Floats | None:
    """Seconds that a node's own port and the naming of all files take, either way."""
    if shared.metadata is None or shared.per_node is None:
        return None
    named = files * file_system.OPERATIONS[shared.kind] / shared.metadata
    return np.maximum(each / shared.per_node, named)

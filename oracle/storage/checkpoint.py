"""Seconds of writing a training's state and of reading it back, to shared files or to disks.

    T = max( bytes / min(BW, N BW_node),  fullest / BW_node,  files o / MD )      shared files
    T = fullest / rate                                                  a node's own disks

N nodes write or read at once: all that hold a part of their own, or the node of rank 0 alone. The
fullest node has the largest part, an even share where nothing else is said.
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
    """Return the seconds in which all nodes write these bytes together; None without storage."""
    part_bytes = np.maximum(fullest, np.asarray(nbytes) / nodes)
    if to == "local":
        if machine.local is None or machine.local.write is None:
            return None
        return np.asarray(part_bytes / machine.local.write)
    shared = machine.shared
    if shared is None or (floor := _floor(shared, part_bytes, files)) is None:
        return None
    return np.maximum(file_system.write(shared, nodes, nbytes), floor)


def loaded(
    machine: Machine, nbytes: Number, nodes: Number, files: Number = 1.0, to: str = "shared",
    fullest: Number = 0.0,
) -> Floats | None:  # fmt: skip
    """Return the seconds in which all nodes read these bytes together; None without storage."""
    part_bytes = np.maximum(fullest, np.asarray(nbytes) / nodes)
    if to == "local":
        return None if machine.local is None else np.asarray(part_bytes / machine.local.read)
    shared = machine.shared
    if shared is None or (floor := _floor(shared, part_bytes, files)) is None:
        return None
    return np.maximum(np.asarray(nbytes) / shared.bandwidth, floor)


def _floor(shared: SharedFiles, part_bytes: Floats, files: Number) -> Floats | None:
    """The seconds that a node's own port and the naming of all files take, either way."""
    if shared.metadata is None or shared.per_node is None:
        return None
    named = files * file_system.OPERATIONS[shared.kind] / shared.metadata
    return np.maximum(part_bytes / shared.per_node, named)

"""Seconds of writing a training's state, to shared files or to the disks of its nodes.

    T = max( bytes / min(BW_write, N BW_node),  files o / MD )           shared files
    T = bytes / (N write)                                                a node's own disks

N nodes write at once: all that hold a part of their own, or the one of rank 0.
"""

from __future__ import annotations

import numpy as np

from oracle.storage import file_system
from oracle.storage.arrays import Floats, Number
from oracle.storage.unknown import Machine


def seconds(
    machine: Machine, nbytes: Number, nodes: Number, files: Number = 1.0, to: str = "shared"
) -> Floats | None:
    """Seconds in which so many nodes write these bytes together; None where they have no such."""
    if to == "local":
        if machine.local is None or machine.local.write is None:
            return None
        return np.asarray(nbytes / (nodes * machine.local.write))
    if machine.shared is None or machine.shared.metadata is None:
        return None
    named = files * file_system.OPERATIONS[machine.shared.kind] / machine.shared.metadata
    return np.maximum(file_system.write(machine.shared, nodes, nbytes), named)

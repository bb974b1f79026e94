"""The disks of a node: seconds to read, to fill them once, and what does not fit.

    T_read  = max( b / read,  q t_open / w )
    T_stage = max( V / min(BW, N BW_node),  V' / write,  F o / MD,
                   (F t_open + V / BW_stream) / (N w),  (V' - V / N) / BW_net )

where V' = V / N a node where each keeps its own part, or V where each keeps all: then every byte
is read from the shared files once, and passed on from node to node while others are read.
"""

from __future__ import annotations

import numpy as np

from oracle.spec.storage import Disk, SharedFiles
from oracle.storage import file_system
from oracle.storage.arrays import Floats, Number, Terms, longest


def read(disk: Disk, nbytes: Number, files: Number, threads: Number) -> Terms:
    """The seconds in which one node reads so many bytes in so many files."""
    assert disk.open is not None
    return {"bandwidth": nbytes / disk.read, "latency": files * disk.open / threads}


def staging(
    shared: SharedFiles, disk: Disk, nodes: Number, size: float, files: float, kept_bytes: Number,
    threads: Number, ports: float,
) -> Floats:  # fmt: skip
    """The seconds until each node keeps so many bytes of a data set of this size on its disks."""
    assert disk.write is not None
    read_once = file_system.read(shared, nodes, size / nodes, files / nodes, threads)
    passed_on = np.maximum(kept_bytes - size / nodes, 0.0) / ports
    return longest({**read_once, "write": kept_bytes / disk.write, "network": passed_on})


def short(disk: Disk, kept_bytes: Number) -> Floats:
    """The bytes that a node's disks lack; 0 where the spec doesn't say how much they hold."""
    room = np.inf if disk.capacity is None else disk.capacity
    return np.maximum(np.asarray(kept_bytes, float) - room, 0.0)

"""A file system or object store that all nodes share: seconds to read, to list, to write.

    T_read = max( N b / min(BW, N BW_node),  N q o / MD,  (q t_open + b / BW_stream) / w )

which are bandwidth, metadata and latency: o operations on each file, w threads of a node, each
of which has one file open at a time. BW_node is reached by so many reads at once as `streams`
says, BW_stream is that of one.

    T_list = R max(directories, F / ENTRIES) / MD          R processes that each list all of them

A process that lists a directory learns the names of its files, of so many with one operation. An
ImageNet of 2,002 directories, listed by 64 processes, was seen to begin with 128 thousand stat and
readdir [zhang2018]: one a directory and process. Who looks at every file too takes R F / MD more.
"""

from __future__ import annotations

import numpy as np

from oracle.spec.storage import SharedFiles
from oracle.storage.arrays import Floats, Number, Terms

OPERATIONS = {"files": 3, "objects": 1}  # of one file: stat, open, close; of one object: get
ENTRIES = 1000  # names that a directory says at once: 32 KiB of them, as the C library asks


def stream(shared: SharedFiles) -> float:
    """B/s of one read."""
    assert shared.per_node is not None
    return shared.per_node / (shared.streams or 1)


def node_bandwidth(shared: SharedFiles, threads: Number) -> Floats:
    """B/s of a node that reads with so many threads."""
    assert shared.per_node is not None
    return np.minimum(shared.per_node, np.asarray(threads) * stream(shared))


def read(
    shared: SharedFiles, nodes: Number, nbytes: Number, files: Number, threads: Number,
    slowest: Number = 1.0,
) -> Terms:  # fmt: skip
    """Seconds in which each of the nodes reads so many bytes of its own in so many files.

    One of them has so many times more bytes: what all share serves the sum, whoever has the most.
    """
    assert shared.metadata is not None
    assert shared.open is not None
    alone = slowest * nbytes / node_bandwidth(shared, threads)
    return {
        "bandwidth": np.maximum(nodes * nbytes / shared.bandwidth, alone),
        "metadata": nodes * files * OPERATIONS[shared.kind] / shared.metadata,
        "latency": (files * shared.open + slowest * nbytes / stream(shared)) / threads,
    }


def listing(
    shared: SharedFiles, processes: Number, files: float, directories: float, look: bool = False
) -> Number:
    """Seconds in which so many processes list all directories; to `look`, at every file too."""
    assert shared.metadata is not None
    if shared.kind == "objects":
        return 0.0 * processes
    operations = max(directories, files / ENTRIES) + (files if look else 0.0)
    return processes * operations / shared.metadata


def write(shared: SharedFiles, nodes: Number, nbytes: Number) -> Floats:
    """Seconds in which so many nodes write these bytes together."""
    assert shared.write is not None
    assert shared.per_node is not None
    return np.asarray(nbytes / np.minimum(shared.write, nodes * shared.per_node))

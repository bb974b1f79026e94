"""From the disks of all nodes, each of which keeps a part and serves it to all others.

    T_read = b' (1/N / read + (1 - 1/N) max(1 / read, 1 / BW_net))
           + q (1 - 1/N) (2 α + t_open) / w          b' = b / compression, q where it is not local
    once     each node copies its part, V/N, and packs it
    room     V / (N compression) on each node

The store of FanStore [zhang2018], of which each file has one copy. Names and places of all files
lie in every node's memory: nobody asks a metadata server. Samples are packed in the store, and
cores unpack them.
"""

from __future__ import annotations

import numpy as np

from oracle.storage import disk
from oracle.storage.question import Question
from oracle.storage.reading import NO_DISKS, Reading, impossible, read_ahead

WHERE = "all nodes' disks"
EFFORT = 3
STORE = "local"


def seconds(question: Question) -> Reading:
    machine, data = question.machine, question.samples
    if machine.local is None or machine.local.open is None:
        return impossible(NO_DISKS)
    nodes, threads, files = question.nodes, question.threads(), question.files()
    readers = question.reading()  # nodes of the store are more, where not all of them read
    away, packed = 1 - 1 / nodes, data.compression
    nbytes = question.slowest() * question.nbytes() / packed
    sent = nbytes * away / machine.ports
    # a node's disks serve what its share of all samples is asked for
    served = nbytes * readers / nodes * away / machine.local.read
    near = nbytes / nodes / machine.local.read
    lookup = files * away * (2 * machine.latency + machine.local.open) / threads
    kept_bytes = data.size / nodes / packed
    once = 0.0 * nodes
    if machine.shared is not None:
        once = disk.staging(machine.shared, machine.local, nodes, data.size, data.files, kept_bytes,
                            threads, machine.ports)  # fmt: skip
    slow = near + np.maximum(served, sent) + lookup
    terms = {"bandwidth": near + served, "network": sent, "latency": lookup}
    return read_ahead(question, terms, seconds=slow, packed=packed > 1, network=sent,
                      staging=once, short=disk.short(machine.local, kept_bytes))  # fmt: skip

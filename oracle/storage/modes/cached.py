"""From the shared files, but for what is still in a node's memory from the epochs before.

    T_read = (1 - h) T_shared + h b / BW_memory         h of `oracle.storage.cache`
    first    T_shared

A share of samples that others had an epoch ago is not in memory.
"""

from __future__ import annotations

import numpy as np

from oracle.storage import cache, file_system
from oracle.storage.arrays import longest
from oracle.storage.question import Question
from oracle.storage.reading import NO_FILES, Reading, impossible, read_ahead

WHERE = "memory, else the shared file system"
EFFORT = 1
STORE = "shared"


def seconds(question: Question) -> Reading:
    machine, data = question.machine, question.samples
    if machine.shared is None:
        return impossible(NO_FILES)
    assert machine.host.bandwidth is not None
    nodes, nbytes, how = question.reading(), question.nbytes(), question.shuffle
    missed = file_system.read(machine.shared, nodes, nbytes, question.files(), question.threads(),
                              question.slowest())  # fmt: skip
    from_memory = question.slowest() * nbytes / machine.host.bandwidth
    visited = how.kept(data.size, nodes)
    hits = cache.hits(machine.cache, visited) * (1 - how.exchanged(nodes, 1.0))
    terms = {name: took * (1 - hits) for name, took in missed.items()} | {
        "memory": from_memory * hits
    }
    slow, share = longest(missed), np.asarray(nbytes * question.steps / visited)
    listed = file_system.listing(machine.shared, question.groups, data.files, data.directories)
    return read_ahead(question, terms, missed, seconds=slow * (1 - hits) + from_memory * hits,
                      full=from_memory, left=1 - share, listing=listed)  # fmt: skip

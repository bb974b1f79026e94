"""Each rank reads the part of a sample that it needs; later epochs come from all nodes' memory.

    first    T_shared of b/parts bytes a rank and as many opens as there are parts: all nodes read,
             where otherwise one rank of each group would [arXiv 2007.12856]
    T_read = max( b / BW_memory,  b (1 - 1/N) / BW_net )        where V/N fits in a node's memory:
                                                                samples are dealt anew each epoch
    once     T_list of `oracle.storage.file_system`

Where they do not fit in memory every epoch is as the first. With local shuffling nothing is dealt.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oracle.storage import file_system
from oracle.storage.arrays import longest
from oracle.storage.question import Question
from oracle.storage.reading import NO_FILES, Reading, impossible, read_ahead

WHERE = "all nodes' memory"
EFFORT = 4
STORE = "shared"


def seconds(question: Question) -> Reading:
    machine, data = question.machine, question.samples
    if machine.shared is None:
        return impossible(NO_FILES)
    if not data.parts:
        return impossible("no part of a sample can be read alone in files of this format")
    assert machine.host.bandwidth is not None
    nodes, nbytes = question.reading(slabs=True), question.nbytes(slabs=True)
    first = file_system.read(machine.shared, nodes, nbytes, question.files(slabs=True),
                             question.threads(slabs=True),
                             question.slowest(slabs=True))  # fmt: skip
    fits = data.size / nodes <= machine.cache
    how = question.shuffle
    nbytes = nbytes * question.slowest(slabs=True)
    moved = nbytes * np.where(how.everywhere, 1 - 1 / nodes, how.share * (nodes > 1))
    moved = np.where(fits, moved / machine.ports, 0.0)
    terms = {name: np.where(fits, 0.0, took) for name, took in first.items()}
    terms |= {"memory": np.where(fits, nbytes / machine.host.bandwidth, 0.0), "network": moved}
    ranks = question.groups * question.parts
    listed = file_system.listing(machine.shared, ranks, data.files, data.directories)
    answer = read_ahead(question, terms, first, slabs=True, seconds=longest(terms),
                        network=moved, listing=listed)  # fmt: skip
    uncut = np.asarray(question.parts) <= 1
    return replace(answer, barred=uncut, bar="every rank needs whole samples")

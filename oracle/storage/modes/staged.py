"""From a node's own disks, to which its samples are copied once.

    T_read = max( b / read,  q t_open / w )
    once     T_stage of `oracle.storage.disk`: all samples on each node where any node may need
             any, or its own part with local shuffling, of which a share is exchanged
    room     V or V/N on each node

Where nobody says what the shared files are, staging is not counted.
"""

from __future__ import annotations

from oracle.storage import disk
from oracle.storage.question import Question
from oracle.storage.reading import NO_DISKS, Reading, impossible, read_ahead

WHERE = "each node's own disks"
EFFORT = 2
STORE = "local"


def seconds(question: Question) -> Reading:
    machine, data = question.machine, question.samples
    if machine.local is None:
        return impossible(NO_DISKS)
    nodes, threads, size = question.reading(), question.threads(), data.size
    kept_bytes = question.shuffle.kept(size, nodes)
    slowest_bytes = question.slowest() * question.nbytes()
    terms = disk.read(machine.local, slowest_bytes, question.files(), threads)
    moved = question.shuffle.exchanged(nodes, question.nbytes()) / machine.ports
    once = 0.0 * nodes
    if machine.shared is not None:
        once = disk.staging(machine.shared, machine.local, nodes, size, data.files, kept_bytes,
                            threads, machine.ports)  # fmt: skip
    return read_ahead(question, {**terms, "network": moved}, network=moved, staging=once,
                      short=disk.short(machine.local, kept_bytes))  # fmt: skip

"""Ways to get samples, one file each: what a step of many plans takes to read.

shared    from the shared files, each time
staged    from a node's own disks, copied there once
cached    from the shared files, and from memory what is still there
striped   from the disks of all nodes, each of which keeps a part
spatial   each rank the part of a sample that it needs, then from the memory of all nodes

A module's `seconds(question)` answers for all plans of a question; WHERE says in words where
samples are, STORE which part of a system's storage they come from, EFFORT how much a mode asks of
whoever sets it up, next to the others: of modes that are as fast the one of the least is taken. A
new file beside these is found by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from oracle.storage.question import Question
from oracle.storage.reading import Reading


@dataclass(frozen=True, eq=False)
class Mode:
    """One way to get samples."""

    name: str
    where: str
    store: str
    effort: int
    seconds: Callable[[Question], Reading]

    def __call__(self, question: Question) -> Reading:
        return self.seconds(question)


_modes = [
    Mode(file.name, module.WHERE, module.STORE, module.EFFORT, module.seconds)
    for file in iter_modules(__path__)
    for module in [import_module(f"{__name__}.{file.name}")]
]
MODES = {mode.name: mode for mode in sorted(_modes, key=lambda mode: mode.effort)}

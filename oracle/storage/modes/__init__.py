"""Ways to get samples, one file each: what a step of many plans takes to read.

shared    from the shared files, each time
staged    from a node's own disks, copied there once
cached    from the shared files, and from memory what is still there
striped   from the disks of all nodes, each of which keeps a part
spatial   each rank the part of a sample that it needs, then from the memory of all nodes

A module's `seconds(question)` answers for all plans of a question; its docstring's first line says
what it does. A new file beside these is found by itself.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from oracle.storage.question import Question
from oracle.storage.reading import Reading

MODES: dict[str, Callable[[Question], Reading]] = {
    module.name: import_module(f"{__name__}.{module.name}").seconds
    for module in iter_modules(__path__)
}

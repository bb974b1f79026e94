"""Every kind of search in this folder, by its lower-case name; a new file needs no registration.

base       stages of trials, and the common part of every kind
random     trials drawn at random
grid       trials at every point of a grid
halving    all trials for a while, the best of them for longer, and so on
genetic    generations of trials, each bred from the one before
ensemble   members, all of which are needed
transfer   one parent, then children that start from its weights
"""

from importlib import import_module
from pkgutil import iter_modules

from oracle.run.searches.base import Search, Sought, Stage, Trials, searches

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Search", "Sought", "Stage", "Trials", "searches"]

"""A graph's file: which format it is of, and the lines of an edge list that it comes to."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from oracle.spec.graphs.graph import Graph, Unread


def readers() -> list[ModuleType]:
    """Those that have a `TITLE`, in the order in which they are asked."""
    folder = str(Path(__file__).parent)
    every = [import_module(f"oracle.spec.graphs.{one.name}") for one in iter_modules([folder])]
    found = [one for one in every if hasattr(one, "TITLE")]
    return sorted(found, key=lambda one: (getattr(one, "LAST", False), one.__name__))


def lines_of(text: str, name: str) -> list[str]:
    """The lines of an edge list; a SpecError with the place of what cannot be read."""
    reader = next((one for one in readers() if one.recognises(text)), None)
    try:
        if reader is None:
            known = ", ".join(str(one.TITLE) for one in readers())
            raise Unread(1, "this is no graph that anybody reads", f"one of: {known}")
        found: list[str] = reader.lines(text, name)
        Graph.of(found)  # its own faults are of the file too
        return found
    except Unread as error:
        raise error.refusal(name, text) from None

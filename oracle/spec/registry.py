"""Classes that register themselves by being defined: all below one, however deep."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import isabstract
from typing import Any


def descendants(kind: Any) -> Iterator[Any]:
    """Every class below another, abstract ones too."""
    for below in kind.__subclasses__():
        yield below
        yield from descendants(below)


def concrete(kind: Any) -> Iterator[Any]:
    """Every class below another that objects can be made of."""
    return (below for below in descendants(kind) if not isabstract(below))

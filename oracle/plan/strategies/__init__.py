"""Every strategy in this folder, by its lower-case name. A new file is found by itself."""

from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Any

from oracle.plan.strategies.base import Rule, Strategy

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def strategies() -> dict[str, type[Strategy]]:
    """Name -> strategy, outermost first; one defined elsewhere is here the moment it exists."""
    found = sorted(set(_below(Strategy)), key=lambda cls: (cls.nearness, cls.name))
    return {cls.name: cls for cls in found}


def _below(cls: Any) -> Iterator[type[Strategy]]:
    for new in cls.__subclasses__():
        if not isabstract(new):
            yield new
        yield from _below(new)


__all__ = ["Rule", "Strategy", "strategies"]

"""Every strategy in this folder, by its lower-case name. A new file is found by itself."""

from importlib import import_module
from pkgutil import iter_modules

from oracle.plan.strategies.base import Strategy

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def strategies() -> dict[str, type[Strategy]]:
    """Name -> strategy, outermost first; one defined elsewhere is here the moment it exists."""
    found = sorted(Strategy.__subclasses__(), key=lambda cls: cls.nearness)
    return {cls.name: cls for cls in found}


__all__ = ["Strategy", "strategies"]

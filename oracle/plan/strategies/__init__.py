"""Every strategy in this folder, by its lower-case name. A new file is found by itself."""

from importlib import import_module
from pkgutil import iter_modules

from oracle.plan.strategies.base import Rule, Strategy
from oracle.spec.registry import concrete

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def strategies() -> dict[str, type[Strategy]]:
    """Name -> strategy, outermost first; one defined elsewhere is here the moment it exists."""
    by_name = sorted(set(concrete(Strategy)), key=lambda cls: (cls.nearness, cls.name))
    return {cls.name: cls for cls in by_name}


__all__ = ["Rule", "Strategy", "strategies"]

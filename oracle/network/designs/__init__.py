"""Networks that could be bought for so many nodes with switches of so many ports, one file a kind.

design     a network's switches and cables, counted, and the needs that it has to meet
fat_tree   trees of two or three tiers, full or oversubscribed
planes     rails of one switch, or of a tree each
dragonfly  groups of routers
torus      two or three dimensions of switches
loop       a ring with shortcuts
hyperx     a grid whose lines are all linked
slim_fly   graphs of diameter two
optical    circuits to neighbours beside packet switches

A new file with a function `build` beside these is found by itself.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules

from oracle.network.designs.design import Design, Needs, Refusal

KNOWN = ("fat_tree", "planes", "dragonfly", "torus", "loop", "hyperx", "slim_fly", "optical")
_FOUND = [module.name for module in iter_modules(__path__) if module.name != "design"]
KINDS: dict[str, Callable[[Needs], Iterator[Design | Refusal]]] = {
    name: import_module(f"{__name__}.{name}").build
    for name in sorted(_FOUND, key=lambda name: (name not in KNOWN, KNOWN.index(name)
                                                 if name in KNOWN else 0, name))
}  # fmt: skip


def designs(needs: Needs) -> Iterator[Design | Refusal]:
    """Yield every network that can be built, and why others cannot."""
    for build in KINDS.values():
        yield from build(needs)


__all__ = ["KINDS", "Design", "Needs", "Refusal", "designs"]

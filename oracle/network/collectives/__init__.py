"""Every collective operation, by every algorithm: its messages, its closed form, its schedule.

One file per family; a new algorithm is found by itself. `ALGORITHMS[operation][name]` is one.
"""

from importlib import import_module
from pkgutil import iter_modules

from oracle.network.collectives.algorithm import Algorithm, descendants
from oracle.network.collectives.message import Message
from oracle.network.collectives.schedule import Exchange, Pairs, Shift, Steps, flows

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

ALGORITHMS: dict[str, dict[str, Algorithm]] = {}
for _kind in descendants(Algorithm):  # type: ignore[type-abstract]
    ALGORITHMS.setdefault(_kind.op, {})[_kind.name] = _kind()


def named(op: str, name: str) -> Algorithm:
    """The algorithm of that name, or a ValueError that lists those there are."""
    known = ALGORITHMS.get(op)
    if known is None:
        raise ValueError(f"no operation is called {op!r}; known: {', '.join(ALGORITHMS)}")
    if name not in known:
        raise ValueError(f"no {op} algorithm is called {name!r}; known: {', '.join(known)}")
    return known[name]


def plain(op: str) -> Algorithm:
    """The algorithm of the textbook, whose volume is the least that a device takes in."""
    names = {"alltoall": "pairwise", "sendrecv": "direct", "halo": "published"}
    return named(op, names.get(op, "ring"))


def menu(op: str, p: int, inner: int = 1) -> list[Algorithm]:
    """The algorithms on offer for p ranks, `inner` of them to a node."""
    if op not in ALGORITHMS:
        raise ValueError(f"no operation is called {op!r}; known: {', '.join(ALGORITHMS)}")
    return [each for each in ALGORITHMS[op].values() if each.menu and each.fits(p, inner)]


__all__ = [
    "ALGORITHMS", "Algorithm", "Exchange", "Message", "Pairs", "Shift", "Steps", "flows", "menu",
    "named", "plain",
]  # fmt: skip

"""Every collective operation by every algorithm: closed form and schedule.

message       one kind of communication that recurs in a training iteration
schedule      who sends how much to whom, step by step
algorithm     what every algorithm has in common
ring          rings, one or many, and chains
tree          binomial and double binary trees, parameter server, in-network reduction
halving       recursive halving and doubling
hierarchical  inside the nodes first, then between them
grid          rows, then columns
servers       parameter servers
alltoall      scattered, pairwise, Bruck
dispatch      tokens to experts and back, by libraries that serve experts
switches      reduced and multicast by switches: NVLS, SHARP, NVLSTree, CollNet
neighbour     send-receive and halo exchange
sparse        sparse gradients

`ALGORITHMS[operation][name]` is one algorithm; a class in a new file is found by itself.
"""

from importlib import import_module
from pkgutil import iter_modules

from oracle.network.collectives.algorithm import Algorithm
from oracle.network.collectives.message import Message
from oracle.network.collectives.schedule import Pairs, Shift, Steps, XorExchange, flows
from oracle.spec import collective_names
from oracle.spec.registry import descendants

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

ALGORITHMS: dict[str, dict[str, Algorithm]] = {}
for _kind in descendants(Algorithm):
    ALGORITHMS.setdefault(_kind.op, {})[_kind.name] = _kind()
    collective_names.ALGORITHMS.setdefault(_kind.op, set()).add(_kind.name)


def named(op: str, name: str) -> Algorithm:
    """Return the named algorithm, or raise a ValueError that lists those there are."""
    table = ALGORITHMS.get(op)
    if table is None:
        raise ValueError(f"no operation is called {op!r}; known: {', '.join(ALGORITHMS)}")
    family, colon, number = name.partition(":")
    if family not in table or (colon and not number.isdigit()) or (colon and not int(number)):
        raise ValueError(f"no {op} algorithm is called {name!r}; known: {', '.join(table)}")
    return table[family].with_number(int(number)) if colon else table[family]


def plain(op: str) -> Algorithm:
    """Return the textbook's algorithm, whose volume is the least that a device takes in."""
    names = {"alltoall": "pairwise", "sendrecv": "direct", "halo": "published",
             "sparse_allreduce": "oktopk"}  # fmt: skip
    return named(op, names.get(op, "ring"))


def menu(op: str, p: int, inner: int = 1) -> list[Algorithm]:
    """Return the algorithms on offer for p ranks, `inner` of them to a node."""
    if op not in ALGORITHMS:
        raise ValueError(f"no operation is called {op!r}; known: {', '.join(ALGORITHMS)}")
    return [by for by in ALGORITHMS[op].values() if by.menu and by.fits(p, inner)]


__all__ = [
    "ALGORITHMS", "Algorithm", "Message", "Pairs", "Shift", "Steps", "XorExchange", "flows", "menu",
    "named", "plain",
]  # fmt: skip

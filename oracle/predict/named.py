"""Whether an algorithm that was named sends anything of the plans that it was named for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS
from oracle.network.contention.price import ALIASES
from oracle.spec.document import refusal

Found = TypeVar("Found")
ANY = (None, "best", "nccl")
# what a plan says in words of its own, since it sends other bytes
IN_PLANS = {"sparse_allreduce": "data:…,compress=topk,sparse={}"}


def checked(found: Found) -> Found:
    """An estimate; a name that fits no operation of its plans is refused, where they have any."""
    seen: Any = found
    name, plans, exchange = seen.options.algorithm, seen.plans, seen.exchange
    if name in ANY or nccl.version_asked(name):
        return found
    bare = ALIASES.get(name, name).partition(":")[0]
    sent = {message["op"] for messages in exchange for message in messages}
    if not sent or any(bare in ALGORITHMS.get(op, {}) for op in sent):
        return found
    mine = [op for op, table in ALGORITHMS.items() if bare in table]
    if not mine:  # a capability of switches, which is looked for elsewhere
        return found
    said = [IN_PLANS[op].format(bare) for op in mine if op in IN_PLANS]
    known = (f"{op}: {', '.join(ALGORITHMS[op])}" for op in sorted(sent & ALGORITHMS.keys()))
    what = f"`{name}` is an algorithm of {', '.join(mine)}; `{plans[0]}` has {_and(sent)} only"
    hint = "; ".join([*(f"write it in the plan, `{one}`" for one in said), *known])
    raise refusal("options", what, hint)


def _and(words: Iterable[str]) -> str:
    *most, last = sorted(words)
    return f"{', '.join(most)} and {last}" if most else last

"""Whether an algorithm that was named sends anything of the plans that it was named for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from oracle.network.collectives import ALGORITHMS
from oracle.network.contention.price import ALIASES
from oracle.spec.document import refusal

ANY = (None, "best", "nccl")
# what a plan says in words of its own, since it sends other bytes
IN_PLANS = {"sparse_allreduce": "data:…,compress=topk,sparse={}"}


def check_algorithm(
    name: str | None, plans: Sequence[str], exchange: Iterable[Iterable[dict[str, Any]]]
) -> None:
    """Refuse a name that fits no operation of plans that send something."""
    if name in ANY:
        return
    assert name is not None
    bare = ALIASES.get(name, name).partition(":")[0]
    sent = {message["op"] for messages in exchange for message in messages}
    if not sent or any(bare in ALGORITHMS.get(op, {}) for op in sent):
        return
    mine = [op for op, table in ALGORITHMS.items() if bare in table]
    said = [IN_PLANS[op].format(bare) for op in mine if op in IN_PLANS]
    known = (f"{op}: {', '.join(ALGORITHMS[op])}" for op in sorted(sent & ALGORITHMS.keys()))
    what = f"`{name}` is an algorithm of {', '.join(mine)}; `{plans[0]}` has {_and(sent)} only"
    hint = "; ".join([*(f"write it in the plan, `{one}`" for one in said), *known])
    raise refusal("options", what, hint)


def _and(words: Iterable[str]) -> str:
    *most, last = sorted(words)
    return f"{', '.join(most)} and {last}" if most else last
